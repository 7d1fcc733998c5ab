// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/outer_step.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "hwy/aligned_allocator.h"
#include "outer_optimizer/outer_kernels.h"
#include "outer_optimizer/similarity.h"
#include "outer_optimizer/tensor_weights.h"
#include "quantization/codec_config.h"
#include "quantization/formats/dense_kernels_cpu.h"

namespace causeway {
namespace {

using Outer = v1::OuterOptimizerConfig;

// Refuses bad input, which may come from another machine's record. This
// machine's configuration was checked when it was read.
absl::Status CheckState(const OuterStepOptions& options,
                        const OuterStateView& state) {
  const auto fits = [&](absl::Span<const float> part, bool is_needed) {
    return part.size() == (is_needed ? state.theta.size() : 0);
  };
  if (!fits(state.momentum, HasMomentum(options)) ||
      !fits(state.residual, HasResidual(options)) ||
      !fits(state.gradient_sum, HasGradientSum(options))) {
    return absl::InvalidArgumentError(
        "the fragment's state does not have the parts that the outer optimizer "
        "and the downlink format need");
  }
  if (options.momentum_delay == 0) {
    return absl::InvalidArgumentError(
        "outer_optimizer.momentum_delay is 0, want at least 1");
  }
  return CheckEncodeOptions(options.downlink, options.downlink_options);
}

// Returns `status` prefixed with the contribution's place.
absl::Status AtContribution(const absl::Status& status, size_t index) {
  return absl::Status(status.code(), absl::StrCat("contribution ", index, ": ",
                                                  status.message()));
}

absl::StatusOr<Contributions> OpenContributions(
    absl::Span<const MergeInput> inputs, uint64_t values) {
  if (inputs.empty()) {
    return absl::InvalidArgumentError("an outer step needs a contribution");
  }
  Contributions contributions;
  for (size_t i = 0; i < inputs.size(); ++i) {
    absl::StatusOr<std::unique_ptr<Decoder>> decoder =
        OpenDecoder(inputs[i].spec, inputs[i].encoded, values, inputs[i].codes);
    if (!decoder.ok()) return AtContribution(decoder.status(), i);
    if (!(inputs[i].share >= 0 && inputs[i].share <= 1)) {
      return AtContribution(
          absl::InvalidArgumentError(
              absl::StrFormat("its share is %g, want 0 to 1", inputs[i].share)),
          i);
    }
    contributions.push_back(*std::move(decoder));
  }
  return contributions;
}

StepCoefficients CoefficientsOf(const OuterStepOptions& options,
                                uint64_t version) {
  const float mu = options.momentum;
  StepCoefficients by{.learning_rate = options.learning_rate,
                      .momentum_decay = mu,
                      .intake = 1,
                      .gradient_share = 1,
                      .momentum_share = mu};
  if (options.algorithm == Outer::HEAVY_BALL) {
    by.gradient_share = 0;
    by.momentum_share = 1;
  }
  if (options.algorithm != Outer::DELAYED_NESTEROV) return by;
  by.gradient_share = static_cast<float>(1.0 / options.momentum_delay);
  by.clears_sum = (version + 1) % options.momentum_delay == 0;
  if (by.clears_sum) {
    by.intake = by.gradient_share;
  } else {
    by.momentum_decay = 1;
    by.intake = 0;
    by.momentum_share = 0;
  }
  return by;
}

// Returns `array` from value `begin` on, or null if it is empty.
template <typename T>
T* At(absl::Span<T> array, uint64_t begin) {
  return array.empty() ? nullptr : array.data() + begin;
}

// The fused pass. Its arguments must outlive it.
class FusedStep {
 public:
  FusedStep(const OuterStepOptions& options, const OuterStateView& old,
            const Contributions& contributions, const MergeWeights& weights,
            const OuterStepOutput& output)
      : coefficients_(CoefficientsOf(options, old.version)),
        // Encoders that compress need whole strips, which then pass through the
        // second-level cache.
        piece_values_(std::max(kPieceValues, PieceAlignment(options.downlink))),
        block_values_(std::max(WeightedMerge::kTileValues, piece_values_)),
        old_(old),
        contributions_(contributions),
        weights_(weights),
        output_(output),
        encoder_(NewEncoder(options.downlink, options.downlink_options,
                            old.theta.size(), output.update)),
        strips_(StripCount(old.theta.size())),
        queue_(old.theta.size()) {}

  // Takes strips until none is left. Thread-safe.
  void Run() {
    Scratch scratch{.merge = {contributions_, weights_},
                    .change = hwy::AllocateAligned<float>(block_values_),
                    .decoded = hwy::AllocateAligned<float>(piece_values_)};
    while (const std::optional<ValueRange> strip = queue_.Take()) {
      Strip& result = strips_[strip->begin / kStripValues];
      for (uint64_t begin = strip->begin; begin < strip->end;
           begin += block_values_) {
        RunBlock(begin, std::min(block_values_, strip->end - begin), scratch,
                 result);
      }
    }
    FlushStreams();
  }

  // Returns the first strip with a result that is not finite. Call it after all
  // threads' Run().
  std::optional<uint64_t> FirstNotFinite() const {
    for (uint64_t i = 0; i < strips_.size(); ++i) {
      if (!strips_[i].finite) return i;
    }
    return std::nullopt;
  }

  OuterStepSummary Finish() {
    double sum = 0;
    for (const Strip& strip : strips_) sum += strip.sum_of_squares;
    return {.update_bytes = encoder_->Finish(),
            .gradient_norm = std::sqrt(sum)};
  }

 private:
  // The results for one strip of g.
  struct Strip {
    double sum_of_squares = 0;
    bool finite = true;
  };
  // A thread's own memory. Aligned, because vectors that straddle cache lines
  // take twice as long.
  struct Scratch {
    WeightedMerge merge;
    // Holds g, then the change.
    hwy::AlignedFreeUniquePtr<float[]> change;
    hwy::AlignedFreeUniquePtr<float[]> decoded;
  };

  // The values that go through the whole step together. They are few, so that
  // encoding, which needs no memory traffic, alternates quickly with the rest,
  // which memory bandwidth limits.
  static constexpr uint64_t kPieceValues = 512;

  // Runs a tile or, if it is larger, a piece.
  void RunBlock(uint64_t begin, uint64_t count, Scratch& scratch,
                Strip& strip) {
    const absl::Span<float> block(scratch.change.get(), count);
    for (uint64_t tile = 0; tile < count; tile += WeightedMerge::kTileValues) {
      const absl::Span<float> sum =
          block.subspan(tile, WeightedMerge::kTileValues);
      scratch.merge.Sum(begin + tile, sum);
      if (!output_.gradient.empty()) {
        std::copy(sum.begin(), sum.end(),
                  output_.gradient.begin() + begin + tile);
      }
      SquareSums squares;
      for (uint64_t at = 0; at < sum.size(); at += kPieceValues) {
        const absl::Span<float> piece = sum.subspan(at, kPieceValues);
        MakeChangeAt(begin + tile + at, piece, squares);
        if (piece_values_ == kPieceValues) {
          Apply(begin + tile + at, piece, scratch, strip);
        }
      }
      strip.sum_of_squares += squares.Total();
    }
    if (piece_values_ != kPieceValues) Apply(begin, block, scratch, strip);
    strip.finite &= std::isfinite(strip.sum_of_squares);
  }

  // Turns `gradient` into the change.
  void MakeChangeAt(uint64_t begin, absl::Span<float> gradient,
                    SquareSums& squares) const {
    AddSquares(gradient.data(), gradient.size(), squares);
    MakeChange(coefficients_,
               {.gradient = gradient.data(),
                .old_momentum = At(old_.momentum, begin),
                .new_momentum = At(output_.momentum, begin),
                .old_sum = At(old_.gradient_sum, begin),
                .new_sum = At(output_.gradient_sum, begin),
                .residual = At(old_.residual, begin)},
               gradient.size());
  }

  void Apply(uint64_t begin, absl::Span<const float> change, Scratch& scratch,
             Strip& strip) {
    const absl::Span<float> decoded(scratch.decoded.get(), change.size());
    encoder_->Encode(begin, change, decoded);
    strip.finite &= ApplyDecoded(
        change.data(), decoded.data(), At(old_.theta, begin),
        At(output_.theta, begin), At(output_.residual, begin), change.size());
  }

  const StepCoefficients coefficients_;
  const uint64_t piece_values_;
  // The number of values that RunBlock() takes.
  const uint64_t block_values_;
  const OuterStateView& old_;
  const Contributions& contributions_;
  const MergeWeights& weights_;
  const OuterStepOutput& output_;
  const std::unique_ptr<Encoder> encoder_;
  // Each is written by the thread that took the strip.
  std::vector<Strip> strips_;
  StripQueue queue_;
};

absl::Status NotFiniteError(const Contributions& contributions, uint64_t strip,
                            uint64_t values) {
  for (size_t i = 0; i < contributions.size(); ++i) {
    const absl::Status status = contributions[i]->CheckFinite();
    if (!status.ok()) return AtContribution(status, i);
  }
  const uint64_t begin = strip * kStripValues;
  return absl::OutOfRangeError(absl::StrFormat(
      "the outer step leaves the range of fp32 among values %d to %d; "
      "momentum or parameters have diverged: lower "
      "outer_optimizer.learning_rate",
      begin, begin + ValuesOfStrip(strip, values) - 1));
}

// Output of the wrong size would be our own bug.
void CheckOutput(const OuterStepOptions& options, const OuterStateView& state,
                 const OuterStepOutput& output) {
  CHECK_EQ(output.theta.size(), state.theta.size());
  CHECK_EQ(output.momentum.size(), state.momentum.size());
  CHECK_EQ(output.residual.size(), state.residual.size());
  CHECK_EQ(output.gradient_sum.size(), state.gradient_sum.size());
  CHECK_EQ(output.update.size(),
           MaxEncodedBytes(options.downlink, state.theta.size()));
  if (!output.gradient.empty()) {
    CHECK_EQ(output.gradient.size(), state.theta.size());
  }
}

}  // namespace

OuterStepOptions MakeOuterStepOptions(const v1::RunConfig& config,
                                      const v1::Fragment& fragment) {
  const Outer& optimizer = config.outer_optimizer();
  const v1::SynchronizationConfig& synchronization = config.synchronization();
  return {.algorithm = optimizer.algorithm(),
          .learning_rate = static_cast<float>(optimizer.learning_rate()),
          .momentum = static_cast<float>(optimizer.momentum()),
          .momentum_delay = optimizer.momentum_delay(),
          .tensor_merge = MakeTensorMerge(config, fragment),
          .downlink = DownlinkSpec(synchronization),
          .downlink_options = EncodeOptionsOf(synchronization)};
}

bool HasMomentum(const OuterStepOptions& options) {
  return options.algorithm != Outer::SGD;
}

bool HasResidual(const OuterStepOptions& options) {
  return !IsLossless(options.downlink.format);
}

bool HasGradientSum(const OuterStepOptions& options) {
  return options.algorithm == Outer::DELAYED_NESTEROV;
}

OuterState InitialOuterState(const OuterStepOptions& options,
                             std::vector<float> theta) {
  const size_t size = theta.size();
  return {
      .theta = std::move(theta),
      .momentum = std::vector<float>(HasMomentum(options) ? size : 0),
      .residual = std::vector<float>(HasResidual(options) ? size : 0),
      .gradient_sum = std::vector<float>(HasGradientSum(options) ? size : 0),
  };
}

absl::StatusOr<OuterStepSummary> RunOuterStep(
    const OuterStepOptions& options, const OuterStateView& state,
    absl::Span<const MergeInput> inputs, const OuterStepOutput& output,
    ThreadPool& pool) {
  RETURN_IF_ERROR(CheckState(options, state));
  CheckOutput(options, state, output);
  const uint64_t values = state.theta.size();
  ASSIGN_OR_RETURN(const Contributions contributions,
                   OpenContributions(inputs, values));
  std::vector<float> shares;
  std::vector<double> norms;
  for (const MergeInput& input : inputs) {
    shares.push_back(input.share);
    norms.push_back(input.norm);
  }
  const MergeWeights weights = TensorWeights(
      options.tensor_merge, contributions, std::move(shares), values, pool);
  FusedStep step(options, state, contributions, weights, output);
  pool.Run([&step](int) { step.Run(); });
  if (const std::optional<uint64_t> strip = step.FirstNotFinite()) {
    return NotFiniteError(contributions, *strip, values);
  }
  OuterStepSummary summary = step.Finish();
  summary.similarity = Similarity(weights, norms, summary.gradient_norm);
  return summary;
}

}  // namespace causeway
