// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/outer_loop/island_membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/outer_loop/retry.h"

namespace causeway {
namespace {

// The run does without an island that has no control stream.
constexpr absl::Duration kLongestStreamPause = absl::Seconds(1);

absl::Status Replaced(uint64_t epoch, uint64_t highest) {
  return absl::UnavailableError(
      absl::StrCat("the coordinator that answers, of epoch ", epoch,
                   ", was replaced by one of epoch ", highest));
}

}  // namespace

IslandMembership::IslandMembership(v1::JoinRequest join, uint64_t seed)
    : join_(std::move(join)),
      join_backoff_({}, seed),
      stream_backoff_({.longest = kLongestStreamPause}, seed + 1) {}

SessionAction IslandMembership::Next(absl::Time now) const {
  if (phase_ == Phase::kStream) {
    // Every heartbeat is answered by a view, so a stream that is silent for
    // half of a lease is dead. In the other half a new stream can save the
    // membership.
    const v1::MembershipConfig& config = joined_->config().membership();
    const absl::Time silent_at =
        heard_ + absl::Seconds(config.lease_seconds()) / 2;
    if (broken_) return action::CloseStream{};
    if (stopping_ || replaced_ || now >= silent_at) {
      return action::CloseStream{.cancel = true,
                                 .is_silent = !stopping_ && !replaced_};
    }
    if (now >= next_heartbeat_) {
      return action::Heartbeat{.identity = identity_, .ready = ready_};
    }
    return action::Wait{.until = std::min(next_heartbeat_, silent_at)};
  }
  if (stopping_ || phase_ == Phase::kFailed) return action::End{};
  if (now < not_before_) return action::Wait{.until = not_before_};
  if (phase_ == Phase::kConnecting) return action::OpenStream{};
  action::Join join{.request = join_};
  // The island may come back only to the run that it was part of.
  join.request.set_expected_run_id(identity_.run_id());
  join.request.set_epoch(identity_.epoch());
  return join;
}

void IslandMembership::JoinAnswered(
    const absl::StatusOr<v1::JoinResponse>& response, absl::Time now) {
  join_error_ = response.status();
  if (response.ok() && IsReplaced(response->identity().epoch())) {
    join_error_ = Replaced(response->identity().epoch(), identity_.epoch());
  }
  if (!join_error_.ok()) {
    // An island that is started again after the run has nothing to do.
    if (SaysRunIsFinished(join_error_)) {
      return Fail(absl::CancelledError(join_error_.message()));
    }
    if (!IsRetryable(join_error_)) return Fail(join_error_);
    not_before_ = now + join_backoff_.Next();
    return;
  }
  join_backoff_.Reset();
  if (!joined_.has_value()) joined_ = *response;
  // A coordinator that was started since may have another lease.
  *joined_->mutable_config()->mutable_membership() =
      response->config().membership();
  const uint64_t epoch =
      std::max(identity_.epoch(), response->identity().epoch());
  identity_ = response->identity();
  identity_.set_epoch(epoch);
  *state_.mutable_heads() = response->heads();
  *state_.mutable_first_contribution_version() =
      response->first_contribution_version();
  state_.set_run_state(response->run_state());
  state_.set_run_step(response->run_step());
  phase_ = Phase::kConnecting;
  not_before_ = now;
}

void IslandMembership::StreamOpened(absl::Time now) {
  phase_ = Phase::kStream;
  broken_ = false;
  replaced_ = false;
  next_heartbeat_ = now;
  heard_ = now;
}

void IslandMembership::HeartbeatSent(const action::Heartbeat& heartbeat,
                                     absl::Time now) {
  next_heartbeat_ = now;
  if (heartbeat.ready != ready_) return;
  next_heartbeat_ +=
      absl::Seconds(joined_->config().membership().heartbeat_seconds());
}

void IslandMembership::ViewArrived(v1::SessionResponse view, absl::Time now) {
  if (IsReplaced(view.epoch())) {
    replaced_ = true;
    return;
  }
  identity_.set_epoch(std::max(identity_.epoch(), view.epoch()));
  state_ = std::move(view);
  heard_ = now;
  if (connected_) return;
  connected_ = true;
  ++connection_;
  stream_backoff_.Reset();
}

void IslandMembership::StreamBroke() {
  broken_ = true;
  connected_ = false;
}

void IslandMembership::StreamEnded(const absl::Status& status, absl::Time now) {
  connected_ = false;
  if (absl::IsAborted(status)) {
    phase_ = Phase::kJoining;
    not_before_ = now;
  } else if (status.ok() || IsRetryable(status)) {
    phase_ = Phase::kConnecting;
    not_before_ = now + stream_backoff_.Next();
  } else {
    Fail(status);
  }
}

void IslandMembership::BeReady() {
  ready_ = true;
  next_heartbeat_ = absl::InfinitePast();
}

void IslandMembership::RequestLeave(absl::string_view reason) {
  leaving_ = true;
  leave_reason_ = std::string(reason);
}

void IslandMembership::Fail(const absl::Status& status) {
  phase_ = Phase::kFailed;
  failure_ = status;
}

}  // namespace causeway
