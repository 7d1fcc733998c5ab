// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One run of the chaos kit: a coordinator and islands as processes, each island
// in a network namespace of its own behind an emulated link (tests/wan), under
// a schedule of faults. Processes that die are restarted, as by a service
// manager.
#ifndef TESTS_CHAOS_TRIAL_H_
#define TESTS_CHAOS_TRIAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/chaos/evaluation.h"
#include "tests/chaos/schedule.h"

namespace causeway {

struct ChaosOptions {
  // The folder with server/causeway-coordinator and worker/causeway-worker.
  std::string programs;
  // A text file to train on.
  std::string data;
  // An empty directory for state and logs.
  std::string directory;
  // The number of the run's islands, without the guest.
  int islands = 4;
  // The simulated time of an inner step.
  absl::Duration step_time;
  // The duration from the first commit on.
  absl::Duration duration;
  std::vector<Fault> faults;
  uint64_t seed = 0;
  Clock now;
};

// Runs the trial and blocks until it is over. Call it on the main thread, whose
// end would kill the processes, and in the coordinator's network namespace. All
// processes that it started have ended when it returns.
//   PERMISSION_DENIED  this process may not make namespaces.
//   CANCELLED          SIGTERM or SIGINT came.
//   DEADLINE_EXCEEDED  the run does not start, or does not continue after
//                      the faults.
//   INTERNAL           a process misbehaves; the message says which, and its
//                      log is in the directory.
absl::StatusOr<ChaosResult> RunChaos(const ChaosOptions& options);

}  // namespace causeway

#endif  // TESTS_CHAOS_TRIAL_H_
