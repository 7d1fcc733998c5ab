// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The outer step on one fragment, in one pass over its values:
//
//   g        = sum of weight_i * decode(contribution_i), in the given order
//   m        <- mu m + g                                 (with momentum)
//   change   = -lr (g + mu m)                            (Nesterov)
//   update   = encode(change + residual)                 what islands download
//   theta    <- theta + decode(update)
//   residual <- change + residual - decode(update)
//
// The weights are the contributions' shares, or those of radial-directional
// averaging (outer_optimizer/radial_merge.h). The pass goes in tiles that stay
// in the cache, so memory sees each input and output once and no contribution
// is ever expanded as a whole. All is fp32, each operation rounded on its own;
// the result does not depend on the number of threads.
//
// theta moves by the DECODED update, so that islands, which make the same
// addition to their anchors, hold the same bits. What the encoding lost goes
// into the next update by the residual; lossless formats have none.
//
// Delayed Nesterov, for rounds of few contributions, lets the momentum act in
// one step of N only (d is the sum of g since then, c spreads what it does):
//
//   d <- d + g
//   every N-th step:  m <- mu m + d / N;  d <- 0;
//                     change = -lr ((1 - c (N - 1)) mu m + g / N)
//   others:           change = -lr (c mu m + g / N)
//
// With N = 1 it is Nesterov, bit for bit.
//
// Inputs are only read and results go to other memory of the caller's: a step
// that fails, or whose result cannot be stored, has changed nothing.
//
// Sources: DiLoCo (arXiv 2311.08105), algorithm 1, with Nesterov momentum as
// torch.optim.SGD defines it (dampening 0); error feedback of the downlink as
// in DoubleSqueeze (Tang et al., arXiv 1905.05957); Delayed Nesterov of Liu et
// al., arXiv 2401.09135, algorithm 4.
#ifndef OUTER_OPTIMIZER_OUTER_STEP_H_
#define OUTER_OPTIMIZER_OUTER_STEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/thread_pool.h"
#include "outer_optimizer/weighted_merge.h"
#include "proto/fragment.pb.h"
#include "proto/run_config.pb.h"
#include "quantization/codec.h"

namespace causeway {

struct OuterStepOptions {
  v1::OuterOptimizerConfig::Algorithm algorithm =
      v1::OuterOptimizerConfig::NESTEROV;
  float learning_rate = 0;
  // mu.
  float momentum = 0;
  // N and c of DELAYED_NESTEROV: at least 1, and in [0, 1 / N].
  uint32_t momentum_delay = 1;
  double momentum_spread = 0;
  // Merged radial-directionally, ascending and disjoint; what is outside of
  // them takes the mean.
  std::vector<ValueRange> radial_tensors;
  // Of the update.
  CodecSpec downlink;
  EncodeOptions downlink_options;
};

OuterStepOptions MakeOuterStepOptions(const v1::RunConfig& config,
                                      const v1::Fragment& fragment);

// The coordinator's state of one fragment; not owned, as it may lie in a mapped
// file. All that is there has theta's size.
struct FragmentStateView {
  // Steps so far.
  uint64_t version = 0;
  // Global parameters.
  absl::Span<const float> theta;
  // m; empty for SGD.
  absl::Span<const float> momentum;
  // What the updates' encoding has lost so far; empty for lossless formats.
  absl::Span<const float> residual;
  // d; empty but for DELAYED_NESTEROV.
  absl::Span<const float> gradient_sum;
};

// The same, owned.
struct FragmentState {
  std::vector<float> theta;
  std::vector<float> momentum;
  std::vector<float> residual;
  std::vector<float> gradient_sum;
  uint64_t version = 0;

  // NOLINTNEXTLINE(google-explicit-constructor): as spans of vectors are.
  operator FragmentStateView() const {
    return {version, theta, momentum, residual, gradient_sum};
  }
};

// The state at version 0: zeros but for theta, and there where the options
// need them.
FragmentState InitialFragmentState(const OuterStepOptions& options,
                                   std::vector<float> theta);

struct MergeInput {
  CodecSpec spec;
  // Not owned; outlives the step.
  absl::string_view encoded;
  // Its share in the merge: merge.h.
  float share = 0;
};

// Where a step puts its results: memory of the caller, apart from the inputs.
// Each part has the size of the old state's. Written past the caches where all
// begin at multiples of kStreamAlignment (outer_kernels.h), which is faster by
// half. What is there after an error is of no use.
struct OuterStepOutput {
  absl::Span<float> theta;
  absl::Span<float> momentum;
  absl::Span<float> residual;
  absl::Span<float> gradient_sum;
  // MaxEncodedBytes() of the downlink.
  absl::Span<char> update;
};

struct OuterStepSummary {
  // Bytes of the update.
  uint64_t update_bytes = 0;
  // Euclidean norm of the merged pseudo-gradient g.
  double gradient_norm = 0;
};

// One step, on the threads of `pool`.
//   INVALID_ARGUMENT  no contributions; one has another length or format than
//                     it should, a share outside [0, 1], or a value that is not
//                     finite; part of the state is not of theta's size, or is
//                     there although the options have none; bad options.
//   OUT_OF_RANGE      the contributions are finite, but the result is not.
absl::StatusOr<OuterStepSummary> RunOuterStep(
    const OuterStepOptions& options, const FragmentStateView& state,
    absl::Span<const MergeInput> inputs, const OuterStepOutput& output,
    ThreadPool& pool);

struct OuterStepResult {
  FragmentState state;
  // The encoded update, for islands.
  std::string update;
  double gradient_norm = 0;
};

// The same into new memory, on the calling thread.
absl::StatusOr<OuterStepResult> RunOuterStep(
    const OuterStepOptions& options, const FragmentStateView& state,
    absl::Span<const MergeInput> inputs);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_OUTER_STEP_H_
