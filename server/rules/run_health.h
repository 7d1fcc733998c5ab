// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides whether a run makes progress, how long it still takes, and what needs
// an operator's attention. `causeway status`, the page and the alerts all show
// this (RunStatus.islands_needed to RunStatus.attention).
//
// The pace of a run is the median time of an inner step between the rounds
// merged lately. Rounds that were held up because the run was paused or had too
// few islands do not count, nor do rounds that an earlier process of the
// coordinator began: after a restart the pace is unknown until two rounds are
// merged.
//
// Rounds stand still if the run could have merged one, but has not, for longer
// than
//
//   3 rounds + membership.grace_seconds + 30 s
//
// where a round takes H steps at that pace. If the pace is unknown, the slowest
// live island's reported pace counts; if that is unknown as well, a round takes
// 20 minutes.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_RUN_HEALTH_H_
#define SERVER_RULES_RUN_HEALTH_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "proto/status.pb.h"
#include "server/rules/membership.h"

namespace causeway {

uint32_t FollowersInSync(const v1::RunStatus& status);

// Adds problems to status.attention, which has the most severe first and at
// most RunHealth::kMostProblems.
void AddProblems(std::vector<v1::Attention> problems, v1::RunStatus& status);

class RunHealth {
 public:
  static constexpr size_t kMostProblems = 64;

  struct Options {
    // The steps of the run, and H.
    uint64_t total_steps = 0;
    uint64_t round_steps = 0;
    // membership.grace_seconds.
    absl::Duration grace;
    // The last end of an island's membership before this process; infinite if
    // there was none.
    absl::Time last_end = absl::InfiniteFuture();
    // The last time at which an operator held the run before this process;
    // infinite if none did.
    absl::Time last_pause = absl::InfiniteFuture();
    // The last time at which a coordinator started with another configuration
    // than before; the infinite past if none did.
    absl::Time config_changed = absl::InfinitePast();
  };

  // A fragment's committed version.
  struct Head {
    // The step at which the round of the version is sent; 0 for version 0.
    uint64_t step = 0;
    absl::Time committed_at = absl::InfinitePast();
  };

  // The state of the run at a time.
  struct Moment {
    v1::RunState state = v1::RUN_STATE_UNSPECIFIED;
    // True if the run has begun; a paused run may not have.
    bool begun = true;
    // Says why nothing could be committed, even while the run is held; empty if
    // everything could.
    std::string storage_problem;
    // The number of live islands that are ready.
    uint32_t ready = 0;
    // The number of ready islands that a round needs.
    uint32_t needed = 0;
    // The live islands that read other data than the run's.
    std::vector<std::string> other_data;
    // If true, versions wait for fewer followers than storage.sync_replicas.
    bool lacks_followers = false;
    // Says what is wrong with the etcd that elects the coordinator; empty if
    // nothing is.
    std::string etcd_problem;
    // One for each fragment.
    std::vector<Head> heads;
  };

  // The inputs of Describe besides the fields of RunStatus.
  struct Details {
    // The newest incarnation of each island.
    const std::map<std::string, Member>& members;
    // The time of a round that the slowest live island reports; 0 if unknown.
    absl::Duration claimed_round;
    // The time at which the oldest contribution in quarantine was put there.
    absl::Time quarantined_since;
  };

  explicit RunHealth(Options options) : options_(options) {}

  // Notes the run's state. Call it often: a change counts from then on.
  void Observe(const Moment& moment, absl::Time now);

  // Fills in islands_needed and the fields after it. Reads the fields before,
  // as Coordinator and Engine have set them.
  void Describe(const Details& details, absl::Time now,
                v1::RunStatus& status) const;

 private:
  void Merged(const Head& head);
  // The time of an inner step; none while it is unknown.
  std::optional<absl::Duration> Pace() const;
  // Returns the time since which the run could have merged a round but has not;
  // infinite if it cannot merge.
  absl::Time IdleSince() const;
  // Returns the longest usual time between merges.
  absl::Duration LongestIdle(absl::Duration claimed_round) const;
  // Returns the problems that do not concern a single island.
  std::vector<v1::Attention> RunProblems(const Details& details, absl::Time now,
                                         const v1::RunStatus& status) const;
  v1::Attention Missing(const Details& details) const;

  const Options options_;
  Moment moment_;
  // The time since which the run is in its state.
  absl::Time state_since_ = absl::InfinitePast();
  // The time since which too few islands are ready; infinite if enough are.
  absl::Time missing_since_ = absl::InfiniteFuture();
  absl::Time lacks_followers_since_ = absl::InfiniteFuture();
  absl::Time etcd_problem_since_ = absl::InfiniteFuture();
  // The time since which each island is known to read other data.
  std::map<std::string, absl::Time> other_data_since_;
  // The time since which rounds can be merged; infinite if they cannot.
  absl::Time able_since_ = absl::InfiniteFuture();
  // The first round with the latest step. Its time is the infinite past if an
  // earlier process merged it.
  Head newest_;
  // The time at which a round was merged last.
  absl::Time merged_at_ = absl::InfinitePast();
  // The times of an inner step between rounds, newest last.
  std::deque<absl::Duration> paces_;
};

}  // namespace causeway

#endif  // SERVER_RULES_RUN_HEALTH_H_
