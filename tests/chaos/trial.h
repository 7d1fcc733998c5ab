// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One run of the chaos kit: a coordinator and islands as processes, each island
// in a network namespace of its own behind an emulated link (tests/wan), under
// a schedule of faults. What dies is started again, as a service manager would.
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
  // Has server/causeway-coordinator and worker/causeway-worker.
  std::string programs;
  // Text to train on.
  std::string data;
  // An empty directory for state and logs.
  std::string directory;
  // Of the run, beside one more for guests.
  int islands = 4;
  // Of an inner step, simulated.
  absl::Duration step_time;
  // From the first commit on.
  absl::Duration duration;
  std::vector<Fault> faults;
  uint64_t seed = 0;
  Clock now;
};

// Blocks until it is over. To be called on the main thread, with which the
// processes would be killed, in the network namespace that is to be the
// coordinator's. Whatever it started has ended when it returns.
//   PERMISSION_DENIED  this process may not make namespaces.
//   CANCELLED          SIGTERM or SIGINT came.
//   DEADLINE_EXCEEDED  the run does not get going, or does not go on when the
//                      faults are over.
//   INTERNAL           a process does not do what it should; the message says
//                      which, and its log is in the directory.
absl::StatusOr<ChaosResult> RunChaos(const ChaosOptions& options);

}  // namespace causeway

#endif  // TESTS_CHAOS_TRIAL_H_
