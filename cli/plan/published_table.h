// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The published bandwidths that Streaming DiLoCo needs, and the simulation that
// reproduces them: Douillard et al., arXiv 2501.18512, table 4. H is 100.
//
// The paper gives no code. The simulation takes what the paper states: a node
// for the forward pass, the backward pass with respect to activations (not of
// layer 1) and the one with respect to parameters of every layer; a reduction
// per layer that starts as soon as the layer's backward pass is over and that
// the layer's forward pass waits for; three layers to a fragment, strided; one
// link and no latency; bandwidths from a grid of 50 values, 0.1 to 1000 Gbit/s
// in equal ratios. The rest was found by trying: all nodes of a step take the
// same time; a parameter travels once, in 16 bits (4 with FP4); a fragment
// starts every floor(H / (layers / 3 + 1)) steps, as if the embedding were one
// more, whose transfer costs nothing; and a model has kSizeFactor times the
// parameters in its name. That factor is the only fitted number.
#ifndef CLI_PLAN_PUBLISHED_TABLE_H_
#define CLI_PLAN_PUBLISHED_TABLE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cli/plan/exchange_simulator.h"

namespace causeway {

inline constexpr double kSizeFactor = 0.84;

struct PublishedModel {
  absl::string_view name;
  double parameters = 0;
  int layers = 0;
  double step_seconds = 0;
};

struct PublishedMethod {
  absl::string_view name;
  // The paper's H; 1 for data parallel.
  int round_steps = 100;
  bool streaming = false;
  // The paper's tau.
  int overlap_steps = 0;
  double bits_per_parameter = 16;
};

struct PublishedCell {
  const PublishedModel* model = nullptr;
  const PublishedMethod* method = nullptr;
  // The compute utilization to reach.
  double utilization = 0;
  // The bandwidths in Gbit/s that reach it.
  double published = 0;
  double simulated = 0;
  // The number of grid steps by which `simulated` is above `published`.
  int grid_steps = 0;
};

// Returns the exchanges that a step of `model` has with `method`.
Simulation PublishedSimulation(const PublishedModel& model,
                               const PublishedMethod& method,
                               double bits_per_second);

// Simulates all 75 cells: by model, then method, then utilization.
absl::StatusOr<std::vector<PublishedCell>> SimulatePublishedTable();

}  // namespace causeway

#endif  // CLI_PLAN_PUBLISHED_TABLE_H_
