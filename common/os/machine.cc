// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/machine.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/os/file.h"

namespace causeway {

namespace {

// Returns the least number in the files `name` of a control group and of all
// groups above it. A container may see only its own group, as the topmost one.
uint64_t LeastLimit(const std::string& mount, std::string group,
                    const std::string& name) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  while (true) {
    std::ifstream file(absl::StrCat(mount, group, "/", name));
    uint64_t limit = 0;
    // The word "max" is no number.
    if (file >> limit) least = std::min(least, limit);
    if (group.empty()) return least;
    group.resize(group.rfind('/'));
  }
}

uint64_t GroupLimit(const std::string& root) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  // A line is "4:cpu,memory:/a/b", or "0::/a/b" in version 2.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::string group(absl::StripSuffix(parts[2], "/"));
    if (!group.empty() && group.front() != '/') continue;
    const std::string mount = root + "/sys/fs/cgroup";
    const std::vector<absl::string_view> controllers =
        absl::StrSplit(parts[1], ',');
    if (parts[1].empty()) {
      least = std::min(least, LeastLimit(mount, group, "memory.max"));
    } else if (absl::c_linear_search(controllers, "memory")) {
      least = std::min(
          least, LeastLimit(mount + "/memory", group, "memory.limit_in_bytes"));
    }
  }
  return least;
}

}  // namespace

absl::StatusOr<uint64_t> MachineMemoryBytes(const std::string& root) {
  struct sysinfo machine;
  if (sysinfo(&machine) != 0) {
    return ErrnoStatus(errno, "ask for the memory of", "the machine");
  }
  rlimit addresses;
  if (getrlimit(RLIMIT_AS, &addresses) != 0) {
    return ErrnoStatus(errno, "ask for the limit of", "addresses");
  }
  // RLIM_INFINITY is the largest number.
  return std::min({uint64_t{machine.totalram} * machine.mem_unit,
                   GroupLimit(root), uint64_t{addresses.rlim_cur}});
}

absl::StatusOr<DiskSpace> FindDiskSpace(const std::string& path) {
  struct statvfs disk;
  if (statvfs(path.c_str(), &disk) != 0) {
    return ErrnoStatus(errno, "ask for the disk space of", path);
  }
  return DiskSpace{.free = uint64_t{disk.f_bavail} * disk.f_frsize,
                   .total = uint64_t{disk.f_blocks} * disk.f_frsize};
}

uint64_t ResidentBytes() {
  // These count pages: of the address space, of memory, and of files in memory.
  uint64_t size = 0;
  uint64_t resident = 0;
  uint64_t of_files = 0;
  std::ifstream statm("/proc/self/statm");
  if (!(statm >> size >> resident >> of_files)) return 0;
  return (resident - of_files) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t PeakResidentBytes() {
  // A line is, for instance, "VmHWM:    1234 kB".
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    uint64_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

uint64_t OutOfMemoryKills(const std::string& root) {
  std::ifstream counters(root + "/proc/vmstat");
  std::string name;
  for (uint64_t count = 0; counters >> name >> count;) {
    if (name == "oom_kill") return count;
  }
  return 0;
}

uint64_t AllowOpenFiles(uint64_t wanted) {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  if (files.rlim_cur < wanted) {
    files.rlim_cur = std::min<rlim_t>(wanted, files.rlim_max);
    setrlimit(RLIMIT_NOFILE, &files);
  }
  return files.rlim_cur;
}

}  // namespace causeway
