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
#include "common/clock.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/collective/crew.h"
#include "worker/collective/crew_watch.h"
#include "worker/collective/culprit.h"
#include "worker/collective/rank_stamps.h"
#include "worker/collective/succession.h"
#include "worker/collective/tcp_rendezvous.h"
#include "worker/collective/verdicts.h"
#include "worker/coordinator_access.h"
#include "worker/crew_report.h"
#include "worker/flags.h"
#include "worker/local_ranks.h"
#include "worker/terminator.h"
#include "worker/training/gradient_audit.h"
#include "worker/training/island_ranks.h"

namespace causeway {
namespace {

// A process that waits for a place looks for another leader if this one has not
// answered for this long.
constexpr absl::Duration kAwaitLeader = absl::Seconds(3);

bool IsUnanswered(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsNotFound(status);
}

// Returns `status`, after stamping whether this process ends for lack of a
// leader.
absl::Status WithoutLeader(const absl::Status& status) {
  if (IsUnanswered(status)) StampOthersMissing();
  return status;
}

FollowEnd EndedForGood(const absl::Status& why) {
  LOG(ERROR) << why.message();
  return FollowEnd::kIslandEndedForGood;
}

}  // namespace

absl::StatusOr<FollowEnd> FollowLeader(
    const std::function<uint64_t()>& random_seed, bool failed) {
  ASSIGN_OR_RETURN(const LocalRanks local, FindLocalRanks());
  absl::Mutex mu;
  // The place of this process while its ranks connect, or null.
  const ProcessRankOptions* connecting = nullptr;
  bool is_connected = false;
  // True while this process looks for a leader, so that the island may have
  // none.
  bool is_looking = false;
  const auto set_looking = [&](bool looking) {
    absl::MutexLock lock(&mu);
    is_looking = looking;
  };
  const auto set_state = [&](const ProcessRankOptions* ranks, bool connected) {
    absl::MutexLock lock(&mu);
    connecting = ranks;
    is_connected = connected;
  };
  Terminator terminator(
      [&](const std::string& reason) {
        absl::MutexLock lock(&mu);
        // Rank 0 needs connected ranks until the island has left the run.
        if (is_connected) return;
        if (connecting != nullptr) {
          ReportDeadRank(connecting->rank * connecting->threads,
                         absl::StrCat("its process was ended by ", reason),
                         connecting->rendezvous);
        }
        // This host may have the island's only checkpoint.
        RankStampPage* const stamps = OpenedRankStamps();
        if (is_looking && stamps != nullptr) stamps->keeps_checkpoint() = true;
        _exit(absl::GetFlag(FLAGS_interrupted_exit_code));
      },
      [] { _exit(0); }, [] {});
  ASSIGN_OR_RETURN(const Succession succession, IslandSuccession());
  RendezvousOptions options = succession.rendezvous;
  std::string last;
  std::optional<AccessKeeper> access;
  while (true) {
    if (HasSuccessors()) {
      set_looking(true);
      const absl::StatusOr<std::optional<std::string>> leader =
          FindLeader(succession, last, failed, kAwaitProcess);
      set_looking(false);
      if (!leader.ok()) return WithoutLeader(leader.status());
      if (!leader->has_value()) return FollowEnd::kLeads;
      options.address = last = **leader;
      // Token and certificate might expire before this process leads.
      if (!access.has_value() &&
          PlaceInSuccession(succession.leaders, succession.process) >= 0) {
        access.emplace(WallClock(), random_seed());
      }
    }
    const absl::StatusOr<std::optional<CrewPlace>> given =
        AwaitPlace(options, succession.process, local.count, random_seed(),
                   HasSuccessors() ? kAwaitLeader : kAwaitProcess);
    if (HasSuccessors() && IsUnanswered(given.status())) continue;
    if (absl::IsAborted(given.status())) return EndedForGood(given.status());
    if (!given.ok()) return WithoutLeader(given.status());
    const std::optional<CrewPlace>& place = *given;
    // The island did not need this process.
    if (!place.has_value()) return FollowEnd::kIslandEnded;
    ProcessRankOptions ranks =
        RankOptions(local, place->rank, place->size, place->table.get());
    PlaceHolder holder(*place);
    ranks.connected = [&] {
      set_state(nullptr, true);
      holder.Connected();
    };
    set_state(&ranks, false);
    StampOwnRanks(ranks.rank * ranks.threads, ranks.threads);
    ShareVerdict(place->rank, place->table.get());
    const absl::Status ended = RunFollowingRank(TrainerOptions(local), ranks);
    set_state(nullptr, true);
    if (!ended.ok() && !IsFoundByAudit(ended)) {
      if (!IsWithoutRank0(ended)) SayDone(*place);
      return ended;
    }
    // Even if rank 0 fails, it ends the others in order. It then reports its
    // failure, perhaps only after it has removed a checkpoint whose write it
    // had to await; without a failure its server just ends. Rank 0 needs no
    // ranks now, so a signal may end this process.
    set_state(nullptr, false);
    const absl::StatusOr<std::optional<std::string>> why =
        WhyEnded(*place, kAwaitProcess);
    if (absl::IsAborted(why.status())) return EndedForGood(why.status());
    RETURN_IF_ERROR(ended);
    if (!why.ok()) return FollowEnd::kIslandEnded;
    if (why->has_value()) {
      return absl::AbortedError(absl::StrCat("rank 0 has failed: ", **why));
    }
    StampOwnRanks(0, 0);
    // The island continues without a process that was told to end.
    if (IsInterrupted()) return FollowEnd::kIslandEnded;
  }
}

}  // namespace causeway
