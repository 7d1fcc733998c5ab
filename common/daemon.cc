// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/daemon.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "glog/logging.h"

namespace causeway {
namespace {

sigset_t TerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGUSR1);
  return signals;
}

}  // namespace

std::vector<std::string> StartDaemon(int argc, char** argv,
                                     absl::string_view usage,
                                     absl::string_view main_file) {
  BlockTerminationSignals();
  // gRPC's own log repeats our errors in its words.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  absl::SetProgramUsageMessage(usage);
  absl::FlagsUsageConfig config;
  config.contains_help_flags = [main_file](absl::string_view file) {
    return absl::EndsWith(file, main_file);
  };
  config.contains_helpshort_flags = config.contains_help_flags;
  absl::SetFlagsUsageConfig(config);
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  return {rest.begin() + 1, rest.end()};
}

int UsageError(absl::string_view program, absl::string_view problem) {
  std::cerr << program << ": " << problem << "; see --help\n";
  return 2;
}

int ExitCode(absl::string_view program, const absl::Status& status) {
  if (status.ok()) return 0;
  std::cerr << program << ": " << status.message() << "\n";
  return 1;
}

void BlockTerminationSignals() {
  const sigset_t signals = TerminationSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

int AwaitTerminationSignal(absl::Duration timeout) {
  const sigset_t signals = TerminationSignals();
  const timespec wait = absl::ToTimespec(timeout);
  return std::max(0, sigtimedwait(&signals, nullptr, &wait));
}

}  // namespace causeway
