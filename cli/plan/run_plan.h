// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What a run will cost, before it is started: how much of their time islands
// train, what their links and the coordinator's carry, and the memory it takes.
// Pure. Fragments and their steps are those that the run itself would have
// (outer_optimizer/fragment_plan.h, sync_schedule.h).
#ifndef CLI_PLAN_RUN_PLAN_H_
#define CLI_PLAN_RUN_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/plan/exchange_simulator.h"
#include "common/model_layout.h"
#include "proto/run_config.pb.h"

namespace causeway {

struct RunAssumptions {
  ModelLayout layout;
  // `synchronization` decides what is exchanged and when; `outer_optimizer` and
  // `storage` what the coordinator holds. `model` is not read: the layout is.
  v1::RunConfig config;
  // Bits that a value takes on the wire, scales and all. 0 takes what the
  // format needs: exactly, or if it is entropy coded what was measured on
  // pseudo-gradients of another model.
  double uplink_bits = 0;
  double downlink_bits = 0;
  std::vector<SimulatedIsland> islands;
  LinkRates coordinator;
  // Values per second of outer steps, from the last contribution to the commit.
  double merge_rate = kUnlimited;
  // As in Simulation.
  bool slow_start_after_idle = false;
  // The run's first rounds instead of the long run; see Simulation::periods.
  uint64_t rounds = 0;
};

struct RunPrediction {
  SimulatedRun simulated;
  // Of one island and one round of all fragments.
  double up_bytes_per_round = 0;
  double down_bytes_per_round = 0;
  // What data parallel training moves in 16 bits a parameter, both ways and
  // every step, over what this moves.
  double data_parallel_ratio = 0;
  // Parameters, gradients, AdamW's moments, anchors, and what exchanges hold.
  // Activations come on top.
  double island_bytes = 0;
  // Contributions under way and one outer step, whose files before and after
  // are mapped.
  double coordinator_bytes = 0;
  // Versions and updates kept.
  double coordinator_disk_bytes = 0;
};

// A model of which only the size is known: `layers` blocks of equal size and
// one more tensor for everything that is in no block.
//   INVALID_ARGUMENT  no layers, less than a parameter to a layer, or more
//                     outside of the layers than there are.
absl::StatusOr<ModelLayout> MakeUniformLayout(uint64_t parameters,
                                              uint64_t outside_layers,
                                              uint64_t layers);

//   INVALID_ARGUMENT  says which setting is out of range, or that the size of
//                     an encoding is not known beforehand.
absl::StatusOr<RunPrediction> PredictRun(const RunAssumptions& assumptions);

}  // namespace causeway

#endif  // CLI_PLAN_RUN_PLAN_H_
