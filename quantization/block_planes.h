// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The planes of the formats with one scale per block
// (quantization/block_format.h): the kernels, for any number of values.
#ifndef QUANTIZATION_BLOCK_PLANES_H_
#define QUANTIZATION_BLOCK_PLANES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "quantization/block_format.h"
#include "quantization/block_kernels_cpu.h"
#include "quantization/encode_options.h"
#include "quantization/strip_planes.h"

namespace causeway {

class BlockPlanes final : public StripPlanes {
 public:
  // `first_value` is added to places of values where they decide random numbers
  // (quantization/part_encoder.h).
  BlockPlanes(BlockFormat format, uint32_t block_size,
              const EncodeOptions& options, uint64_t first_value = 0);

  uint32_t code_bits() const override { return CodeBits(format_); }
  uint64_t ScaleBytes(uint64_t values) const override {
    return ScalePlaneBytes(values, block_size_);
  }
  uint64_t CodeBytes(uint64_t values) const override {
    return CodePlaneBytes(format_, values);
  }

  // The strips have no parameter: it is 0.
  uint8_t Encode(uint64_t begin, absl::Span<const float> values, StripPart part,
                 absl::Span<float> decoded) const override;
  void Decode(ConstStripPart part, absl::Span<float> values) const override;
  void DecodeAccumulate(ConstStripPart part, float weight,
                        absl::Span<float> accumulator) const override;
  // sum[i] = 0 + the terms' weighted values i, in order, rounded as
  // Accumulate(). The terms are parts of as many encodings.
  void DecodeSum(absl::Span<const BlockTerm> terms,
                 absl::Span<float> sum) const;
  double SumOfTile(ConstStripPart part, uint64_t count) const override;
  absl::Status CheckFinite(ConstStripPart part, uint64_t count, uint64_t begin,
                           uint64_t size) const override;

 private:
  // What is left of a strip after its whole units, decoded as one more.
  struct LastUnit;

  // Decodes the last values of `part`, `count` of them after `whole` others.
  void DecodeLast(ConstStripPart part, uint64_t whole, uint64_t count,
                  LastUnit& last) const;
  // accumulator[i] += weight * value i of `last`.
  static void AccumulateLast(const LastUnit& last, float weight,
                             absl::Span<float> accumulator);
  absl::Status BadScale(uint16_t scale, uint64_t begin, uint64_t size) const;

  const BlockFormat format_;
  const uint32_t block_size_;
  const EncodeOptions options_;
  const uint64_t first_value_;
  const BlockKernels& kernels_;
};

}  // namespace causeway

#endif  // QUANTIZATION_BLOCK_PLANES_H_
