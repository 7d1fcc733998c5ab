// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One run of a scenario: real processes of a coordinator and of islands, on an
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
  // The scenario's setting and network, or the baseline's.
  wan::Setting setting;
  wan::Network network;
  // The number that is added to the seeds of the run and of the network.
  uint64_t repeat = 0;
  // The folder with server/causeway-coordinator, worker/causeway-worker and
  // cli/causeway.
  std::string programs;
  // The program that is an island, which takes causeway-worker's flags.
  std::string worker;
  // The files to train on, separated by commas.
  std::string data;
  // An empty directory for state and logs.
  std::string directory;
  Clock now;
};

struct IslandResult {
  std::string name;
  // The settings before any event.
  LinkSettings settings;
  LinkMeasurement measured;
  // The traffic of the link while the island ran, including headers.
  LinkCounters counters;
  IslandSpeed speed;
  // Encoded bytes per second while transfers were under way, from the island's
  // last report.
  double achieved_up = 0;
  double achieved_down = 0;
};

struct TrialResult {
  std::vector<IslandResult> islands;
  // Encoded bytes of contributions and updates as the coordinator counts them,
  // and the bytes that data parallel training would have moved.
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  uint64_t bytes_data_parallel = 0;
  // The number of islands whose lease ended. It was a false eviction unless a
  // partition hit the island within the lease before.
  int evictions = 0;
  int false_evictions = 0;
  // The loss of the merged parameters on held-out data, in nats per token.
  double validation_loss = 0;
  // The kernel's name for the TCP connections' congestion control.
  std::string congestion_control;
  // The time from the start of the run to its end.
  absl::Duration duration;
  // The processor time of all links together in the run.
  absl::Duration emulator_processor_time;
};

// Makes the run and blocks until it is finished. Call it on the main thread,
// whose end would kill the processes, and in the coordinator's network
// namespace. All processes that it started have ended when it returns.
//   PERMISSION_DENIED    this process may not make namespaces.
//   FAILED_PRECONDITION  a link does not behave as its settings say.
//   DEADLINE_EXCEEDED    the run took longer than the scenario allows.
//   CANCELLED            SIGTERM or SIGINT came.
//   INTERNAL             a process failed; the message has the end of its log.
absl::StatusOr<TrialResult> RunTrial(const TrialOptions& options);

}  // namespace causeway

#endif  // TESTS_WAN_TRIAL_H_
