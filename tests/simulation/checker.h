// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The invariants of a run, checked during a history. From what goes in and out
// of the coordinator, the checker keeps its own account of who is a member,
// what was accepted and what was committed, and compares:
//
//   1  Every accepted contribution is merged exactly once (contents.h says how
//      the checker sees that to the step); an answer ACCEPTED binds the round.
//      Every reported token is in one column of the ledger, its merged tokens
//      are those of the commits, and it has no more than were trained.
//   2  A fragment's version only grows, and all see the same digest for one
//      version, which was durable before it was seen.
//   3  An incarnation that has ended, or was never given out, can change
//      nothing; no two processes are given the same. An island that is drained
//      is told so until it has left. Planned bits of uplinks stay within their
//      limits.
//   4  A round closes only with its quorum, and not before all expected islands
//      have contributed or the grace window, which stands still in a pause, is
//      over; and then it does close. The end of the history shows whether the
//      quorum was reached. Leases end when they have to, and only then. An
//      island is not expected before it is ready, nor in rounds that were open
//      then; a restart forgets nothing of this.
//   5  After a restart the coordinator continues from the commits, whose
//      versions its snapshots and records reproduce. Each commit found the
//      record of its merge durable.
//   6  A recorded validation loss belongs to the committed model of its
//      version, and no version is recorded twice.
//   7  Merging a commit's recorded contributions in the order of their keys
//      gives its digest.
//   8  Once nothing fails any more, islands that are equally fast take part in
//      all rounds except the first few.
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
  // `scenario` and `world` outlive the checker.
  Checker(const Scenario* scenario, World* world);

  // Returns the first violation, or an empty string.
  const std::string& violation() const { return violations_.first(); }
  // Records a violation, unless there was one.
  template <typename... Parts>
  void Fail(const Parts&... parts) {
    violations_.Note(parts...);
  }

  // Returns the account of commits, which records what islands train and hold.
  CommitAccount& commits() { return commits_; }

  // --- What the coordinator's process does; `now` is its clock. ---

  void Restarted(Coordinator& core, const Disk& disk, absl::Time now);
  // Call it before a call of a member goes into the core.
  void Calls(const v1::IslandIdentity& identity, absl::Time now);
  // Call it after the call, with the core's answer. OK renews the lease.
  void Called(const v1::IslandIdentity& identity, const absl::Status& status,
              absl::Time now);
  // Call it after a call that renews nothing.
  void Checked(const v1::IslandIdentity& identity, const absl::Status& status);
  // Call it after a Join.
  void Joined(const v1::JoinRequest& request, const v1::JoinResponse& response,
              const Effects& effects, absl::Time now);
  // Call it after a report that the island is ready; `state_before` is the
  // run's state before it.
  void ReportedReady(const v1::IslandIdentity& identity,
                     const Coordinator& core, const Effects& effects,
                     v1::RunState state_before);
  // That report is durable.
  void ReadyIsDurable(const v1::IslandIdentity& identity);
  // The core has answered an Offer or a Complete.
  void Answered(const v1::ContributionHeader& header,
                const v1::ContributeResponse& response, const Coordinator& core,
                absl::Time now);
  // An operator has ended this island's membership, whatever its lease says.
  void Evicted(const std::string& island);
  // The drain of this island is durable.
  void Drained(const std::string& island);
  // A view is on its way to a member or a former member.
  void Shown(const v1::IslandIdentity& identity,
             const v1::SessionResponse& view);
  // An operator has put a contribution from the quarantine into the open round.
  void AdmittedToRound(const v1::ContributionHeader& header, absl::Time now);
  // An event has had these effects, which are not carried out yet.
  void Saw(const Effects& effects, const Coordinator& core, absl::Time now);
  void Ticked(const Coordinator& core, absl::Time now);
  void OuterStepEnds(uint32_t fragment, bool committed, absl::Time now);
  // The outer step failed because of the contribution with the largest norm;
  // `core` and `effects` show the fate of that contribution.
  void SetAside(const ClosedRound& closed, const Coordinator& core,
                const Effects& effects);
  // From now on nothing fails.
  void Healed() { healed_ = true; }
  // Call it after every event.
  void Inspect(const Coordinator& core, const Staging& staging);

  // The process knows that it is a member.
  void Admitted(uint32_t process, const v1::IslandIdentity& identity);

 private:
  struct KnownMember {
    uint64_t incarnation = 0;
    bool live = false;
    bool draining = false;
    // Say whether it has reported to be ready, and whether that is durable.
    bool ready = false;
    bool surely_ready = false;
    // The number of rounds that closed without it after it was ready and faults
    // had ended.
    int rounds_missed = 0;
    // The last sign of life came between these two times.
    absl::Time heard_surely;
    absl::Time heard_at_most;
  };
  struct OpenRound {
    bool merging = false;
    // The digests of accepted contributions.
    std::set<std::string> accepted;
    // Each (island, incarnation) that was answered ACCEPTED, or for which an
    // earlier incarnation's contribution counts.
    std::set<std::pair<std::string, uint64_t>> credited;
    // The time at which the grace window began; later by pauses since then.
    absl::Time quorum_at = absl::InfiniteFuture();
    // The time when an outer step failed last.
    absl::Time failed_at = absl::InfinitePast();
  };

  bool MayAct(const v1::IslandIdentity& identity) const;
  // Notes whether the run is paused from now on. What was left of a grace
  // window when a pause began is left when it ends.
  void NotePause(bool paused, absl::Time now);
  // Returns a live, ready island that is expected in the open round and has no
  // contribution in it; an empty string if there is none.
  std::string Awaited(uint32_t fragment, const Coordinator& core) const;
  void CheckClosed(const ClosedRound& closed, const Coordinator& core,
                   absl::Time now);
  // Invariant 8.
  void CheckParticipation(const ClosedRound& closed);

  const Scenario* const scenario_;
  const absl::Duration lease_;
  Violations violations_;
  CommitAccount commits_;
  // Every incarnation that was admitted, and its process.
  std::map<std::pair<std::string, uint64_t>, uint32_t> admitted_;
  std::map<std::string, KnownMember> members_;
  // The open round of each fragment; cleared when the coordinator's process
  // ends.
  std::vector<OpenRound> rounds_;
  // The time since which the process holds the run; infinite if it does not.
  absl::Time paused_at_ = absl::InfiniteFuture();
  // The version of the model that was measured last.
  uint64_t validated_ = 0;
  bool healed_ = false;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_CHECKER_H_
