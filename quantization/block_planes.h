// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Values of one strip, or a part of one, to and from its two planes
// (quantization/block_format.h): the kernels, for any number of values.
//
// `scales` and `codes` point into the planes where the first value's block and
// code lie. A part begins at a multiple of kPieceAlignment values of its strip.
#ifndef QUANTIZATION_BLOCK_PLANES_H_
#define QUANTIZATION_BLOCK_PLANES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "quantization/block_format.h"
#include "quantization/block_kernels_cpu.h"

namespace causeway {

// Thread-safe.
class BlockPlanes {
 public:
  BlockPlanes(BlockFormat format, uint32_t block_size);

  // Bytes of each plane of `values` values.
  uint64_t ScaleBytes(uint64_t values) const {
    return ScalePlaneBytes(values, block_size_);
  }
  uint64_t CodeBytes(uint64_t values) const {
    return CodePlaneBytes(format_, values);
  }

  // `decoded`, if it is not empty, has the size of `values`, may be the same
  // memory, and receives what Decode() will make of them.
  void Encode(absl::Span<const float> values, char* scales, char* codes,
              absl::Span<float> decoded) const;

  void Decode(const char* scales, const char* codes,
              absl::Span<float> values) const;

  // accumulator[i] += weight * decoded value i, rounded as Accumulate().
  void DecodeAccumulate(const char* scales, const char* codes, float weight,
                        absl::Span<float> accumulator) const;

  // INVALID_ARGUMENT if one of `count` values does not decode to a finite
  // number. Messages call them values [begin, begin + count) of `size`.
  absl::Status CheckFinite(const char* scales, const char* codes,
                           uint64_t count, uint64_t begin, uint64_t size) const;

 private:
  // What is left of a strip after its whole units.
  struct LastUnit;

  void DecodeLast(const char* scales, const char* codes, uint64_t count,
                  LastUnit& last) const;
  absl::Status BadScale(uint16_t scale, uint64_t begin, uint64_t size) const;

  const BlockFormat format_;
  const uint32_t block_size_;
  const BlockKernels& kernels_;
};

}  // namespace causeway

#endif  // QUANTIZATION_BLOCK_PLANES_H_
