// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/outer_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "outer_optimizer/outer_kernels.h"

namespace causeway {
namespace {

static_assert(OuterStep::kTileValues % kPieceAlignment == 0);

bool HasMomentum(const OuterStepOptions& options) {
  return options.algorithm != v1::OuterOptimizerConfig::SGD;
}

bool HasResidual(const OuterStepOptions& options) {
  return !IsLossless(options.downlink.format);
}

absl::Status CheckOptions(const OuterStepOptions& options) {
  switch (options.algorithm) {
    case v1::OuterOptimizerConfig::NESTEROV:
    case v1::OuterOptimizerConfig::SGD:
    case v1::OuterOptimizerConfig::HEAVY_BALL:
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrFormat("outer_optimizer.algorithm %d is not one of "
                          "NESTEROV, SGD, HEAVY_BALL",
                          options.algorithm));
  }
  if (!std::isfinite(options.learning_rate) ||
      !std::isfinite(options.momentum)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("outer learning rate %g and momentum %g must be finite",
                        options.learning_rate, options.momentum));
  }
  return CheckCodecSpec(options.downlink);
}

absl::Status CheckSize(absl::string_view name, size_t size, size_t want) {
  if (size == want) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "the fragment's %s has %d values, want %d", name, size, want));
}

absl::Status CheckState(const OuterStepOptions& options,
                        const FragmentStateView& state) {
  const size_t size = state.theta.size();
  RETURN_IF_ERROR(CheckSize("momentum", state.momentum.size(),
                            HasMomentum(options) ? size : 0));
  return CheckSize("residual", state.residual.size(),
                   HasResidual(options) ? size : 0);
}

// `status` with the place of the contribution in front.
absl::Status AtContribution(const absl::Status& status, size_t index) {
  return absl::Status(status.code(), absl::StrCat("contribution ", index, ": ",
                                                  status.message()));
}

}  // namespace

OuterStepOptions MakeOuterStepOptions(const v1::RunConfig& config) {
  const v1::OuterOptimizerConfig& optimizer = config.outer_optimizer();
  const v1::SynchronizationConfig& synchronization = config.synchronization();
  return {.algorithm = optimizer.algorithm(),
          .learning_rate = static_cast<float>(optimizer.learning_rate()),
          .momentum = static_cast<float>(optimizer.momentum()),
          .downlink = {.format = synchronization.downlink_format(),
                       .block_size = synchronization.block_size()}};
}

FragmentState InitialFragmentState(const OuterStepOptions& options,
                                   std::vector<float> theta) {
  const size_t size = theta.size();
  return {
      .theta = std::move(theta),
      .momentum = std::vector<float>(HasMomentum(options) ? size : 0),
      .residual = std::vector<float>(HasResidual(options) ? size : 0),
  };
}

OuterStep::OuterStep(const OuterStepOptions& options,
                     const FragmentStateView& state)
    : options_(options), old_(state) {
  const size_t size = state.theta.size();
  result_.state = InitialFragmentState(options, std::vector<float>(size));
  result_.update.resize(MaxEncodedBytes(options.downlink, size));
  encoder_ =
      NewEncoder(options.downlink, {}, size, absl::MakeSpan(result_.update));
  const size_t tiles = (size + kTileValues - 1) / kTileValues;
  tile_sums_.resize(tiles);
  tile_states_.resize(tiles, TileState::kPending);
}

absl::StatusOr<std::unique_ptr<OuterStep>> OuterStep::Create(
    const OuterStepOptions& options, const FragmentStateView& state,
    absl::Span<const MergeInput> inputs) {
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(CheckState(options, state));
  if (inputs.empty()) {
    return absl::InvalidArgumentError("an outer step needs a contribution");
  }
  std::vector<std::unique_ptr<Decoder>> decoders;
  std::vector<float> shares;
  for (size_t i = 0; i < inputs.size(); ++i) {
    absl::StatusOr<std::unique_ptr<Decoder>> decoder =
        OpenDecoder(inputs[i].spec, inputs[i].encoded, state.theta.size());
    if (!decoder.ok()) return AtContribution(decoder.status(), i);
    if (!(inputs[i].share >= 0 && inputs[i].share <= 1)) {
      return AtContribution(
          absl::InvalidArgumentError(
              absl::StrFormat("its share is %g, want 0 to 1", inputs[i].share)),
          i);
    }
    decoders.push_back(*std::move(decoder));
    shares.push_back(inputs[i].share);
  }
  // Large memory last, when nothing can be refused any more.
  std::unique_ptr<OuterStep> step =
      absl::WrapUnique(new OuterStep(options, state));
  step->decoders_ = std::move(decoders);
  step->shares_ = std::move(shares);
  return step;
}

void OuterStep::Run(uint64_t first, uint64_t last) {
  CHECK_LE(first, last);
  CHECK_LE(last, tiles());
  for (uint64_t tile = first; tile < last; ++tile) RunTile(tile);
}

void OuterStep::RunTile(uint64_t tile) {
  CHECK(tile_states_[tile] == TileState::kPending) << "tile " << tile;
  const uint64_t begin = tile * kTileValues;
  const size_t count = std::min(kTileValues, old_.theta.size() - begin);
  // g, then the change, in one place.
  std::array<float, kTileValues> change_buffer;
  std::array<float, kTileValues> decoded_buffer;
  float* const change = change_buffer.data();
  float* const decoded = decoded_buffer.data();

  std::fill_n(change, count, 0.0f);
  for (size_t i = 0; i < decoders_.size(); ++i) {
    decoders_[i]->NewCursor()->DecodeAccumulate(begin, shares_[i],
                                                absl::MakeSpan(change, count));
  }
  tile_sums_[tile] = SumOfSquares(change, count);

  FragmentState& next = result_.state;
  const StepCoefficients coefficients{.learning_rate = options_.learning_rate,
                                      .momentum = options_.momentum};
  if (options_.algorithm == v1::OuterOptimizerConfig::SGD) {
    SgdChange(coefficients, change, count);
  } else if (options_.algorithm == v1::OuterOptimizerConfig::NESTEROV) {
    NesterovChange(coefficients, change, old_.momentum.data() + begin,
                   next.momentum.data() + begin, count);
  } else {
    HeavyBallChange(coefficients, change, old_.momentum.data() + begin,
                    next.momentum.data() + begin, count);
  }
  const bool has_residual = HasResidual(options_);
  if (has_residual) AddResidual(old_.residual.data() + begin, change, count);
  encoder_->Encode(begin, absl::MakeConstSpan(change, count),
                   absl::MakeSpan(decoded, count));
  const bool finite = ApplyDecoded(
      change, decoded, old_.theta.data() + begin, next.theta.data() + begin,
      has_residual ? next.residual.data() + begin : nullptr, count);
  tile_states_[tile] = finite && std::isfinite(tile_sums_[tile])
                           ? TileState::kFinite
                           : TileState::kNotFinite;
}

absl::Status OuterStep::NotFiniteError(uint64_t tile) const {
  for (size_t i = 0; i < decoders_.size(); ++i) {
    if (const absl::Status status = decoders_[i]->CheckFinite(); !status.ok()) {
      return AtContribution(status, i);
    }
  }
  const uint64_t begin = tile * kTileValues;
  return absl::OutOfRangeError(absl::StrFormat(
      "the outer step leaves the range of fp32 among values %d to %d; "
      "momentum or parameters have diverged: lower "
      "outer_optimizer.learning_rate",
      begin, std::min(begin + kTileValues, old_.theta.size()) - 1));
}

absl::StatusOr<OuterStepResult> OuterStep::Finish() && {
  double sum = 0;
  for (uint64_t tile = 0; tile < tiles(); ++tile) {
    CHECK(tile_states_[tile] != TileState::kPending) << "tile " << tile;
    if (tile_states_[tile] == TileState::kNotFinite) {
      return NotFiniteError(tile);
    }
    sum += tile_sums_[tile];
  }
  result_.gradient_norm = std::sqrt(sum);
  result_.update.resize(encoder_->Finish());
  return std::move(result_);
}

absl::StatusOr<OuterStepResult> RunOuterStep(
    const OuterStepOptions& options, const FragmentStateView& state,
    absl::Span<const MergeInput> inputs) {
  ASSIGN_OR_RETURN(const std::unique_ptr<OuterStep> step,
                   OuterStep::Create(options, state, inputs));
  step->Run(0, step->tiles());
  return std::move(*step).Finish();
}

}  // namespace causeway
