// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/block_planes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "quantization/formats/block_kernels_cpu.h"
#include "quantization/formats/dense_kernels_cpu.h"
#include "quantization/formats/dense_reference.h"
#include "quantization/strips/layout.h"

namespace causeway {

static_assert(kPieceAlignment % kBlockUnit == 0);
static_assert(std::endian::native == std::endian::little,
              "scales and groups of codes are copied as they lie in memory");

namespace {

// Loops of this many steps that have no early exit become vector instructions.
constexpr uint64_t kRun = 64;

// Returns whether none of `count` scales is above `largest`.
bool AreAtMost(uint16_t largest, const char* scales, uint64_t count) {
  uint16_t run[kRun];
  uint16_t most = 0;
  for (; count >= kRun; count -= kRun, scales += sizeof(run)) {
    std::memcpy(run, scales, sizeof(run));
    for (const uint16_t scale : run) most = std::max(most, scale);
  }
  std::memcpy(run, scales, count * sizeof(*run));
  for (uint64_t i = 0; i < count; ++i) most = std::max(most, run[i]);
  return most <= largest;
}

// Returns the error for the bad scale of a block, values [begin, begin + count)
// of `size`.
absl::Status BadScale(BlockFormat format, uint16_t scale, uint64_t begin,
                      uint64_t count, uint64_t size) {
  const uint64_t last = begin + count - 1;
  const float value = FloatFromBf16(scale);
  if (std::isfinite(value)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the block of value %d of %d (to value %d) has scale %g, but scales "
        "are 0 to %g: the sender's encoder is at fault",
        begin, size, last, value, FloatFromBf16(LargestScale(format))));
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "the block of value %d of %d (to value %d) has scale %g; only finite "
      "values can be merged: the sender's training has diverged",
      begin, size, last, value));
}

// The rest of a strip after its whole units, padded with zeros to a unit.
struct LastUnit {
  float values[kBlockUnit] = {};
  char scales[2 * kBlockUnit / 64] = {};
  char codes[kBlockUnit] = {};
};

class BlockPlanes final : public StripPlanes {
 public:
  BlockPlanes(BlockFormat format, uint32_t block_size)
      : format_(format),
        block_size_(block_size),
        kernels_(CpuBlockKernels(format)) {}

  uint32_t code_bits() const override { return CodeBits(format_); }
  uint64_t ScaleBytes(uint64_t values) const override {
    return ScalePlaneBytes(values, block_size_);
  }
  uint64_t CodeBytes(uint64_t values) const override {
    return CodePlaneBytes(format_, values);
  }

  // Returns 0: the strips have no parameter.
  uint8_t Encode(const EncodeOptions&, absl::Span<const float> values,
                 StripPart part, absl::Span<float> decoded) const override;
  void Decode(ConstStripPart part, absl::Span<float> values) const override;
  void DecodeSum(absl::Span<const WeightedPart> terms,
                 absl::Span<float> sum) const override;
  double SumOfSquares(ConstStripPart part, uint64_t count) const override;
  absl::Status CheckFinite(ConstStripPart part, uint64_t count, uint64_t begin,
                           uint64_t size) const override {
    return CheckBlockScales(format_, block_size_, part.scales, count, begin,
                            size);
  }

 private:
  // Encodes the last values of a strip, fewer than a unit.
  void EncodeLast(absl::Span<const float> values, StripPart part,
                  absl::Span<float> decoded) const;
  // Decodes the last `count` values of `part`, which follow `whole` others.
  void DecodeLast(ConstStripPart part, uint64_t whole, uint64_t count,
                  LastUnit& last) const;

  const BlockFormat format_;
  const uint32_t block_size_;
  const BlockKernels& kernels_;
};

uint8_t BlockPlanes::Encode(const EncodeOptions&,
                            absl::Span<const float> values, StripPart part,
                            absl::Span<float> decoded) const {
  const uint64_t units = values.size() / kBlockUnit;
  kernels_.encode(block_size_, units, values.data(), part.scales, part.codes,
                  decoded.empty() ? nullptr : decoded.data());
  const uint64_t whole = units * kBlockUnit;
  if (whole == values.size()) return 0;
  EncodeLast(values.subspan(whole),
             {.scales = part.scales + ScaleBytes(whole),
              .codes = part.codes + CodeBytes(whole)},
             decoded.empty() ? decoded : decoded.subspan(whole));
  return 0;
}

void BlockPlanes::EncodeLast(absl::Span<const float> values, StripPart part,
                             absl::Span<float> decoded) const {
  LastUnit last;
  absl::c_copy(values, last.values);
  kernels_.encode(block_size_, 1, last.values, last.scales, last.codes,
                  last.values);
  std::memcpy(part.scales, last.scales, ScaleBytes(values.size()));
  std::memcpy(part.codes, last.codes, CodeBytes(values.size()));
  std::copy_n(last.values, decoded.size(), decoded.begin());
}

void BlockPlanes::Decode(ConstStripPart part, absl::Span<float> values) const {
  const uint64_t units = values.size() / kBlockUnit;
  kernels_.decode(block_size_, units, part.scales, part.codes, values.data());
  const uint64_t whole = units * kBlockUnit;
  const absl::Span<float> rest = values.subspan(whole);
  if (rest.empty()) return;
  LastUnit last;
  DecodeLast(part, whole, rest.size(), last);
  std::copy_n(last.values, rest.size(), rest.data());
}

void BlockPlanes::DecodeSum(absl::Span<const WeightedPart> terms,
                            absl::Span<float> sum) const {
  const uint64_t units = sum.size() / kBlockUnit;
  kernels_.sum(block_size_, units, terms.data(), terms.size(), sum.data());
  const uint64_t whole = units * kBlockUnit;
  const absl::Span<float> rest = sum.subspan(whole);
  if (rest.empty()) return;
  absl::c_fill(rest, 0.0f);
  for (const WeightedPart& term : terms) {
    LastUnit last;
    DecodeLast(term.part, whole, rest.size(), last);
    for (size_t i = 0; i < rest.size(); ++i) {
      rest[i] = Accumulate(rest[i], term.weight, last.values[i]);
    }
  }
}

double BlockPlanes::SumOfSquares(ConstStripPart part, uint64_t count) const {
  const uint64_t units = count / kBlockUnit;
  double sum =
      kernels_.sum_of_squares(block_size_, units, part.scales, part.codes);
  const uint64_t whole = units * kBlockUnit;
  if (whole == count) return sum;
  LastUnit last;
  DecodeLast(part, whole, count - whole, last);
  // The codes that fill up the last group mean nothing, and another encoder may
  // have written any.
  std::fill(last.values + (count - whole), std::end(last.values), 0.0f);
  // Each block's sum is exact in any order. The padding adds nothing.
  for (uint64_t at = 0; at < kBlockUnit; at += block_size_) {
    sum += causeway::SumOfSquares(last.values + at, block_size_);
  }
  return sum;
}

void BlockPlanes::DecodeLast(ConstStripPart part, uint64_t whole,
                             uint64_t count, LastUnit& last) const {
  std::memcpy(last.scales, part.scales + ScaleBytes(whole), ScaleBytes(count));
  std::memcpy(last.codes, part.codes + CodeBytes(whole), CodeBytes(count));
  kernels_.decode(block_size_, 1, last.scales, last.codes, last.values);
}

template <BlockFormat kFormat>
const StripPlanes& PlanesOf(uint32_t block_size) {
  static const BlockPlanes planes[] = {
      {kFormat, 64}, {kFormat, 128}, {kFormat, 256}};
  return planes[block_size / 128];
}

}  // namespace

const StripPlanes& BlockPlanesOf(BlockFormat format, uint32_t block_size) {
  switch (format) {
    case BlockFormat::kInt8:
      return PlanesOf<BlockFormat::kInt8>(block_size);
    case BlockFormat::kInt4:
      return PlanesOf<BlockFormat::kInt4>(block_size);
    case BlockFormat::kE3m0:
      break;
  }
  return PlanesOf<BlockFormat::kE3m0>(block_size);
}

absl::Status CheckBlockScales(BlockFormat format, uint32_t block_size,
                              const char* scales, uint64_t count,
                              uint64_t begin, uint64_t size) {
  const uint16_t largest = LargestScale(format);
  const uint64_t blocks = ScalePlaneBytes(count, block_size) / 2;
  if (AreAtMost(largest, scales, blocks)) return absl::OkStatus();
  uint64_t block = 0;
  uint16_t scale = 0;
  for (; scale <= largest; ++block) {
    // Codes above `largest` include infinities, NaN and negative numbers.
    std::memcpy(&scale, scales + 2 * block, sizeof(scale));
  }
  const uint64_t at = (block - 1) * block_size;
  return BadScale(format, scale, begin + at,
                  std::min<uint64_t>(block_size, count - at), size);
}

}  // namespace causeway
