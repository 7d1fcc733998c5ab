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
// The weights are the contributions' shares, or differ from tensor to tensor
// (outer_optimizer/tensor_weights.h). The pass works on tiles that stay in the
// cache, so each input and output passes memory once, and no contribution is
// ever decoded as a whole. Everything is fp32, each operation rounded
// separately; the result does not depend on the number of threads.
//
// theta moves by the DECODED update, so that islands, which make the same
// addition to their anchors, hold the same bits. The residual adds the
// encoding's error to the next update; lossless formats have none.
//
// Delayed Nesterov, for rounds of few contributions, updates the momentum only
// in every N-th step. d is the sum of g since the last such step:
//
//   d <- d + g
//   every N-th step:  m <- mu m + d / N;  d <- 0;
//                     change = -lr (mu m + g / N)
//   other steps:      change = -lr g / N
//
// With N = 1 it is Nesterov, bit for bit.
//
// Results go to separate memory of the caller, so a step that fails, or whose
// result cannot be stored, changes nothing.
//
// Sources: DiLoCo (arXiv 2311.08105), algorithm 1, with Nesterov momentum as
// torch.optim.SGD defines it (dampening 0); error feedback of the downlink as
// in DoubleSqueeze (Tang et al., arXiv 1905.05957); Delayed Nesterov of Liu et
// al., arXiv 2401.09135, algorithm 4 with c = 0.
#ifndef OUTER_OPTIMIZER_OUTER_STEP_H_
#define OUTER_OPTIMIZER_OUTER_STEP_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/os/thread_pool.h"
#include "outer_optimizer/tensor_weights.h"
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
  // N of DELAYED_NESTEROV, at least 1.
  uint32_t momentum_delay = 1;
  // Values outside of its tensors take the mean.
  TensorMerge tensor_merge;
  // The encoding of the update.
  CodecSpec downlink;
  EncodeOptions downlink_options;
};

OuterStepOptions MakeOuterStepOptions(const v1::RunConfig& config,
                                      const v1::Fragment& fragment);

// The coordinator's state of one fragment. Not owned, because it may be in a
// mapped file. All parts that are present have theta's size.
struct OuterStateView {
  // The number of steps so far.
  uint64_t version = 0;
  // The global parameters.
  absl::Span<const float> theta;
  // m; empty for SGD.
  absl::Span<const float> momentum;
  // The sum of the updates' encoding errors; empty for lossless formats.
  absl::Span<const float> residual;
  // d; empty except for DELAYED_NESTEROV.
  absl::Span<const float> gradient_sum;
};

// A fragment's state that owns its values; see OuterStateView.
struct OuterState {
  std::vector<float> theta;
  std::vector<float> momentum;
  std::vector<float> residual;
  std::vector<float> gradient_sum;
  uint64_t version = 0;

  // NOLINTNEXTLINE(google-explicit-constructor): as spans of vectors are.
  operator OuterStateView() const {
    return {version, theta, momentum, residual, gradient_sum};
  }
};

// Return whether a fragment's state has these parts besides theta.
bool HasMomentum(const OuterStepOptions& options);
bool HasResidual(const OuterStepOptions& options);
bool HasGradientSum(const OuterStepOptions& options);

// Returns the state at version 0: zeros except theta, with the parts that the
// options need.
OuterState InitialOuterState(const OuterStepOptions& options,
                             std::vector<float> theta);

struct MergeInput {
  CodecSpec spec;
  // Not owned; must outlive the step.
  absl::string_view encoded;
  // The contribution's share in the merge (merge.h).
  float share = 0;
  // Its Euclidean norm. If it is not known, the step has no similarity.
  double norm = std::numeric_limits<double>::quiet_NaN();
  // Its decompressed codes, or nothing, as for OpenDecoder; not owned either.
  absl::Span<const char> codes;
};

// The caller's memory for a step's results, separate from the inputs. Each part
// has the old state's size. Parts that begin at multiples of kStreamAlignment
// are written past the caches (outer_kernels.h), which makes the step faster by
// half if all do. After an error the content is undefined.
struct OuterStepOutput {
  absl::Span<float> theta;
  absl::Span<float> momentum;
  absl::Span<float> residual;
  absl::Span<float> gradient_sum;
  // Has MaxEncodedBytes() of the downlink.
  absl::Span<char> update;
  // g, if not empty. A step with this single contribution, in fp32 and with
  // share 1, gives the same bits.
  absl::Span<float> gradient;
};

struct OuterStepSummary {
  uint64_t update_bytes = 0;
  // The Euclidean norm of the merged pseudo-gradient g.
  double gradient_norm = 0;
  // The similarity of the contributions (outer_optimizer/similarity.h).
  std::optional<double> similarity;
};

// Makes one step on the threads of `pool`. The downlink must pass
// CheckCodecSpec.
//   INVALID_ARGUMENT  There are no contributions; one has the wrong length or
//                     format, a share outside [0, 1], or a value that is not
//                     finite; or the state does not have the parts that the
//                     options need, or the options are bad.
//   OUT_OF_RANGE      The contributions are finite, but the result is not.
absl::StatusOr<OuterStepSummary> RunOuterStep(
    const OuterStepOptions& options, const OuterStateView& state,
    absl::Span<const MergeInput> inputs, const OuterStepOutput& output,
    ThreadPool& pool);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_OUTER_STEP_H_
