// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/ecq/planes.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "glog/logging.h"
#include "quantization/formats/block_format.h"
#include "quantization/formats/block_planes.h"
#include "quantization/formats/dense_reference.h"
#include "quantization/formats/ecq/design.h"
#include "quantization/formats/ecq/kernels_cpu.h"
#include "quantization/formats/ecq/reference.h"
#include "quantization/strips/layout.h"

namespace causeway {
namespace {

static_assert(std::endian::native == std::endian::little,
              "scales are copied as they lie in memory");

constexpr uint64_t kMostBlocks = kStripValues / 64;

uint16_t ScaleAt(ConstStripPart part, uint64_t block) {
  uint16_t scale;
  std::memcpy(&scale, part.scales + sizeof(scale) * block, sizeof(scale));
  return scale;
}

// The measures of a strip's blocks, taken before they are quantized.
struct Blocks {
  Blocks(uint32_t block_size, absl::Span<const float> values);

  EcqMeasures measures() const {
    return {.root_mean_square = std::sqrt(mean_square),
            .units = absl::MakeConstSpan(units).first(count),
            .absmax = absl::MakeConstSpan(absmax).first(count)};
  }

  uint64_t count = 0;
  double mean_square = 0;
  std::array<float, kMostBlocks> absmax;
  std::array<double, kMostBlocks> units;
};

Blocks::Blocks(uint32_t block_size, absl::Span<const float> values) {
  const uint64_t whole = values.size() / block_size;
  std::array<double, kMostBlocks> squares;
  MeasureEcqBlocks(block_size, whole, values.data(), squares.data(),
                   absmax.data());
  count = whole;
  if (const absl::Span<const float> rest = values.subspan(whole * block_size);
      !rest.empty()) {
    // Zeros change neither of the two.
    std::array<float, 256> padded = {};
    absl::c_copy(rest, padded.begin());
    MeasureEcqBlocks(block_size, 1, padded.data(), &squares[whole],
                     &absmax[whole]);
    ++count;
  }
  const auto block_mean_square = [&](uint64_t block) {
    const uint64_t begin = block * block_size;
    const uint64_t size = values.subspan(begin, block_size).size();
    return squares[block] / static_cast<double>(size);
  };
  double strip_squares = 0;
  for (uint64_t block = 0; block < count; ++block) {
    if (!std::isfinite(squares[block])) squares[block] = 0;
    strip_squares += squares[block];
  }
  mean_square = strip_squares / static_cast<double>(values.size());
  for (uint64_t block = 0; block < count; ++block) {
    units[block] = EcqUnit(block_mean_square(block), mean_square);
  }
}

// Scales and codes have the layout of BlockFormat::kInt8.
class EcqPlanes final : public StripPlanes {
 public:
  explicit EcqPlanes(uint32_t block_size) : block_size_(block_size) {}

  uint32_t code_bits() const override { return 8; }
  uint64_t ScaleBytes(uint64_t values) const override {
    return ScalePlaneBytes(values, block_size_);
  }
  uint64_t CodeBytes(uint64_t values) const override { return values; }

  uint8_t Encode(const EncodeOptions& options, absl::Span<const float> values,
                 StripPart part, absl::Span<float> decoded) const override;
  void Decode(ConstStripPart part, absl::Span<float> values) const override;
  void DecodeSum(absl::Span<const WeightedPart> terms,
                 absl::Span<float> sum) const override;
  absl::Status CheckFinite(ConstStripPart part, uint64_t count, uint64_t begin,
                           uint64_t size) const override {
    return CheckBlockScales(BlockFormat::kInt8, block_size_, part.scales, count,
                            begin, size);
  }

 private:
  const uint32_t block_size_;
};

uint8_t EcqPlanes::Encode(const EncodeOptions& options,
                          absl::Span<const float> values, StripPart part,
                          absl::Span<float> decoded) const {
  CHECK_LE(values.size(), kStripValues);
  const Blocks blocks(block_size_, values);
  const EcqQuantizer quantizer =
      ChooseEcqQuantizer(options, block_size_, values, blocks.measures());
  uint16_t scale = 0;
  for (uint64_t block = 0; block < blocks.count; ++block) {
    scale = EcqScale(quantizer.step, blocks.units[block], blocks.absmax[block]);
    std::memcpy(part.scales + sizeof(scale) * block, &scale, sizeof(scale));
  }
  const uint64_t whole = values.size() / block_size_;
  EncodeEcqBlocks(block_size_, whole, quantizer.offset, values.data(),
                  part.scales, part.codes);
  // The last block, if it is short, has the last scale.
  for (uint64_t i = whole * block_size_; i < values.size(); ++i) {
    part.codes[i] =
        static_cast<char>(EcqCode(scale, quantizer.offset, values[i]));
  }
  if (!decoded.empty()) {
    Decode({.scales = part.scales,
            .codes = part.codes,
            .parameter = quantizer.shift},
           decoded);
  }
  return quantizer.shift;
}

void EcqPlanes::Decode(ConstStripPart part, absl::Span<float> values) const {
  const uint64_t whole = values.size() / block_size_;
  DecodeEcqBlocks(block_size_, whole, part.parameter, part.scales, part.codes,
                  values.data());
  for (uint64_t i = whole * block_size_; i < values.size(); ++i) {
    values[i] = EcqValue(ScaleAt(part, whole), part.parameter,
                         static_cast<int8_t>(part.codes[i]));
  }
}

void EcqPlanes::DecodeSum(absl::Span<const WeightedPart> terms,
                          absl::Span<float> sum) const {
  const uint64_t whole = sum.size() / block_size_;
  absl::c_fill(sum, 0.0f);
  for (const auto& [part, weight] : terms) {
    DecodeAccumulateEcqBlocks(block_size_, whole, part.parameter, part.scales,
                              part.codes, weight, sum.data());
    for (uint64_t i = whole * block_size_; i < sum.size(); ++i) {
      sum[i] = Accumulate(sum[i], weight,
                          EcqValue(ScaleAt(part, whole), part.parameter,
                                   static_cast<int8_t>(part.codes[i])));
    }
  }
}

}  // namespace

const StripPlanes& EcqPlanesOf(uint32_t block_size) {
  static const EcqPlanes planes[] = {EcqPlanes(64), EcqPlanes(128),
                                     EcqPlanes(256)};
  return planes[block_size / 128];
}

}  // namespace causeway
