// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides which islands a round expects, for which it still waits, and whether
// it may close.
//
// An island that becomes ready while others train is expected from the next
// rounds on (Member::first_contribution_version), or at once if a round cannot
// close without it.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_EXPECTATIONS_H_
#define SERVER_RULES_EXPECTATIONS_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "outer_optimizer/sync_schedule.h"
#include "proto/run_config.pb.h"
#include "proto/status.pb.h"
#include "server/rules/membership.h"
#include "server/rules/round.h"

namespace causeway {

class Expectations {
 public:
  // All arguments must outlive this object.
  Expectations(const v1::MembershipConfig* config, const SyncSchedule* schedule,
               Membership* membership)
      : config_(config), schedule_(schedule), membership_(membership) {}

  // Notes that an island can train; the fragments are at `versions`. If others
  // already train, it is expected from the next rounds on.
  void Add(Member& member, const std::vector<uint64_t>& versions,
           bool run_has_started);
  // Returns the live expected islands that have not contributed to the round.
  std::vector<std::string> Awaited(const Round& round);
  // Returns the number of contributions that the round has or can still get.
  size_t Reachable(const Round& round);
  // Returns the expected islands that have not offered anything since the round
  // began.
  std::set<std::string> Silent(const Round& round);
  // Expects every ready island in an open round if the expected ones cannot
  // reach the quorum, or hold the round up. Returns whether this changes
  // anything.
  bool Refresh(Round& round, absl::Time now);
  // Returns whether the round may close now. `outer_step` is how long its outer
  // step will take.
  bool MayClose(Round& round, absl::Duration outer_step, absl::Time now);
  // Returns the participation in a round that closes. Several incarnations of
  // an island count once, and an island that has left still counts if it had
  // begun to hand in.
  v1::Participation ParticipationIn(const Round& round);

 private:
  static bool IsExpected(const Member& member, const Round& round) {
    return member.first_contribution_version[round.fragment()] <=
           round.base_version();
  }
  // Returns whether the island is expected and has not contributed.
  static bool IsMissing(const Member& member, const Round& round) {
    return IsExpected(member, round) &&
           !round.HasOrStandsFor(member.island_id, member.incarnation);
  }
  // Returns whether the island can train and is not expected.
  static bool IsSpare(const Member& member, const Round& round) {
    return member.IsReady() && !IsExpected(member, round);
  }
  // Returns whether islands that are not expected could have completed the
  // quorum for longer than the longest grace window.
  bool IsHeldUp(Round& round, absl::Time now);
  // Sets how long the round waits for the awaited islands.
  void SetGrace(Round& round, absl::Duration outer_step);

  const v1::MembershipConfig* const config_;
  const SyncSchedule* const schedule_;
  Membership* const membership_;
};

}  // namespace causeway

#endif  // SERVER_RULES_EXPECTATIONS_H_
