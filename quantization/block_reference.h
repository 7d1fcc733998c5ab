// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of quantization/block_format.h, one value at a time: the truth
// that the kernels must equal bit for bit. Pure functions, thread-safe.
#ifndef QUANTIZATION_BLOCK_REFERENCE_H_
#define QUANTIZATION_BLOCK_REFERENCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quantization/block_format.h"

namespace causeway {

// The scale, a bfloat16 code, of a block whose largest magnitude is `absmax`
// (not negative): absmax / top level, rounded to binary32 and then to nearest
// even bfloat16; 0 if that is below kSmallestScale; at most
// LargestScale(format). Infinity and NaN give kInfiniteScale and kNanScale.
uint16_t ScaleOfAbsmax(BlockFormat format, float absmax);

// The same of a block's values; a NaN outweighs all.
uint16_t ScaleOfBlock(BlockFormat format, absl::Span<const float> block);

// The code of a value of a block that has this scale; 0 if the scale is 0 or
// not finite. Exact for kE3m0. The others take the level nearest to the
// quotient value * (1 / scale), both operations rounded to binary32. A value
// that rounds to zero loses its sign, so code 0 is the only zero.
uint8_t EncodeValue(BlockFormat format, uint16_t scale, float value);

// level(code) * scale.
float DecodeValue(BlockFormat format, uint16_t scale, uint8_t code);

// Strips, of any number of values, in the bytes of quantization/block_format.h.
std::string EncodeBlocks(BlockFormat format, uint32_t block_size,
                         absl::Span<const float> values);
std::vector<float> DecodeBlocks(BlockFormat format, uint32_t block_size,
                                absl::string_view encoded, uint64_t values);

}  // namespace causeway

#endif  // QUANTIZATION_BLOCK_REFERENCE_H_
