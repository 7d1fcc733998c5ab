// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/end_to_end/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"

namespace causeway {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(10);

}  // namespace

Process::Process(std::vector<std::string> arguments, std::string log_path)
    : log_path_(std::move(log_path)) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log_path_.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  const int error =
      posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  CHECK_EQ(error, 0) << "cannot start " << argv[0] << ": " << strerror(error);
}

Process::~Process() {
  if (running()) {
    Signal(SIGKILL);
    Wait();
  }
}

void Process::Signal(int signal) const {
  kill(pid_, signal);
  if (signal != SIGSTOP) return;
  siginfo_t stopped;
  waitid(P_PID, static_cast<id_t>(pid_), &stopped,
         WSTOPPED | WEXITED | WNOWAIT);
}

bool Process::running() {
  if (exit_code_ >= 0) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return false;
}

int Process::Wait(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (running()) {
    if (absl::Now() > deadline) return -1;
    absl::SleepFor(kPoll);
  }
  return exit_code_;
}

std::string Process::Output() const { return FileText(log_path_); }

bool Process::AwaitOutput(absl::string_view text, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    const bool alive = running();
    if (absl::StrContains(Output(), text)) return true;
    if (!alive || absl::Now() > deadline) return false;
    absl::SleepFor(kPoll);
  }
}

std::vector<std::string> DyingWithParent(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {"/usr/bin/setpriv", "--pdeathsig", "KILL", "--"});
  return arguments;
}

std::string ProgramPath(absl::string_view program) {
  const char* root = std::getenv("TEST_SRCDIR");
  CHECK(root != nullptr) << "TEST_SRCDIR is not set: run under bazel test";
  return absl::StrCat(root, "/causeway/", program);
}

std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace causeway
