// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/rank_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace causeway {
namespace {

// A longer line is printed in parts.
constexpr size_t kLongestLine = 64 << 10;

// Executes `argv`. Calls only functions that are safe after fork().
[[noreturn]] void Become(char* const* argv, pid_t parent, int output) {
  // The child gets its own group, because Ctrl-C is for the supervisor, which
  // passes it on.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The supervisor may have ended before the call.
  if (getppid() != parent) _exit(1);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankProcess>> RankProcess::Start(
    const std::vector<std::string>& command, std::string prefix) {
  std::vector<char*> argv;
  for (const std::string& word : command) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "cannot make a pipe for a rank");
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(argv.data(), parent, ends[1]);
  const int error = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return absl::ErrnoToStatus(error, "cannot start a rank");
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return absl::WrapUnique(new RankProcess(pid, ends[0], std::move(prefix)));
}

RankProcess::~RankProcess() {
  if (running()) {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (output_ >= 0) close(output_);
}

void RankProcess::Signal(int signal) const {
  if (running()) kill(pid_, signal);
}

void RankProcess::Print(std::string line) {
  if (!line.empty()) last_line_ = line;
  const bool is_json = absl::StartsWith(line, "{");
  std::cerr << absl::StrCat(is_json ? "" : prefix_, line, "\n");
}

bool RankProcess::Forward() {
  char bytes[4096];
  while (true) {
    const ssize_t size = read(output_, bytes, sizeof(bytes));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return size < 0 && errno == EAGAIN;
    for (const char byte : absl::string_view(bytes, size)) {
      if (byte != '\n') line_.push_back(byte);
      if (byte == '\n' || line_.size() == kLongestLine) {
        Print(std::exchange(line_, ""));
      }
    }
  }
}

void RankProcess::Tend(absl::Span<const std::unique_ptr<RankProcess>> processes,
                       absl::Duration time) {
  std::vector<pollfd> files;
  for (const auto& process : processes) {
    files.push_back({.fd = process->output_, .events = POLLIN});
  }
  poll(files.data(), files.size(),
       static_cast<int>(absl::ToInt64Milliseconds(time)));
  for (const auto& process : processes) {
    int status = 0;
    // Read the output after checking for the end, so that none is missed.
    const bool ended =
        process->running() && waitpid(process->pid_, &status, WNOHANG) != 0;
    if (process->output_ >= 0 && !process->Forward()) {
      if (!process->line_.empty()) process->Print(process->line_);
      close(std::exchange(process->output_, -1));
    }
    if (!ended) continue;
    process->exit_code_ =
        WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
}

}  // namespace causeway
