// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/version.h"

namespace causeway {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double CpuSeconds() {
  rusage use = {};
  if (getrusage(RUSAGE_SELF, &use) != 0) return kUnknown;
  return Number(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         Number(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

double ResidentMemory() {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0;
  uint64_t resident = 0;
  if (!(file >> pages >> resident)) return kUnknown;
  return Number(resident) * Number(sysconf(_SC_PAGESIZE));
}

double OpenFiles() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  if (error) return kUnknown;
  // One of the files is the folder itself.
  return Number(std::distance(begin(files), end(files)) - 1);
}

double MostFiles() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kUnknown;
  return Number(limit.rlim_cur);
}

// Returns the start as Unix time.
double StartTime() {
  std::ifstream machine("/proc/stat");
  std::string word;
  double boot = kUnknown;
  while (machine >> word) {
    if (word == "btime" && machine >> boot) break;
  }
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  // The program's name, in parentheses, may have spaces.
  const size_t end = line.rfind(") ");
  if (end == std::string::npos) return kUnknown;
  const std::vector<std::string> fields =
      absl::StrSplit(line.substr(end + 2), ' ');
  // This is field 22 of proc(5); the fields here begin with number 3.
  constexpr size_t kStart = 22 - 3;
  double ticks = 0;
  if (fields.size() <= kStart || !absl::SimpleAtod(fields[kStart], &ticks)) {
    return kUnknown;
  }
  return boot + ticks / Number(sysconf(_SC_CLK_TCK));
}

}  // namespace

void AddProcessMetrics(MetricFamilies& families) {
  families.AddSample({.name = "causeway_build_info",
                      .help = "1; the label is the program's version."},
                     1, {}, "version", kVersion);
  families.AddSample({.name = "process_cpu_seconds_total",
                      .help = "User and system processor time."},
                     CpuSeconds(), {});
  families.AddSample({.name = "process_resident_memory_bytes",
                      .help = "Resident memory, with mapped files."},
                     ResidentMemory(), {});
  families.AddSample(
      {.name = "process_open_fds", .help = "Open file descriptors."},
      OpenFiles(), {});
  families.AddSample({.name = "process_max_fds",
                      .help = "The most file descriptors that may be open."},
                     MostFiles(), {});
  families.AddSample({.name = "process_start_time_seconds",
                      .help = "The process's start, as Unix time."},
                     StartTime(), {});
}

}  // namespace causeway
