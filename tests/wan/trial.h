// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One run of a scenario: true processes of a coordinator and of islands, on an
// emulated network that is checked first, from the start to the validation
// loss.
#ifndef TESTS_WAN_TRIAL_H_
#define TESTS_WAN_TRIAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/wan/link.h"
#include "tests/wan/link_check.h"
#include "tests/wan/progress_log.h"
#include "tests/wan/scenario.pb.h"

namespace causeway {

struct TrialOptions {
  wan::Scenario scenario;
  // Of the scenario, or those of its baseline.
  wan::Setting setting;
  wan::Network network;
  // Added to the seeds of the run and of the network.
  uint64_t repeat = 0;
  // Has server/causeway-coordinator, worker/causeway-worker and cli/causeway.
  std::string programs;
  // Files to train on, separated by commas.
  std::string data;
  // An empty directory for state and logs.
  std::string directory;
  Clock now;
};

struct IslandResult {
  std::string name;
  // As before any event.
  LinkSettings settings;
  LinkMeasurement measured;
  // What went over the link while the island ran, headers included.
  LinkCounters counters;
  IslandSpeed speed;
  // Encoded bytes per second while transfers were under way, as the island
  // reported last.
  double achieved_up = 0;
  double achieved_down = 0;
};

struct TrialResult {
  std::vector<IslandResult> islands;
  // Encoded bytes of contributions and updates, as the coordinator counts them,
  // and what data parallel training would have moved.
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  uint64_t bytes_data_parallel = 0;
  // Islands whose lease ended; false ones had not been partitioned within the
  // lease before.
  int evictions = 0;
  int false_evictions = 0;
  // Of the merged parameters, nats per token, on held-out data.
  double validation_loss = 0;
  // Of TCP connections, as the kernel calls it.
  std::string congestion_control;
  // From the start of the run to its end.
  absl::Duration duration;
  // Of all links together, over that time.
  absl::Duration emulator_processor_time;
};

// Blocks until the run is finished. To be called on the main thread, with which
// the processes would be killed, in the network namespace that is to be the
// coordinator's. Whatever it started has ended when it returns.
//   PERMISSION_DENIED    this process may not make namespaces.
//   FAILED_PRECONDITION  a link is not what it is set to be.
//   DEADLINE_EXCEEDED    the run took longer than the scenario allows.
//   CANCELLED            SIGTERM or SIGINT came.
//   INTERNAL             a process failed; the message has the end of its log.
absl::StatusOr<TrialResult> RunTrial(const TrialOptions& options);

}  // namespace causeway

#endif  // TESTS_WAN_TRIAL_H_
