// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Child processes for tests: started with their output in a file, killed with
// real signals, never left behind.
#ifndef TESTS_END_TO_END_PROCESS_H_
#define TESTS_END_TO_END_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace causeway {

class Process {
 public:
  // Starts `arguments` (the first is the program); appends stdout and stderr to
  // `log_path`. CHECK-fails if the program cannot be started.
  Process(std::vector<std::string> arguments, std::string log_path);
  // Kills the process if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // After SIGSTOP, waits until the process stands still.
  void Signal(int signal) const;
  // Waits for the end. Returns the exit code, 128 + the signal that killed it,
  // or -1 after `timeout`.
  int Wait(absl::Duration timeout = absl::Seconds(60));
  int End(int signal) {
    Signal(signal);
    return Wait();
  }
  bool running();

  // Returns everything it has printed so far.
  std::string Output() const;
  // Waits until `text` is in the output; false after `timeout`, or if the
  // process ended without it.
  bool AwaitOutput(absl::string_view text,
                   absl::Duration timeout = absl::Seconds(60));

 private:
  const std::string log_path_;
  pid_t pid_ = -1;
  int exit_code_ = -1;
};

// Returns the arguments of a process that the system kills with the thread that
// starts it, even if this process is killed itself.
std::vector<std::string> DyingWithParent(std::vector<std::string> arguments);

// Returns the path of a program of this repository, for instance
// "server/causeway-coordinator".
std::string ProgramPath(absl::string_view program);

// Returns the contents of a file, or "" if there is none.
std::string FileText(const std::string& path);

}  // namespace causeway

#endif  // TESTS_END_TO_END_PROCESS_H_
