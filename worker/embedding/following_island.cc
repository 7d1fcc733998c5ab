// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/embedding/following_island.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/collective/rank_stamps.h"
#include "worker/collective/time_limit.h"
#include "worker/collective/verdicts.h"
#include "worker/embedding/rank_connection.h"

namespace causeway {
namespace {

// A rank checks at least this many times within the time that it may be behind.
constexpr int kLooks = 20;

}  // namespace

absl::StatusOr<std::unique_ptr<EmbeddedIsland>> FollowingIsland::Open(
    const EmbeddedIslandOptions& options) {
  absl::StatusOr<std::unique_ptr<Rendezvous>> rendezvous =
      FindRendezvous(options);
  if (!rendezvous.ok()) return FinalError(rendezvous.status());
  ShareVerdict(options.rank, rendezvous->get());
  return absl::WrapUnique(new FollowingIsland(options, *std::move(rendezvous)));
}

FollowingIsland::~FollowingIsland() {
  {
    absl::MutexLock lock(&mu_);
    const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return end_.has_value();
    };
    // Rank 0 may still read the replica.
    if (is_over()) {
      TimeLimit limit = Limit();
      AwaitWithin(limit, absl::Condition(&ended), mu_);
    }
    End(absl::CancelledError(
        "the training program has closed its part of the island"));
  }
  if (thread_.joinable()) thread_.join();
}

void FollowingIsland::End(const absl::Status& status) {
  if (!end_.has_value()) end_ = status;
  if (std::exchange(closing_, true)) return;
  if (!tensors_.has_value()) {
    TellRanks(Milestone::kAttached, options_.rank, status, rendezvous_.get());
  } else if (rank_ != nullptr) {
    rank_->Fail(status);
  }
}

void FollowingIsland::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  End(status);
}

absl::Status FollowingIsland::Failure() {
  absl::MutexLock lock(&mu_);
  if (!end_.has_value() || is_over()) return absl::OkStatus();
  return absl::IsCancelled(*end_) ? absl::OkStatus() : *end_;
}

absl::Status FollowingIsland::AwaitRun(absl::Duration timeout) {
  if (has_run()) return absl::OkStatus();
  absl::StatusOr<v1::JoinResponse> run =
      AwaitSharedRun(rendezvous_.get(), timeout, options_.encrypt);
  if (absl::IsDeadlineExceeded(run.status())) return run.status();
  if (!run.ok()) return FinalError(run.status());
  return SetRun(*std::move(run));
}

absl::Status FollowingIsland::Attach(const std::vector<TensorBuffer>& buffers) {
  ASSIGN_OR_RETURN(tensors_,
                   LocalTensors::Create(layout(), buffers, /*whole=*/false));
  TellRanks(Milestone::kAttached, options_.rank, absl::OkStatus(),
            rendezvous_.get());
  thread_ = std::thread([this] {
    const absl::Status status = Follow();
    absl::MutexLock lock(&mu_);
    if (!end_.has_value()) end_ = FinalError(status);
  });
  return absl::OkStatus();
}

absl::Status FollowingIsland::Follow() {
  RETURN_IF_ERROR(AwaitBegin(
      options_,
      [this] {
        absl::MutexLock lock(&mu_);
        return closing_;
      },
      rendezvous_.get()));
  ASSIGN_OR_RETURN(RankCommunicators communicators,
                   ConnectRanks(options_, rendezvous_.get()));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<EmbeddedRank> rank,
      EmbeddedRank::Create(layout(), &*tensors_, std::move(communicators),
                           Pulse(options_)));
  {
    absl::MutexLock lock(&mu_);
    if (closing_) return absl::CancelledError("closed");
    rank_ = rank.get();
  }
  const absl::Status status =
      rank->Follow([this](uint64_t step) { return Train(step); },
                   [this] { return AwaitTensors(); }, [this] { Saved(); });
  absl::MutexLock lock(&mu_);
  rank_ = nullptr;
  return status;
}

absl::Status FollowingIsland::Train(uint64_t step) {
  {
    absl::MutexLock lock(&mu_);
    ordered_ = step_ = step;
  }
  return AwaitTensors();
}

void FollowingIsland::Saved() {
  absl::MutexLock lock(&mu_);
  in_save_ = false;
}

absl::Status FollowingIsland::AwaitTensors() {
  absl::MutexLock lock(&mu_);
  if (is_over()) return absl::OkStatus();
  const auto free = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return closing_ || in_save_ || (!ordered_.has_value() && !in_step_);
  };
  // A step may take any time while rank 0 is in the same step.
  std::optional<TimeLimit> behind;
  const absl::Duration look =
      std::min(options_.rank_timeout / kLooks, TimeLimit::kSlice);
  while (!mu_.AwaitWithTimeout(absl::Condition(&free), look)) {
    if (rank_ == nullptr || !rank_->is_behind()) continue;
    if (!behind.has_value()) behind = Limit();
    if (!behind->IsOver()) continue;
    return absl::DeadlineExceededError(absl::StrCat(
        "its training loop ",
        ordered_.has_value() ? "has not begun step " : "hangs in step ", step_,
        ", which rank 0 ended ", absl::FormatDuration(options_.rank_timeout),
        " ago"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<uint64_t>> FollowingIsland::NextStep(
    absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  const auto told = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return ordered_.has_value() || end_.has_value();
  };
  if (!mu_.AwaitWithTimeout(absl::Condition(&told), timeout)) {
    return std::nullopt;
  }
  if (!ordered_.has_value() || closing_) {
    return end_->ok() ? absl::CancelledError("rank 0 has ended") : *end_;
  }
  const uint64_t step = *ordered_;
  // The last answer stays.
  if (step == EmbeddedRank::kFinished) return step;
  if (step == EmbeddedRank::kLeft) {
    return absl::CancelledError("the island has left the run");
  }
  ordered_.reset();
  in_step_ = true;
  return step;
}

void FollowingIsland::Stepped(const InnerStepResult& /*result*/) {
  absl::MutexLock lock(&mu_);
  in_step_ = false;
  StampStep(options_.rank, step_);
}

void FollowingIsland::SettleFirst() {
  // The step is not trained. Only rank 0 waits for updates.
  absl::MutexLock lock(&mu_);
  in_step_ = false;
}

absl::Status FollowingIsland::Save(const std::string& /*directory*/) {
  absl::MutexLock lock(&mu_);
  in_save_ = true;
  const auto saved = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !in_save_ || end_.has_value();
  };
  TimeLimit limit = Limit();
  AwaitWithin(limit, absl::Condition(&saved), mu_);
  if (!in_save_) return absl::OkStatus();
  in_save_ = false;
  if (end_.has_value() && !end_->ok()) return *end_;
  return absl::InvalidArgumentError(
      "rank 0 saves no state: all ranks must save between the same steps");
}

absl::Status FollowingIsland::OnlyRank0() const {
  return absl::InvalidArgumentError("only rank 0 of the island knows this");
}

}  // namespace causeway
