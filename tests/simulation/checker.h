// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The invariants of a run, checked while a history goes on. The checker keeps
// its own account of who is a member, what was accepted and what was committed,
// from what goes in and out of the coordinator, and compares:
//
//   1  Every accepted contribution is merged exactly once: contents.h says how
//      that is seen to the step; an answer ACCEPTED binds the round. Every
//      reported token is in one column of the ledger, what it calls merged are
//      the tokens of the commits, and it has no more than were trained.
//   2  A fragment's version only grows, and everybody sees the same digest for
//      one version, which was durable before anybody saw it.
//   3  An incarnation that has ended, or was never given out, can change
//      nothing; no two processes are given the same. An island that is drained
//      is told so until it has left.
//   4  A round closes with its quorum only, and not before everybody who is
//      expected has contributed or the grace window is over; and then it does
//      close. That the quorum is reached is for the history's end to show.
//      Leases end when they have to, and only then; a joiner is not expected in
//      rounds that were open when it came.
//   5  After a restart the coordinator goes on from what was committed.
//   6  Merging a commit's recorded contributions in the order of their keys
//      gives its digest.
#ifndef TESTS_SIMULATION_CHECKER_H_
#define TESTS_SIMULATION_CHECKER_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/rules/coordinator.h"
#include "server/staging.h"
#include "tests/simulation/commit_account.h"
#include "tests/simulation/disk.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/violations.h"
#include "tests/simulation/virtual_time.h"

namespace causeway::simulation {

class Checker {
 public:
  // Both outlive the checker.
  Checker(const Scenario* scenario, World* world);

  // The first violation, or empty.
  const std::string& violation() const { return violations_.first(); }
  // Notes a violation, unless there was one.
  template <typename... Parts>
  void Fail(const Parts&... parts) {
    violations_.Note(parts...);
  }

  // To be told of commits, and of what islands train and hold.
  CommitAccount& commits() { return commits_; }

  // --- What the coordinator's process does; `now` is its clock. ---

  void Restarted(Coordinator& core, const Disk& disk, absl::Time now);
  // Before a call of a member goes into the core.
  void Calls(const v1::IslandIdentity& identity, absl::Time now);
  // After it, with what the core said. OK renews the lease.
  void Called(const v1::IslandIdentity& identity, const absl::Status& status,
              absl::Time now);
  // The same of a call that renews nothing.
  void Checked(const v1::IslandIdentity& identity, const absl::Status& status);
  // After a Join. `state_before` is from before it.
  void Joined(const v1::JoinRequest& request, const v1::JoinResponse& response,
              const Effects& effects, v1::RunState state_before,
              absl::Time now);
  // The core answered an Offer or a Complete.
  void Answered(const v1::ContributionHeader& header,
                const v1::ContributeResponse& response, const Coordinator& core,
                absl::Time now);
  // An operator ends this island's membership, whatever its lease says.
  void Evicted(const std::string& island);
  // Its drain is durable.
  void Drained(const std::string& island);
  // A view is on its way to a member, or to who was one.
  void Shown(const v1::IslandIdentity& identity,
             const v1::SessionResponse& view);
  // An operator put a contribution from the quarantine into the open round.
  void AdmittedToRound(const v1::ContributionHeader& header, absl::Time now);
  // What an event brought about, before it is carried out.
  void Saw(const Effects& effects, const Coordinator& core, absl::Time now);
  void Ticked(const Coordinator& core, absl::Time now);
  void OuterStepEnds(uint32_t fragment, bool committed, absl::Time now);
  // It could not be done with the contribution of the largest norm; `core` and
  // `effects` are what has become of that.
  void SetAside(const OuterStepOrder& order, const Coordinator& core,
                const Effects& effects);
  // After every event.
  void Inspect(const Coordinator& core, const Staging& staging);

  // The process has heard that it is a member.
  void Admitted(uint32_t process, const v1::IslandIdentity& identity);

 private:
  struct KnownMember {
    uint64_t incarnation = 0;
    bool live = false;
    bool draining = false;
    // Between the two lies the time it was last heard of.
    absl::Time heard_surely;
    absl::Time heard_at_most;
  };
  struct OpenRound {
    bool merging = false;
    // By digest.
    std::set<std::string> accepted;
    // (island, incarnation) that were answered ACCEPTED, or that an earlier
    // incarnation's contribution stands for.
    std::set<std::pair<std::string, uint64_t>> credited;
    absl::Time quorum_at = absl::InfiniteFuture();
    // When an outer step failed last.
    absl::Time failed_at = absl::InfinitePast();
  };

  bool MayAct(const v1::IslandIdentity& identity) const;
  // A live island that is expected in the open round and has no contribution
  // in it; empty if there is none.
  std::string Awaited(uint32_t fragment, const Coordinator& core) const;
  // `joined` came in the same event, after the round was closed.
  void CheckOrder(const OuterStepOrder& order, const Coordinator& core,
                  const std::vector<Member>& joined, absl::Time now);

  const Scenario* const scenario_;
  const absl::Duration lease_;
  Violations violations_;
  CommitAccount commits_;
  // Every incarnation that was heard of, and whose it is.
  std::map<std::pair<std::string, uint64_t>, uint32_t> admitted_;
  std::map<std::string, KnownMember> members_;
  // By fragment; forgotten when the coordinator's process ends.
  std::vector<OpenRound> rounds_;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_CHECKER_H_
