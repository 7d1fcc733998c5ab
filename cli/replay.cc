// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replay.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands.h"
#include "common/status_macros.h"
#include "server/storage/state_directory.h"

namespace causeway {
namespace {

std::string Describe(const ReplayResult& replay) {
  std::string text = absl::StrFormat(
      "fragment %u: versions %u to %u come out the same (%u contributions)\n",
      replay.fragment, replay.first_version, replay.last_version,
      replay.contributions);
  if (!replay.difference.empty()) {
    absl::StrAppendFormat(&text, "fragment %u: version %u differs: %s\n",
                          replay.fragment, replay.last_version + 1,
                          replay.difference);
  }
  return text;
}

}  // namespace

Command ReplayCommand(ProgressEnvironment environment) {
  Command command{
      .name = "replay",
      .arguments = "STATE_DIR",
      .summary = "Repeats a run's recorded merges and compares the results.",
      .details =
          "STATE_DIR is the coordinator's state directory; the coordinator may "
          "be running. The records of its merges go back to its oldest "
          "snapshot "
          "or, with storage.record_contributions, to the beginning. The "
          "command "
          "repeats every merge on one thread and compares parameters, "
          "momentum, "
          "residual and update with the committed ones, bit for bit. It names "
          "the fragment and version of every difference, and fails if there is "
          "one."};
  command.run = [=](const Invocation& call) -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<StateDirectory> state,
                     StateDirectory::OpenReadOnly(call.arguments[0]));
    std::optional<Progress> progress;
    const auto merged = [&](uint32_t fragment, uint64_t merge,
                            uint64_t merges) {
      if (merge == 1) {
        progress.emplace(absl::StrCat("merges of fragment ", fragment), merges,
                         environment, call.err);
      }
      progress->Add(1);
    };
    std::vector<std::string> differing;
    const auto replayed = [&](const ReplayResult& replay) {
      progress.reset();
      call.out << Describe(replay) << std::flush;
      if (replay.difference.empty()) return;
      differing.push_back(absl::StrCat("fragment ", replay.fragment,
                                       " at version ",
                                       replay.last_version + 1));
    };
    RETURN_IF_ERROR(ReplayRun(*state, replayed, merged));
    if (differing.empty()) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("the replay differs in ", absl::StrJoin(differing, ", ")));
  };
  return command;
}

}  // namespace causeway
