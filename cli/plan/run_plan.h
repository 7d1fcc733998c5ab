// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Predicts a run: how much of their time islands train, how much their links
// and the coordinator's carry, and how much memory the run takes. Uses the
// run's own code for fragments and their steps
// (outer_optimizer/fragment_plan.h, sync_schedule.h). Pure.
#ifndef CLI_PLAN_RUN_PLAN_H_
#define CLI_PLAN_RUN_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/plan/exchange_simulator.h"
#include "common/tensors/model_layout.h"
#include "proto/run_config.pb.h"

namespace causeway {

struct RunAssumptions {
  ModelLayout layout;
  // `synchronization` decides what is exchanged and when; `outer_optimizer` and
  // `storage` decide what the coordinator holds. `model` is not read, because
  // `layout` has it.
  v1::RunConfig config;
  // Bits of a value on the wire, including its share of scales. 0 takes the
  // format's number, which for entropy coding was measured on pseudo-gradients
  // of another model.
  double uplink_bits = 0;
  double downlink_bits = 0;
  std::vector<SimulatedIsland> islands;
  LinkRates coordinator;
  // Values per second of outer steps, from the last contribution to the commit.
  double merge_rate = kUnlimited;
  // See Simulation.
  bool slow_start_after_idle = false;
  // If not 0, predicts the run's first rounds instead of the long run; see
  // Simulation::periods.
  uint64_t rounds = 0;
};

struct RunPrediction {
  SimulatedRun simulated;
  // The bits per value of each island's contributions. They differ if the
  // coordinator plans them (synchronization.uplink_bits_floor).
  std::vector<double> uplink_bits;
  // Bytes of one island in one round of all fragments, on average.
  double up_bytes_per_round = 0;
  double down_bytes_per_round = 0;
  // Bytes of the records of a round's merges, which the coordinator writes, and
  // sends to each follower.
  double record_bytes_per_round = 0;
  // Bytes of the snapshots that the coordinator writes in a round, as if it
  // made those of all fragments at once. If replay_seconds asks for them, it
  // makes them one by one, and writes down to half of this.
  double snapshot_bytes_per_round = 0;
  // The bytes of data parallel training, with 16 bits per parameter both ways
  // in every step, divided by the bytes of this run.
  double data_parallel_ratio = 0;
  // Memory for parameters, gradients, the optimizer's state, anchors and
  // exchanges, but not for activations.
  double island_bytes = 0;
  // Memory for the newest version of every fragment, contributions under way,
  // and concurrent outer steps.
  double coordinator_bytes = 0;
  // The most memory and disk space of a coordinator of these islands
  // (server/footprint.h).
  double coordinator_most_bytes = 0;
  double coordinator_disk_bytes = 0;
};

// Returns a model of known size only: `layers` blocks of equal size, and one
// more tensor for everything outside the blocks.
//   INVALID_ARGUMENT  there are no layers, less than one parameter per layer,
//                     or more outside the layers than in all.
absl::StatusOr<ModelLayout> MakeUniformLayout(uint64_t parameters,
                                              uint64_t outside_layers,
                                              uint64_t layers);

// Predicts the run.
//   INVALID_ARGUMENT  a setting, which the message names, is out of range, or
//                     the size of an encoding is not known beforehand.
absl::StatusOr<RunPrediction> PredictRun(const RunAssumptions& assumptions);

}  // namespace causeway

#endif  // CLI_PLAN_RUN_PLAN_H_
