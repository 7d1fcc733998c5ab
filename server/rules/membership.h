// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The members of a run: islands, their incarnations and leases.
//
// An island is LIVE from Join until it leaves or its lease ends. Each time a
// name comes back it gets a higher incarnation, and calls of older incarnations
// are refused. A live island becomes ready once, with the report that says so:
//
//           Join                 Leave
//   (none) ------> LIVE(n) -------------------> LEFT(n)
//                     |  no heartbeat for lease     |
//                     +---------> EVICTED(n)        | Join
//                     | contribution  | Join        |
//                     | quarantined   +----> LIVE(n+1) <+
//                     +---------> DIVERGED(n) ----------+
//                                        Join by another process that begins
//                                        with the run's parameters
//
// After a divergence, no process continues from a checkpoint of one that joined
// before.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_MEMBERSHIP_H_
#define SERVER_RULES_MEMBERSHIP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "proto/status.pb.h"
#include "server/rules/island_pace.h"
#include "server/rules/uplink_bits.h"

namespace causeway {

// Begins the reason of an eviction that an operator asked for.
inline constexpr char kByOperator[] = "by an operator";

// Begins the reason of an island that an error has ended. It comes from the
// island (LeaveRequest.reason).
inline constexpr char kFailed[] = "failed: ";

struct Member {
  static constexpr uint64_t kNotExpected = UINT64_MAX;

  // Returns whether the island has reported that it can train. Until then, no
  // round waits for it.
  bool IsReady() const {
    return !first_contribution_version.empty() &&
           first_contribution_version.front() != kNotExpected;
  }

  std::string island_id;
  uint64_t incarnation = 0;
  // Identifies the island's process, so that a retried Join is recognized.
  uint64_t instance_id = 0;
  // The processes (instance_id) that have joined since the island's last
  // divergence, without the first ones of many; empty if there was none.
  std::vector<uint64_t> joined_since_divergence;
  v1::IslandStatus::State state = v1::IslandStatus::LIVE;
  std::string description;
  absl::Time joined_at = absl::InfinitePast();
  absl::Time ended_at = absl::InfiniteFuture();
  // Says why it left or was evicted.
  std::string reason;
  // True if it was asked to leave.
  bool draining = false;
  absl::Time last_heartbeat = absl::InfinitePast();
  // The last other process that asked for the name, and the time of its first
  // request, which moves with extensions of the lease.
  uint64_t rival = 0;
  absl::Time rival_at = absl::InfinitePast();
  // The island reads data shard place % shards, in order place / shards
  // (JoinResponse.data_order). Live islands have different places.
  uint32_t place = 0;
  // For each fragment, the first base version that the island is expected to
  // contribute to; kNotExpected before it is ready.
  std::vector<uint64_t> first_contribution_version;
  // For each fragment, the newest version that a call of the island has waited
  // for; empty before the first.
  std::vector<uint64_t> awaited_version;
  v1::IslandProgress progress;
  // True if `progress` is a report of this incarnation to this process.
  bool has_reported = false;
  // Follows from the reports of this incarnation to this process.
  IslandPace pace;
  // Absent unless the run has synchronization.uplink_bits_floor.
  std::optional<UplinkBits> uplink_bits;
  // The time of the last report of a new speed.
  absl::Time paced_at = absl::InfinitePast();
  // For how long it has trained behind the others, without catching up.
  absl::Duration slow_for;
  // The number of joins that the island has left at `joins_at`.
  double joins_left = 0;
  absl::Time joins_at = absl::InfinitePast();
  uint64_t contributions_merged = 0;
  uint64_t tokens_merged = 0;
};

// Returns whether an island that left was ended by an error.
bool HasFailed(v1::IslandStatus::State state, absl::string_view reason);

// Returns whether an island is missed: its lease ended, it failed or it
// diverged, it has not come back, and no operator has evicted it.
bool IsMissed(v1::IslandStatus::State state, absl::string_view reason);

class Membership {
 public:
  struct Options {
    std::string run_id;
    uint32_t max_islands = 64;
    uint32_t shards = 1;
    absl::Duration lease = absl::Seconds(10);
  };

  // An island may join this many times at once, and once more after each pause.
  // This bounds the joins, which are kept for ever.
  static constexpr double kMostJoins = 128;
  static constexpr absl::Duration kJoinPause = absl::Seconds(10);

  // The most ended islands that are remembered. The one that ended first is
  // forgotten first, but diverged ones only after all others.
  static constexpr size_t kMostDeparted = 512;

  explicit Membership(Options options) : options_(std::move(options)) {}
  Membership(Membership&&) = default;

  // Restores a member from storage. A live one gets a fresh lease from `now`.
  void Restore(Member member, absl::Time now);

  struct JoinResult {
    Member* member;
    // False if this was a retry of an earlier Join.
    bool is_new;
  };
  // Errors as Coordinator.Join in coordinator.proto. A request for the name of
  // a live member, which may be dead, gets RESOURCE_EXHAUSTED and should be
  // repeated until the lease ends. It gets ALREADY_EXISTS if the member is
  // heard of more than half a lease after the first such request.
  absl::StatusOr<JoinResult> Join(const v1::JoinRequest& request,
                                  absl::Time now);

  // Returns the live member whose process is dead according to `request`, or
  // null. End it before the join.
  Member* Replaced(const v1::JoinRequest& request);

  // Returns the live member that `identity` names, or why it may not act
  // (FAILED_PRECONDITION: another run; ABORTED: another incarnation;
  // OUT_OF_RANGE: it has diverged).
  absl::StatusOr<Member*> Check(const v1::IslandIdentity& identity);

  // Returns the member that `identity` names, even if it has ended; null if it
  // is not the island's newest incarnation.
  Member* FindNewest(const v1::IslandIdentity& identity);

  // Returns the live member of that name, or NOT_FOUND.
  absl::StatusOr<Member*> FindLive(const std::string& island_id);

  // Returns the member of that name if it is missed; null otherwise.
  Member* FindMissed(const std::string& island_id);

  // Ends a membership. The member stays known, without its ranks' reports.
  // Another ended member may be forgotten; its name still gets higher
  // incarnations.
  void End(Member& member, v1::IslandStatus::State state,
           absl::string_view reason, absl::Time now);

  // Extends all leases by a time in which no member could be heard, at most to
  // full leases from `now`.
  void ExtendLeases(absl::Duration deaf, absl::Time now);
  // Returns the live members whose lease has ended by `now`, ordered by name.
  std::vector<Member*> Expired(absl::Time now);

  // Returns the live members, ordered by name.
  const std::vector<Member*>& Live() { return live_; }
  uint32_t live_count() const { return static_cast<uint32_t>(live_.size()); }
  // Returns the number of live members that are ready.
  uint32_t ready_count() const;
  // Returns the sum of the speeds that live members reported last.
  double TokensPerSecond() const;
  // The newest incarnation of every known island, by name.
  const std::map<std::string, Member>& members() const { return members_; }

 private:
  // Forgets ended islands beyond kMostDeparted, except `kept`, which may be
  // null.
  void ForgetOldest(const Member* kept);
  // Fills live_ after a change.
  void ListLive();
  uint32_t PickPlace(const std::string& island_id) const;

  const Options options_;
  std::map<std::string, Member> members_;
  // The live ones among them.
  std::vector<Member*> live_;
  // The highest incarnation of a forgotten island. Unknown names begin above
  // it.
  uint64_t forgotten_incarnation_ = 0;
};

}  // namespace causeway

#endif  // SERVER_RULES_MEMBERSHIP_H_
