// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// causeway-worker: one island of a run, or one rank of it.
//
// SIGTERM, SIGINT, SIGHUP, SIGUSR1 (which schedulers send ahead of time) and a
// pre-emption notice make the island hand in its training and leave; another
// signal, more than two seconds later, makes it leave at once.
//
// Exit codes: 0 the run is finished, or the island has left; 1 failure; 2
// usage; 3 --supervise has given up, or an audit has found wrong numbers, so
// the island must not be started again before someone has looked at it;
// --interrupted_exit_code if a signal or a notice made it leave.
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <system_error>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/os/daemon.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "worker/collective/rank_stamps.h"
#include "worker/flags.h"
#include "worker/follow.h"
#include "worker/lead.h"
#include "worker/supervised_ranks.h"
#include "worker/supervisor/supervisor.h"
#include "worker/terminator.h"
#include "worker/training/gradient_audit.h"

namespace causeway {
namespace {

constexpr char kProgram[] = "causeway-worker";

uint64_t RandomSeed() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

absl::Status CheckDataFile(const std::string& path) {
  const absl::Status opened = MappedFile::Open(path).status();
  if (opened.ok()) return opened;
  std::error_code unknown;
  return absl::Status(
      opened.code(),
      absl::StrCat(
          "--data: ", opened.message(),
          absl::StartsWith(path, "/")
              ? ""
              : absl::StrCat(" (in ",
                             std::filesystem::current_path(unknown).string(),
                             ")")));
}

// Returns the exit code.
absl::StatusOr<int> Run() {
  // Check early that the files can be read; the rest needs the run's
  // configuration, which comes with the join.
  for (const std::string& path : absl::GetFlag(FLAGS_data)) {
    RETURN_IF_ERROR(CheckDataFile(path));
  }
  RETURN_IF_ERROR(OpenRankStamps(SteadyWallClock()));
  const int if_interrupted = absl::GetFlag(FLAGS_interrupted_exit_code);
  absl::Status status;
  do {
    // A process that was told to end takes no further place.
    if (IsInterrupted()) return if_interrupted;
    // Process 0 leads, unless others may have taken its place.
    if (absl::GetFlag(FLAGS_island_rank) != 0 || HasSuccessors()) {
      ASSIGN_OR_RETURN(
          const FollowEnd end,
          FollowLeader(RandomSeed, /*failed=*/absl::IsAlreadyExists(status)));
      // Only the process that leads knows why the island has ended.
      if (end == FollowEnd::kIslandEnded) return if_interrupted;
      if (end == FollowEnd::kIslandEndedForGood) return kGaveUpExitCode;
    }
    status = LeadIsland(RandomSeed);
  } while (absl::IsAlreadyExists(status) && HasSuccessors());
  // A requested stop is not a failure.
  if (absl::IsCancelled(status)) return IsInterrupted() ? if_interrupted : 0;
  if (IsFoundByAudit(status)) {
    ExitCode(kProgram, status);
    return kGaveUpExitCode;
  }
  RETURN_IF_ERROR(status);
  return 0;
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  using causeway::kProgram;
  causeway::StartDaemon(
      argc, argv,
      "Trains as one island of a run.\n\n"
      "  causeway-worker --coordinator HOST:PORT --island NAME --data FILE\n"
      "  causeway-worker --coordinator HOST:PORT --join TOKEN --tls DIR --data "
      "FILE",
      "worker/flags.cc");
  causeway::SetSupervisedIsland();
  const std::string problem = causeway::UsageProblem();
  if (!problem.empty()) return causeway::UsageError(kProgram, problem);
  const absl::StatusOr<int> code =
      absl::GetFlag(FLAGS_supervise) > 0
          ? causeway::SuperviseRanks({argv, argv + argc})
          : causeway::Run();
  return code.ok() ? *code : causeway::ExitCode(kProgram, code.status());
}
