// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/follow.h"

#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/collective/crew.h"
#include "worker/collective/culprit.h"
#include "worker/collective/tcp_rendezvous.h"
#include "worker/crew_report.h"
#include "worker/flags.h"
#include "worker/local_ranks.h"
#include "worker/terminator.h"
#include "worker/training/island_ranks.h"

namespace causeway {

absl::Status FollowRank0(const std::function<uint64_t()>& random_seed) {
  ASSIGN_OR_RETURN(const LocalRanks local, FindLocalRanks());
  std::atomic<bool> has_place = false;
  // Rank 0 needs a process that has a place until it has led the island out of
  // the run.
  Terminator terminator(
      [&](const std::string&) {
        if (!has_place) _exit(absl::GetFlag(FLAGS_interrupted_exit_code));
      },
      [] { _exit(0); }, [] {});
  ASSIGN_OR_RETURN(const RendezvousOptions options, IslandRendezvousOptions());
  const int process = absl::GetFlag(FLAGS_island_rank);
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<CrewPlace> place,
                     AwaitPlace(options, process, local.count, random_seed(),
                                kAwaitProcess));
    // The island did not need it.
    if (!place.has_value()) return absl::OkStatus();
    has_place = true;
    const ProcessRankOptions ranks =
        RankOptions(local, place->rank, place->size, place->table.get());
    StampOwnRanks(ranks.rank * ranks.threads, ranks.threads);
    const absl::Status ended = RunFollowingRank(TrainerOptions(local), ranks);
    if (!ended.ok()) {
      SayDone(*place);
      return ended;
    }
    // Rank 0 ends the others in order even if it fails itself, and then says
    // so.
    const absl::StatusOr<std::optional<std::string>> why =
        WhyEnded(*place, kReportsNeeded);
    if (!why.ok()) return absl::OkStatus();
    if (why->has_value()) {
      return absl::AbortedError(absl::StrCat("rank 0 has failed: ", **why));
    }
    has_place = false;
    StampOwnRanks(0, 0);
  }
}

}  // namespace causeway
