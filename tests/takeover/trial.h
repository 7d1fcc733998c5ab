// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs a real etcd, coordinators that elect the one that leads, and islands, as
// processes; disturbs the leader or etcd repeatedly; and checks the run's
// outcome.
#ifndef TESTS_TAKEOVER_TRIAL_H_
#define TESTS_TAKEOVER_TRIAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/chaos/accounts.h"

namespace causeway {

enum class Disturbance {
  // SIGKILL of the leader, which is started again.
  kKillLeader,
  // SIGSTOP of the leader until another one has made a version, and for two
  // leases at least, then SIGCONT.
  kStopLeader,
  // SIGSTOP of etcd for three leases, then SIGCONT. The leader must continue.
  kStopEtcd,
  // SIGKILL of a follower, which is started again on an empty disk.
  kWipeFollower,
  // For three leases, nothing arrives between the leader and etcd. Another one
  // takes over.
  kCutLeaderFromEtcd,
  // Nothing arrives between the leader and its followers until it continues
  // without them.
  kCutLeaderFromFollowers,
  // For three leases, nothing arrives between the leader and the islands. It
  // stays the leader.
  kCutLeaderFromIslands,
};

struct TakeoverOptions {
  // The directory that has server/causeway-coordinator and
  // worker/causeway-worker.
  std::string programs;
  // The text to train on.
  std::string data;
  // The directory for states and logs.
  std::string directory;
  int coordinators = 3;
  int islands = 4;
  absl::Duration lease = absl::Seconds(3);
  // The disturbances, in order. Each follows a pause of at most
  // `longest_pause`, and at least a third of it.
  std::vector<Disturbance> disturbances;
  absl::Duration longest_pause = absl::Seconds(6);
  // Decides the pauses.
  uint64_t seed = 1;
  Clock now;
};

struct TakeoverResult {
  Accounts accounts;
  uint64_t rounds = 0;
  // The times from each kill, stop or cut of a leader to the next commit, in
  // the order of the disturbances.
  std::vector<absl::Duration> gaps;
};

// Errors say what did not continue, and where the logs are.
absl::StatusOr<TakeoverResult> RunTakeover(const TakeoverOptions& options);

}  // namespace causeway

#endif  // TESTS_TAKEOVER_TRIAL_H_
