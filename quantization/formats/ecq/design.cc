// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/ecq/design.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "quantization/strips/layout.h"

namespace causeway {
namespace {

constexpr int kBins = 4096;
// The histogram covers magnitudes up to 64, in units of the block. No value
// exceeds them: it is at most sqrt(256) times the root mean square of its
// block, which is at most sqrt(256) times the strip's.
constexpr double kBinsPerUnit = 64;

// Values are counted in groups of this number, the smallest block. In a full
// strip, one row of each group is enough of a sample, unless the block has a
// value beyond kLoud times the strip's root mean square: few such values can be
// most of the power.
constexpr uint64_t kGroup = 64;
constexpr uint64_t kRow = 16;
constexpr double kLoud = 6;

// Blocks with smaller units get scale 0, whatever the step.
constexpr double kSmallestUnit = 0x1p-106;

constexpr double kLeastLogStep = -5;
constexpr double kLargestLogStep = 5;
constexpr int kBisections = 14;

// The coder's table (24 bytes on average), the bytes that its 32 states take
// beyond the information they carry (96), and the strip's header.
constexpr double kOverheadBits =
    8.0 * (24 + 96 + StripHeader::kBytes) / static_cast<double>(kStripValues);
constexpr double kScaleBits = 16;

// The sums over all values below some magnitude.
struct Sums {
  double count = 0;
  // The sum over the values of their blocks' squared units.
  double weight = 0;
  // The sum of unit * |value|.
  double moment = 0;

  Sums operator-(const Sums& other) const {
    return {count - other.count, weight - other.weight, moment - other.moment};
  }
};

class Histogram {
 public:
  // Adds at most a group of values, each as `times` values. A magnitude times
  // `bins` gives its bin.
  void Add(absl::Span<const float> values, float bins, double times,
           double weight) {
    std::array<int, kGroup> places;
    for (size_t i = 0; i < values.size(); ++i) {
      places[i] = static_cast<int>(
          std::min(std::fabs(values[i]) * bins, static_cast<float>(kBins - 1)));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      bins_[places[i]].count += times;
      bins_[places[i]].weight += times * weight;
    }
  }
  void AddZeros(uint64_t count) {
    bins_[0].count += static_cast<double>(count);
  }

  // Computes the sums after the last Add().
  void Accumulate() {
    while (!bins_.empty() && bins_.back().count == 0) bins_.pop_back();
    below_.reserve(bins_.size() + 1);
    Sums sums;
    for (const Bin& bin : bins_) {
      below_.push_back(sums);
      const double low = static_cast<double>(below_.size() - 1) / kBinsPerUnit;
      const double high = static_cast<double>(below_.size()) / kBinsPerUnit;
      sums.count += bin.count;
      sums.weight += bin.weight;
      sums.moment += bin.weight * (low + high) / 2;
      // This is the mean square of a constant density.
      power_ += bin.weight * (low * low + low * high + high * high) / 3;
    }
    below_.push_back(sums);
  }

  Sums Below(double magnitude) const {
    const double place = magnitude * kBinsPerUnit;
    if (place >= static_cast<double>(bins_.size())) return below_.back();
    const size_t whole = static_cast<size_t>(place);
    const double part = place - static_cast<double>(whole);
    const Bin& bin = bins_[whole];
    const Sums& below = below_[whole];
    return {
        .count = below.count + part * bin.count,
        .weight = below.weight + part * bin.weight,
        .moment = below.moment + part * bin.weight *
                                     (static_cast<double>(whole) + part / 2) /
                                     kBinsPerUnit};
  }

  Sums All() const { return below_.back(); }
  // Returns the sum of the squares of all values.
  double power() const { return power_; }
  // Returns a magnitude that all values are below.
  double end() const {
    return static_cast<double>(bins_.size()) / kBinsPerUnit;
  }

 private:
  struct Bin {
    double count = 0;
    double weight = 0;
  };
  std::vector<Bin> bins_ = std::vector<Bin>(kBins);
  // The sums below each bin's lower end, and below the last bin's upper end.
  std::vector<Sums> below_;
  double power_ = 0;
};

// Returns the row that represents its group. Rows take turns in no order, so
// that no column of a matrix is always or never seen.
absl::Span<const float> SampleOf(absl::Span<const float> group,
                                 uint64_t number) {
  static_assert(kGroup / kRow == 4, "two bits are a row's number");
  return group.subspan(kRow * (number * 0x9e3779b97f4a7c15u >> 62), kRow);
}

void Fill(uint32_t block_size, absl::Span<const float> values,
          const EcqMeasures& measures, Histogram& histogram) {
  const double loud = kLoud * measures.root_mean_square;
  for (uint64_t begin = 0; begin < values.size(); begin += block_size) {
    const absl::Span<const float> block = values.subspan(begin, block_size);
    const double unit = measures.units[begin / block_size];
    if (unit < kSmallestUnit) {
      histogram.AddZeros(block.size());
      continue;
    }
    const float bins = static_cast<float>(kBinsPerUnit / unit);
    const bool is_sampled = values.size() == kStripValues &&
                            measures.absmax[begin / block_size] <= loud;
    for (uint64_t i = 0; i < block.size(); i += kGroup) {
      const absl::Span<const float> group = block.subspan(i, kGroup);
      if (is_sampled) {
        histogram.Add(SampleOf(group, (begin + i) / kGroup), bins,
                      kGroup / kRow, unit * unit);
      } else {
        histogram.Add(group, bins, 1, unit * unit);
      }
    }
  }
  histogram.Accumulate();
}

// The cost and the loss of a quantizer.
struct Outcome {
  // The rate in bits per value, including everything.
  double rate = 0;
  // The squared error / the sum of squares, with the best shift.
  double distortion = 0;
  uint8_t shift = 0;
};

Outcome Evaluate(const Histogram& histogram, double scale_bits, double step,
                 double offset) {
  const Sums all = histogram.All();
  double entropy = 0;
  const auto add_code = [&](double count) {
    if (count > 0) entropy -= count * std::log2(count / all.count);
  };
  // The sums over all values whose code k is not 0.
  Sums coded;
  double moment_k = 0;
  double weight_k = 0;
  double weight_k2 = 0;
  Sums below = histogram.Below((1 - offset) * step);
  add_code(below.count);
  // The loop continues beyond the top code: blocks with such values get larger
  // scales.
  for (int k = 1; (k - offset) * step < histogram.end(); ++k) {
    const Sums end = histogram.Below((k + 1 - offset) * step);
    const Sums cell = end - below;
    below = end;
    // The counts are of both signs.
    add_code(cell.count / 2);
    add_code(cell.count / 2);
    moment_k += cell.moment * k;
    weight_k += cell.weight * k;
    weight_k2 += cell.weight * k * k;
    coded.weight += cell.weight;
    coded.moment += cell.moment;
  }
  Outcome outcome;
  outcome.rate = entropy / all.count + scale_bits + kOverheadBits;
  if (coded.weight == 0) {
    outcome.distortion = 1;
    return outcome;
  }
  // The squared error is P - 2 sum r m + sum r^2 w over codes k with r =
  // (k - shift) step, moments m and weights w. It is quadratic in the shift.
  const double best = (weight_k * step - coded.moment) / (coded.weight * step);
  outcome.shift =
      static_cast<uint8_t>(std::clamp(std::round(256 * best), 0.0, 127.0));
  const double shift = outcome.shift / 256.0;
  const double cross = step * (moment_k - shift * coded.moment);
  const double square =
      step * step *
      (weight_k2 - 2 * shift * weight_k + shift * shift * coded.weight);
  outcome.distortion =
      (histogram.power() - 2 * cross + square) / histogram.power();
  return outcome;
}

// Returns the base-2 logarithm of the largest step for which `holds` is true.
// `holds` must be true for all smaller steps.
template <typename Predicate>
double LogOfLargestStep(const Predicate& holds) {
  double low = kLeastLogStep;
  double high = kLargestLogStep;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (low + high) / 2;
    (holds(std::exp2(middle)) ? low : high) = middle;
  }
  return low;
}

// Returns the smallest step that does not exceed the rate.
double StepOfRate(const Histogram& histogram, double bits, double scale_bits,
                  double offset) {
  const double log_step = LogOfLargestStep([&](double step) {
    return Evaluate(histogram, scale_bits, step, offset).rate > bits;
  });
  return std::exp2(log_step);
}

// Returns the largest step that does not exceed the distortion.
double StepOfDistortion(const Histogram& histogram, double distortion,
                        double offset) {
  const auto distortion_of = [&](double step) {
    return Evaluate(histogram, 0, step, offset).distortion;
  };
  const double step = std::exp2(LogOfLargestStep(
      [&](double step) { return distortion_of(step) < distortion; }));
  // Where many values are alike, a slightly larger step can turn all of them
  // into zeros. Scales are rounded and histograms have bins, so keep a
  // distance.
  const bool is_edge = distortion_of(step * 33 / 32) > 2 * distortion;
  return is_edge ? step * 15 / 16 : step;
}

}  // namespace

EcqQuantizer ChooseEcqQuantizer(const EncodeOptions& options,
                                uint32_t block_size,
                                absl::Span<const float> values,
                                const EcqMeasures& measures) {
  Histogram histogram;
  Fill(block_size, values, measures, histogram);
  if (histogram.power() == 0) return {};
  const double scale_bits = kScaleBits / block_size;
  EcqQuantizer best;
  double least_cost = std::numeric_limits<double>::infinity();
  for (const float offset : {0.5f, 0.42f}) {
    const double step =
        options.ecq_bits > 0
            ? StepOfRate(histogram, options.ecq_bits, scale_bits, offset)
            : StepOfDistortion(histogram, options.ecq_distortion, offset);
    const Outcome outcome = Evaluate(histogram, scale_bits, step, offset);
    const double cost =
        options.ecq_bits > 0 ? outcome.distortion : outcome.rate;
    if (cost >= least_cost) continue;
    least_cost = cost;
    best = {.step = step, .offset = offset, .shift = outcome.shift};
  }
  return best;
}

}  // namespace causeway
