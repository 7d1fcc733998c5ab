// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/follow.h"

#include <unistd.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
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

// A process whose leader's table is gone looks this long for another one.
constexpr absl::Duration kAnotherTable = absl::Seconds(1);

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

class FollowingProcess {
 public:
  FollowingProcess(LocalRanks local, Succession succession,
                   const std::function<uint64_t()>& random_seed, bool failed)
      : local_(std::move(local)),
        succession_(std::move(succession)),
        random_seed_(random_seed),
        failed_(failed),
        leader_(succession_.rendezvous) {}

  absl::StatusOr<FollowEnd> Run();

 private:
  // Ends the process at a signal, unless rank 0 still needs its ranks.
  void EndAtSignal(const std::string& reason);
  void SetLooking(bool looking);
  void SetRanks(const ProcessRankOptions* connecting, bool connected);

  // Looks for the leader, and lets `leader_` be its rendezvous. Returns false
  // if this process must lead.
  absl::StatusOr<bool> LookForLeader();
  // Runs the ranks of this process until the crew ends. Returns nothing if the
  // process needs another place.
  absl::StatusOr<std::optional<FollowEnd>> RunRanks(const CrewPlace& place);

  const LocalRanks local_;
  const Succession succession_;
  const std::function<uint64_t()>& random_seed_;
  const bool failed_;
  RendezvousOptions leader_;
  // The last leader's address.
  std::string last_;

  absl::Mutex mu_;
  // The place of this process while its ranks connect, or null.
  const ProcessRankOptions* connecting_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool is_connected_ ABSL_GUARDED_BY(mu_) = false;
  // True while this process looks for a leader, so that the island may have
  // none.
  bool is_looking_ ABSL_GUARDED_BY(mu_) = false;
  Terminator terminator_{
      [this](const std::string& reason) { EndAtSignal(reason); },
      [] { _exit(0); }, [] {}};

  // None before a leader was found, or if this process may never lead.
  std::optional<AccessKeeper> access_;
};

void FollowingProcess::EndAtSignal(const std::string& reason) {
  absl::MutexLock lock(&mu_);
  // Rank 0 needs connected ranks until the island has left the run.
  if (is_connected_) return;
  if (connecting_ != nullptr) {
    ReportDeadRank(connecting_->rank * connecting_->threads,
                   absl::StrCat("its process was ended by ", reason),
                   connecting_->rendezvous);
  }
  // This host may have the island's only checkpoint.
  RankStampPage* const stamps = OpenedRankStamps();
  if (is_looking_ && stamps != nullptr) stamps->keeps_checkpoint() = true;
  _exit(absl::GetFlag(FLAGS_interrupted_exit_code));
}

void FollowingProcess::SetLooking(bool looking) {
  absl::MutexLock lock(&mu_);
  is_looking_ = looking;
}

void FollowingProcess::SetRanks(const ProcessRankOptions* connecting,
                                bool connected) {
  absl::MutexLock lock(&mu_);
  connecting_ = connecting;
  is_connected_ = connected;
}

absl::StatusOr<bool> FollowingProcess::LookForLeader() {
  SetLooking(true);
  const absl::StatusOr<std::optional<std::string>> leader =
      FindLeader(succession_, last_, failed_, kAwaitProcess);
  SetLooking(false);
  if (!leader.ok()) return WithoutLeader(leader.status());
  if (!leader->has_value()) return false;
  leader_.address = last_ = **leader;
  // Token and certificate might expire before this process leads.
  if (!access_.has_value() &&
      PlaceInSuccession(succession_.leaders, succession_.process) >= 0) {
    access_.emplace(WallClock(), random_seed_());
  }
  return true;
}

absl::StatusOr<FollowEnd> FollowingProcess::Run() {
  while (true) {
    if (HasSuccessors()) {
      ASSIGN_OR_RETURN(const bool is_led, LookForLeader());
      if (!is_led) return FollowEnd::kLeads;
    }
    const absl::StatusOr<std::optional<CrewPlace>> place =
        AwaitPlace(leader_, succession_.process, local_.count, random_seed_(),
                   HasSuccessors() ? kAwaitLeader : kAwaitProcess);
    if (HasSuccessors() && IsUnanswered(place.status())) continue;
    if (absl::IsAborted(place.status())) return EndedForGood(place.status());
    if (!place.ok()) return WithoutLeader(place.status());
    // The island did not need this process.
    if (!place->has_value()) return FollowEnd::kIslandEnded;
    ASSIGN_OR_RETURN(const std::optional<FollowEnd> end, RunRanks(**place));
    if (end.has_value()) return *end;
  }
}

absl::StatusOr<std::optional<FollowEnd>> FollowingProcess::RunRanks(
    const CrewPlace& place) {
  ProcessRankOptions ranks =
      RankOptions(local_, place.rank, place.size, place.table.get());
  PlaceHolder holder(place);
  ranks.connected = [&] {
    SetRanks(nullptr, true);
    holder.Connected();
  };
  SetRanks(&ranks, false);
  StampOwnRanks(ranks.rank * ranks.threads, ranks.threads);
  ShareVerdict(place.rank, place.table.get());
  const absl::Status ended = RunFollowingRank(TrainerOptions(local_), ranks);
  SetRanks(nullptr, true);
  if (!ended.ok() && !IsFoundByAudit(ended)) {
    if (!IsWithoutRank0(ended)) SayDone(place);
    return ended;
  }
  // Even if rank 0 fails, it ends the others in order. It then reports its
  // failure, perhaps only after it has removed a checkpoint whose write it
  // had to await; without a failure its server just ends. Rank 0 needs no
  // ranks now, so a signal may end this process.
  SetRanks(nullptr, false);
  const absl::StatusOr<std::optional<std::string>> why =
      WhyEnded(place, kAwaitProcess);
  if (absl::IsAborted(why.status())) return EndedForGood(why.status());
  RETURN_IF_ERROR(ended);
  // A leader that has started again has another table at the same address.
  if (!why.ok() && !ConnectRendezvous(leader_, kAnotherTable).ok()) {
    return FollowEnd::kIslandEnded;
  }
  if (why.ok() && why->has_value()) {
    return absl::AbortedError(absl::StrCat("rank 0 has failed: ", **why));
  }
  StampOwnRanks(0, 0);
  // The island continues without a process that was told to end.
  if (IsInterrupted()) return FollowEnd::kIslandEnded;
  return std::nullopt;
}

}  // namespace

absl::StatusOr<FollowEnd> FollowLeader(
    const std::function<uint64_t()>& random_seed, bool failed) {
  ASSIGN_OR_RETURN(LocalRanks local, FindLocalRanks());
  ASSIGN_OR_RETURN(Succession succession, IslandSuccession());
  return FollowingProcess(std::move(local), std::move(succession), random_seed,
                          failed)
      .Run();
}

}  // namespace causeway
