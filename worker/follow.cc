// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/follow.h"

#include <unistd.h>

#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
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
  absl::Mutex mu;
  // The rank and the table of this process while its ranks connect.
  const ProcessRankOptions* connecting = nullptr;
  bool is_connected = false;
  const auto set_state = [&](const ProcessRankOptions* ranks, bool connected) {
    absl::MutexLock lock(&mu);
    connecting = ranks;
    is_connected = connected;
  };
  Terminator terminator(
      [&](const std::string& reason) {
        absl::MutexLock lock(&mu);
        // Rank 0 needs connected ranks until it has led the island out of the
        // run.
        if (is_connected) return;
        if (connecting != nullptr) {
          ReportDeadRank(connecting->rank * connecting->threads,
                         absl::StrCat("its process was ended by ", reason),
                         connecting->rendezvous);
        }
        _exit(absl::GetFlag(FLAGS_interrupted_exit_code));
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
    ProcessRankOptions ranks =
        RankOptions(local, place->rank, place->size, place->table.get());
    ranks.connected = [&] { set_state(nullptr, true); };
    set_state(&ranks, false);
    StampOwnRanks(ranks.rank * ranks.threads, ranks.threads);
    const absl::Status ended = RunFollowingRank(TrainerOptions(local), ranks);
    set_state(nullptr, true);
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
    set_state(nullptr, false);
    StampOwnRanks(0, 0);
  }
}

}  // namespace causeway
