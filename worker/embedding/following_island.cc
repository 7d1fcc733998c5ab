// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/embedding/following_island.h"

#include "absl/memory/memory.h"
#include "common/status_macros.h"
#include "worker/embedding/rank_connection.h"

namespace causeway {

absl::StatusOr<std::unique_ptr<EmbeddedIsland>> FollowingIsland::Open(
    const EmbeddedIslandOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Rendezvous> rendezvous,
                   FindRendezvous(options));
  return absl::WrapUnique(new FollowingIsland(options, std::move(rendezvous)));
}

FollowingIsland::~FollowingIsland() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mu_);
    closing_ = true;
    const bool is_over =
        ordered_ == EmbeddedRank::kFinished || ordered_ == EmbeddedRank::kLeft;
    const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return end_.has_value();
    };
    // Rank 0 may still read the replica.
    if (is_over) {
      mu_.AwaitWithTimeout(absl::Condition(&ended), options_.rank_timeout);
    }
    if (rank_ != nullptr) {
      rank_->Fail(absl::CancelledError(
          "the training program has closed its part of the island"));
    }
  }
  thread_.join();
}

absl::Status FollowingIsland::AwaitRun(absl::Duration timeout) {
  if (has_run()) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      v1::JoinResponse run,
      AwaitSharedRun(rendezvous_.get(), timeout, options_.encrypt));
  return SetRun(std::move(run));
}

absl::Status FollowingIsland::Attach(const std::vector<TensorBuffer>& buffers) {
  ASSIGN_OR_RETURN(tensors_,
                   LocalTensors::Create(layout(), buffers, /*whole=*/false));
  thread_ = std::thread([this] {
    const absl::Status status = Follow();
    absl::MutexLock lock(&mu_);
    end_ = status;
  });
  return absl::OkStatus();
}

absl::Status FollowingIsland::Follow() {
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
      rank->Follow([this](uint64_t step) { Train(step); }, [this] { Saved(); });
  absl::MutexLock lock(&mu_);
  rank_ = nullptr;
  return status;
}

void FollowingIsland::Train(uint64_t step) {
  absl::MutexLock lock(&mu_);
  ordered_ = step;
  AwaitTensors();
}

void FollowingIsland::Saved() {
  absl::MutexLock lock(&mu_);
  in_save_ = false;
  AwaitTensors();
}

void FollowingIsland::AwaitTensors() {
  const auto free = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return closing_ || in_save_ || (!ordered_.has_value() && !in_step_);
  };
  mu_.Await(absl::Condition(&free));
}

absl::StatusOr<uint64_t> FollowingIsland::NextStep(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  const auto told = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return ordered_.has_value() || end_.has_value();
  };
  if (!mu_.AwaitWithTimeout(absl::Condition(&told), timeout)) {
    return absl::DeadlineExceededError("rank 0 orders no step yet");
  }
  if (!ordered_.has_value()) {
    return end_->ok() ? absl::CancelledError("rank 0 has ended") : *end_;
  }
  const uint64_t step = *ordered_;
  // The last word stays.
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
}

absl::Status FollowingIsland::Save(const std::string& /*directory*/) {
  absl::MutexLock lock(&mu_);
  in_save_ = true;
  const auto saved = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !in_save_ || end_.has_value();
  };
  mu_.AwaitWithTimeout(absl::Condition(&saved), options_.rank_timeout);
  if (!in_save_) return absl::OkStatus();
  in_save_ = false;
  if (end_.has_value() && !end_->ok()) return *end_;
  return absl::FailedPreconditionError(
      "rank 0 saves no state: all ranks must save between the same steps");
}

absl::Status FollowingIsland::OnlyRank0() const {
  return absl::FailedPreconditionError("only rank 0 of the island knows this");
}

}  // namespace causeway
