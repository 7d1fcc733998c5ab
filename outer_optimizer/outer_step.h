// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The outer step on one fragment, in one pass over its values:
//
//   g        = sum of share_i * decode(contribution_i), in the given order
//   m        <- mu m + g                                 (with momentum)
//   change   = -lr (g + mu m)                            (Nesterov)
//   update   = encode(change + residual)                 what islands download
//   theta    <- theta + decode(update)
//   residual <- change + residual - decode(update)
//
// The pass goes in tiles that stay in the cache, so memory sees each input and
// output once and no contribution is ever expanded as a whole. All is fp32,
// each operation rounded on its own; the result does not depend on the tiles'
// order or on the number of threads.
//
// theta moves by the DECODED update, so that islands, which make the same
// addition to their anchors, hold the same bits. What the encoding lost goes
// into the next update by the residual; lossless formats have none.
//
//   ASSIGN_OR_RETURN(OuterStepResult result,
//                    RunOuterStep(options, state, contributions));
//   // store result.state and result.update, then swap
//
// Inputs are only read and results go to memory of their own: a step that
// fails, or whose result cannot be stored, has changed nothing. That costs a
// second copy of the fragment's state while it is processed; fragments are
// processed one at a time.
//
// Sources: DiLoCo (arXiv 2311.08105), algorithm 1, with Nesterov momentum as
// torch.optim.SGD defines it (dampening 0); error feedback of the downlink as
// in DoubleSqueeze (Tang et al., arXiv 1905.05957).
#ifndef OUTER_OPTIMIZER_OUTER_STEP_H_
#define OUTER_OPTIMIZER_OUTER_STEP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/run_config.pb.h"
#include "quantization/codec.h"

namespace causeway {

struct OuterStepOptions {
  v1::OuterOptimizerConfig::Algorithm algorithm =
      v1::OuterOptimizerConfig::NESTEROV;
  float learning_rate = 0;
  // mu.
  float momentum = 0;
  // Format of the update.
  CodecSpec downlink;
};

OuterStepOptions MakeOuterStepOptions(const v1::RunConfig& config);

// The coordinator's state of one fragment.
struct FragmentState {
  // Global parameters.
  std::vector<float> theta;
  // m; empty for SGD, which has none.
  std::vector<float> momentum;
  // What the updates' encoding has lost so far; empty for lossless formats.
  std::vector<float> residual;
};

// The same, not owned: what a step starts from may lie in a mapped file.
struct FragmentStateView {
  FragmentStateView(absl::Span<const float> theta,
                    absl::Span<const float> momentum,
                    absl::Span<const float> residual)
      : theta(theta), momentum(momentum), residual(residual) {}
  // NOLINTNEXTLINE(google-explicit-constructor): as spans of vectors are.
  FragmentStateView(const FragmentState& state)
      : theta(state.theta),
        momentum(state.momentum),
        residual(state.residual) {}

  absl::Span<const float> theta;
  absl::Span<const float> momentum;
  absl::Span<const float> residual;
};

// The state at version 0: momentum and residual are 0, and there where the
// options need them.
FragmentState InitialFragmentState(const OuterStepOptions& options,
                                   std::vector<float> theta);

struct MergeInput {
  CodecSpec spec;
  // Not owned; outlives the step.
  absl::string_view encoded;
  // Its share in the merge: merge.h.
  float share = 0;
};

struct OuterStepResult {
  FragmentState state;
  // The encoded update, for islands.
  std::string update;
  // Euclidean norm of the merged pseudo-gradient g.
  double gradient_norm = 0;
};

// A step whose tiles may be run by several threads:
//
//   ASSIGN_OR_RETURN(auto step, OuterStep::Create(options, state, inputs));
//   // on any threads, tiles [0, step->tiles()) cut in any way:
//   step->Run(first_tile, last_tile);
//   // when all are done:
//   ASSIGN_OR_RETURN(OuterStepResult result, std::move(*step).Finish());
class OuterStep {
 public:
  // Values in a tile: merged gradient, change and decoded update of one tile
  // stay in the first-level cache.
  static constexpr uint64_t kTileValues = 2048;

  // What `state` and the inputs point to outlives the step.
  //   INVALID_ARGUMENT  no contributions; one has another length or format
  //                     than it should, or a share outside [0, 1]; momentum
  //                     or residual is not of theta's size, or is there
  //                     although the options have none; bad options.
  static absl::StatusOr<std::unique_ptr<OuterStep>> Create(
      const OuterStepOptions& options, const FragmentStateView& state,
      absl::Span<const MergeInput> inputs);

  uint64_t tiles() const { return tile_sums_.size(); }

  // Runs tiles [first, last). Each tile is run once. Thread-safe.
  void Run(uint64_t first, uint64_t last);

  // The result, after all tiles were run.
  //   INVALID_ARGUMENT  a contribution has a value that is not finite; names
  //                     it.
  //   OUT_OF_RANGE      the contributions are finite, but the result is not.
  absl::StatusOr<OuterStepResult> Finish() &&;

 private:
  enum class TileState : uint8_t { kPending, kFinite, kNotFinite };

  OuterStep(const OuterStepOptions& options, const FragmentStateView& state);

  void RunTile(uint64_t tile);
  // Why tile `tile` is not finite.
  absl::Status NotFiniteError(uint64_t tile) const;

  const OuterStepOptions options_;
  const FragmentStateView old_;
  std::vector<std::unique_ptr<Decoder>> decoders_;
  std::vector<float> shares_;
  OuterStepResult result_;
  std::unique_ptr<Encoder> encoder_;
  // Sum of squares of g in each tile, added up in order at the end.
  std::vector<double> tile_sums_;
  std::vector<TileState> tile_states_;
};

// All tiles on the calling thread.
absl::StatusOr<OuterStepResult> RunOuterStep(
    const OuterStepOptions& options, const FragmentStateView& state,
    absl::Span<const MergeInput> inputs);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_OUTER_STEP_H_
