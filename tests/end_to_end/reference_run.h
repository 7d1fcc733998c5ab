// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What a synthetic run (synthetic_run.h) must come to: the papers' equations,
// in double, without fragments' layout on the wire, threads or messages.
#ifndef TESTS_END_TO_END_REFERENCE_RUN_H_
#define TESTS_END_TO_END_REFERENCE_RUN_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/run_config.pb.h"

namespace causeway {

struct ReferenceIsland {
  // Of its QuadraticTrainer.
  float target = 0;
  // tau, instead of the run's.
  std::optional<uint64_t> overlap_steps = std::nullopt;
};

// The coordinator's last parameters, where all islands take part in all rounds
// and train as many tokens. For Nesterov and exact transport. Eager updates are
// as in their paper: every island has the coordinator's momentum.
std::vector<float> ReferenceRun(const v1::RunConfig& config,
                                const std::vector<ReferenceIsland>& islands);

// The parameters of QuadraticTrainer after `steps` from `values` on.
std::vector<float> Descend(std::vector<float> values, float target,
                           uint64_t steps);

}  // namespace causeway

#endif  // TESTS_END_TO_END_REFERENCE_RUN_H_
