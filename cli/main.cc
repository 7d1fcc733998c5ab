// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The `causeway` program: shows runs and what they have learnt.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/evaluate.h"
#include "cli/history/history.h"
#include "cli/history/report.h"
#include "cli/plan/plan_command.h"
#include "cli/prepare.h"
#include "cli/progress.h"
#include "cli/sample.h"
#include "cli/validate.h"
#include "cli/watch/terminal.h"
#include "glog/logging.h"

namespace causeway {
namespace {

std::vector<Command> AllCommands() {
  const ProgressEnvironment progress = {.now = [] { return absl::Now(); },
                                        .terminal = isatty(STDERR_FILENO) != 0};
  std::vector<Command> commands =
      StatusCommands({.now = [] { return absl::Now(); },
                      .sleep =
                          [](absl::Duration duration) {
                            absl::SleepFor(duration);
                            return true;
                          },
                      .time_zone = absl::LocalTimeZone(),
                      .terminal = Terminal::IsOne(STDOUT_FILENO)});
  commands.push_back(
      HistoryCommand([] { return absl::Now(); }, absl::LocalTimeZone()));
  commands.push_back(ReportCommand([] { return absl::Now(); }));
  for (Command& command : ControlCommands([] { return absl::Now(); })) {
    commands.push_back(std::move(command));
  }
  for (Command& command : TrustCommands([] { return absl::Now(); })) {
    commands.push_back(std::move(command));
  }
  commands.push_back(ValidateCommand());
  commands.push_back(PlanCommand());
  commands.push_back(PrepareCommand(progress));
  const uint64_t threads = std::max(1U, std::thread::hardware_concurrency());
  commands.push_back(
      EvaluateCommand({.progress = progress, .threads = threads}));
  commands.push_back(SampleCommand(threads));
  commands.push_back(ImportCommand());
  commands.push_back(ExportCommand(progress));
  commands.push_back(ReplayCommand(progress));
  return commands;
}

// Returns whether the output's reader has gone, as after `| head`.
bool ReaderHasGone() {
  pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  // gRPC's own log repeats our errors in its own words.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  // Turn a reader that goes away (`| head`) into a failed write.
  std::signal(SIGPIPE, SIG_IGN);
  const int exit_code = causeway::RunCommandLine(
      "causeway",
      "Plans, watches and steers training runs of Causeway, and uses the "
      "models that they train. In a run, each island (a cluster) trains a "
      "replica of one model; a coordinator merges what the islands have "
      "learnt, one fragment of the model at a time.",
      causeway::AllCommands(), std::vector<std::string>(argv + 1, argv + argc),
      std::cout, std::cerr);
  std::cout.flush();
  if (std::cout.good() || causeway::ReaderHasGone()) return exit_code;
  std::cerr << "causeway: cannot write the output; is the disk full?\n";
  return causeway::kExitFailure;
}
