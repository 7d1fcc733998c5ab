// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/load/watched_coordinator.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "google/protobuf/text_format.h"

namespace causeway {
namespace {

constexpr absl::Duration kWatch = absl::Milliseconds(10);

}  // namespace

absl::StatusOr<std::unique_ptr<WatchedCoordinator>> WatchedCoordinator::Start(
    const std::string& programs, const std::string& directory,
    const v1::RunConfig& config, const std::vector<std::string>& arguments,
    const std::vector<std::string>& launcher) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(config, &text);
  const std::string config_path = absl::StrCat(directory, "/run.textproto");
  RETURN_IF_ERROR(WriteFileAtomically(config_path, {absl::string_view(text)}));
  const std::string port_path = absl::StrCat(directory, "/port");
  std::vector<std::string> command = launcher;
  command.insert(
      command.end(),
      {absl::StrCat(programs, "/server/causeway-coordinator"), "--config",
       config_path, "--state_dir", absl::StrCat(directory, "/state"),
       "--listen", "127.0.0.1:0", "--port_file", port_path});
  command.insert(command.end(), arguments.begin(), arguments.end());
  auto process = std::make_unique<Process>(
      std::move(command), absl::StrCat(directory, "/coordinator.log"));
  if (!process->AwaitOutput("waiting for islands", absl::Minutes(5))) {
    return absl::InternalError(
        absl::StrCat("the coordinator does not start:\n", process->Output()));
  }
  const std::string port = FileText(port_path);
  return std::unique_ptr<WatchedCoordinator>(new WatchedCoordinator(
      std::move(process),
      absl::StrCat("127.0.0.1:", absl::StripAsciiWhitespace(port))));
}

WatchedCoordinator::WatchedCoordinator(std::unique_ptr<Process> process,
                                       std::string address)
    : process_(std::move(process)), address_(std::move(address)) {
  watcher_ = std::thread([this] {
    while (!stopping_) {
      const uint64_t bytes = AnonymousBytes();
      uint64_t most = peak_;
      while (bytes > most && !peak_.compare_exchange_weak(most, bytes)) {
      }
      absl::SleepFor(kWatch);
    }
  });
}

WatchedCoordinator::~WatchedCoordinator() {
  stopping_ = true;
  watcher_.join();
}

double WatchedCoordinator::CpuSeconds() const {
  const std::string stat =
      FileText(absl::StrCat("/proc/", process_->pid(), "/stat"));
  // Skip the program's name, which may contain anything. State is field 3,
  // utime and stime are 14 and 15 (proc(5)).
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(name_end + 2), ' ');
  uint64_t user = 0;
  uint64_t system = 0;
  if (fields.size() < 13 || !absl::SimpleAtoi(fields[11], &user) ||
      !absl::SimpleAtoi(fields[12], &system)) {
    return 0;
  }
  return static_cast<double>(user + system) /
         static_cast<double>(sysconf(_SC_CLK_TCK));
}

uint64_t WatchedCoordinator::AnonymousBytes() const {
  // Sizes in pages; the second is what is resident, the third the part of it
  // that is of files or shared (proc(5)).
  const std::vector<std::string> sizes = absl::StrSplit(
      FileText(absl::StrCat("/proc/", process_->pid(), "/statm")), ' ');
  uint64_t resident = 0;
  uint64_t shared = 0;
  if (sizes.size() < 3 || !absl::SimpleAtoi(sizes[1], &resident) ||
      !absl::SimpleAtoi(sizes[2], &shared)) {
    return 0;
  }
  return (resident - shared) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

absl::Status WatchedCoordinator::Stop() {
  process_->Signal(SIGTERM);
  const int code = process_->Wait();
  if (code == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the coordinator ended with code ",
                                          code, ":\n", process_->Output()));
}

}  // namespace causeway
