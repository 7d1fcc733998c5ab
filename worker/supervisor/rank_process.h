// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A process of an island as a child of its supervisor. The system kills it when
// the supervisor ends for any reason.
#ifndef WORKER_SUPERVISOR_RANK_PROCESS_H_
#define WORKER_SUPERVISOR_RANK_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace causeway {

// For use by the thread that starts it, which must outlive the process.
class RankProcess {
 public:
  // Starts `command`, whose first word is the path of a program. Forwards its
  // output to stderr, with `prefix` before each line that is not JSON.
  static absl::StatusOr<std::unique_ptr<RankProcess>> Start(
      const std::vector<std::string>& command, std::string prefix);
  // Kills the process if it still runs.
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  pid_t pid() const { return pid_; }
  bool running() const { return exit_code_ < 0; }
  // The exit code, or 128 + the signal that killed it.
  int exit_code() const { return exit_code_; }
  // The last line that it has printed.
  const std::string& last_line() const { return last_line_; }

  // Does nothing if the process has ended.
  void Signal(int signal) const;

  // Forwards the processes' output for `time`, and records which have ended.
  static void Tend(absl::Span<const std::unique_ptr<RankProcess>> processes,
                   absl::Duration time);

 private:
  RankProcess(pid_t pid, int output, std::string prefix)
      : pid_(pid), output_(output), prefix_(std::move(prefix)) {}
  // Forwards the available output. Returns whether more may come.
  bool Forward();
  void Print(std::string line);

  const pid_t pid_;
  // The reading end of the pipe, or -1 after its end.
  int output_;
  const std::string prefix_;
  // The beginning of a line.
  std::string line_;
  std::string last_line_;
  int exit_code_ = -1;
};

}  // namespace causeway

#endif  // WORKER_SUPERVISOR_RANK_PROCESS_H_
