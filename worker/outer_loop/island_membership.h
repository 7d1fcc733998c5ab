// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Keeps an island a member of a run: joins, and tries again while that may
// help; sends heartbeats; holds the newest state that the coordinator
// published; reconnects when the stream breaks; and joins again, as a new
// incarnation, when it was fenced off.
//
//   JOINING --joined--> CONNECTING --opened--> CONNECTED
//      ^                    ^                     |
//      |                    +--stream ended-------+
//      +------------stream ended: ABORTED---------+
//
// If a follower has taken the run over, epochs distinguish the old coordinator
// from the new one: the island ignores a coordinator whose epoch is lower than
// the highest that it knows, and tries again until it finds the new one.
//
// Pure rules: no thread, socket or clock. Not thread-safe.
#ifndef WORKER_OUTER_LOOP_ISLAND_MEMBERSHIP_H_
#define WORKER_OUTER_LOOP_ISLAND_MEMBERSHIP_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/backoff.h"
#include "proto/coordinator.pb.h"
#include "worker/outer_loop/actions.h"

namespace causeway {

class IslandMembership {
 public:
  // `join` names the island and its process; `seed` seeds the jitter of the
  // back-off.
  IslandMembership(v1::JoinRequest join, uint64_t seed);

  // Returns the session's next action.
  SessionAction Next(absl::Time now) const;

  // --- Events of the session. ---

  // An answer from a replaced coordinator counts as UNAVAILABLE.
  void JoinAnswered(const absl::StatusOr<v1::JoinResponse>& response,
                    absl::Time now);
  void StreamOpened(absl::Time now);
  void HeartbeatSent(const action::Heartbeat& heartbeat, absl::Time now);
  // A view from a replaced coordinator is ignored, and ends the stream.
  void ViewArrived(v1::SessionResponse view, absl::Time now);
  // Notes that the stream has failed in one direction or both.
  void StreamBroke();
  // Notes that the stream was closed with this status.
  void StreamEnded(const absl::Status& status, absl::Time now);

  // --- Events from outside. ---

  // Notes that the island can train. The next heartbeat, which is due at once,
  // says so.
  void BeReady();
  // Asks the island to hand in its training and to leave.
  void RequestLeave(absl::string_view reason);
  // Ends everything at once.
  void RequestStop() { stopping_ = true; }

  // --- Views. ---

  // The answer to the first Join, but with `membership` of the newest one's
  // configuration; none before it.
  const std::optional<v1::JoinResponse>& joined() const { return joined_; }
  // The island's identity, with its current incarnation and the highest epoch
  // that it knows.
  const v1::IslandIdentity& identity() const { return identity_; }
  // The newest state that the coordinator published.
  const v1::SessionResponse& state() const { return state_; }
  // The newest committed version of a fragment; 0 if the state lacks it.
  uint64_t newest_version(uint32_t fragment) const {
    const int index = static_cast<int>(fragment);
    return index < state_.heads_size() ? state_.heads(index).version() : 0;
  }
  // The number of streams that have brought a view. The coordinator may have
  // forgotten what it was told on earlier ones.
  uint64_t connection() const { return connection_; }
  // Returns whether the island can train: it has parameters and a trainer.
  bool ready() const { return ready_; }
  // The error of the last join; OK after success, or before the first.
  const absl::Status& join_error() const { return join_error_; }
  // Returns whether the stream is open and has brought a view.
  bool connected() const { return connected_; }
  // OK, or why the island can no longer be part of the run.
  const absl::Status& failure() const { return failure_; }
  bool stopping() const { return stopping_; }
  // Return whether the island was asked to leave, here or by an operator, and
  // why.
  bool must_leave() const { return leaving_ || state_.drain(); }
  std::string leave_reason() const {
    return leaving_ ? leave_reason_ : "drained";
  }

 private:
  enum class Phase { kJoining, kConnecting, kStream, kFailed };

  void Fail(const absl::Status& status);
  // Returns whether a coordinator of this epoch was replaced. A coordinator
  // without epochs sends 0.
  bool IsReplaced(uint64_t epoch) const {
    return epoch != 0 && epoch < identity_.epoch();
  }

  const v1::JoinRequest join_;
  Backoff join_backoff_;
  Backoff stream_backoff_;
  Phase phase_ = Phase::kJoining;
  // The time of the next try to join or to connect.
  absl::Time not_before_ = absl::InfinitePast();

  std::optional<v1::JoinResponse> joined_;
  v1::IslandIdentity identity_;
  v1::SessionResponse state_;
  uint64_t connection_ = 0;
  bool connected_ = false;
  bool ready_ = false;
  absl::Status join_error_;
  // For the open stream: whether it is broken, whether its coordinator was
  // replaced, when the next heartbeat is due, and when the last view came.
  bool broken_ = false;
  bool replaced_ = false;
  absl::Time next_heartbeat_ = absl::InfinitePast();
  absl::Time heard_ = absl::InfinitePast();

  absl::Status failure_;
  bool stopping_ = false;
  bool leaving_ = false;
  std::string leave_reason_;
};

}  // namespace causeway

#endif  // WORKER_OUTER_LOOP_ISLAND_MEMBERSHIP_H_
