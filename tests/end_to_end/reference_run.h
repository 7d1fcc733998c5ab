// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Computes the result of a synthetic run (synthetic_run.h): the papers'
// equations, in double, without fragments' layout on the wire, threads or
// messages.
#ifndef TESTS_END_TO_END_REFERENCE_RUN_H_
#define TESTS_END_TO_END_REFERENCE_RUN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/run_config.pb.h"

namespace causeway {

struct ReferenceIsland {
  // The target of its QuadraticTrainer.
  float target = 0;
  // tau, if it differs from the run's.
  std::optional<uint64_t> overlap_steps = std::nullopt;
};

// Returns the coordinator's last parameters, if all islands take part in all
// rounds and train as many tokens. Covers Nesterov and exact transport.
std::vector<float> ReferenceRun(const v1::RunConfig& config,
                                const std::vector<ReferenceIsland>& islands);

// Returns the parameters of QuadraticTrainer `steps` steps after `values`.
std::vector<float> Descend(std::vector<float> values, float target,
                           uint64_t steps);

}  // namespace causeway

#endif  // TESTS_END_TO_END_REFERENCE_RUN_H_
