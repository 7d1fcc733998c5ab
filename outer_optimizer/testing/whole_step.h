// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Outer steps into new memory.
#ifndef OUTER_OPTIMIZER_TESTING_WHOLE_STEP_H_
#define OUTER_OPTIMIZER_TESTING_WHOLE_STEP_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/os/thread_pool.h"
#include "common/status_macros.h"
#include "outer_optimizer/outer_step.h"
#include "quantization/codec.h"

namespace causeway {

struct OuterStepResult {
  OuterState state;
  // The encoded update, for islands.
  std::string update;
  double gradient_norm = 0;
  std::optional<double> similarity;
};

// Makes a step on the calling thread. Errors of the other RunOuterStep.
inline absl::StatusOr<OuterStepResult> RunOuterStep(
    const OuterStepOptions& options, const OuterStateView& state,
    absl::Span<const MergeInput> inputs) {
  OuterStepResult result{.state = InitialOuterState(
                             options, std::vector<float>(state.theta.size()))};
  result.state.version = state.version + 1;
  result.update.resize(MaxEncodedBytes(options.downlink, state.theta.size()));
  ThreadPool pool(1);
  ASSIGN_OR_RETURN(
      const OuterStepSummary summary,
      RunOuterStep(options, state, inputs,
                   {.theta = absl::MakeSpan(result.state.theta),
                    .momentum = absl::MakeSpan(result.state.momentum),
                    .residual = absl::MakeSpan(result.state.residual),
                    .gradient_sum = absl::MakeSpan(result.state.gradient_sum),
                    .update = absl::MakeSpan(result.update)},
                   pool));
  result.update.resize(summary.update_bytes);
  result.gradient_norm = summary.gradient_norm;
  result.similarity = summary.similarity;
  return result;
}

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_TESTING_WHOLE_STEP_H_
