// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of quantization/formats/block_format.h, one value at a time:
// the reference that the kernels must equal bit for bit. Pure functions,
// thread-safe.
#ifndef QUANTIZATION_FORMATS_TESTING_BLOCK_REFERENCE_H_
#define QUANTIZATION_FORMATS_TESTING_BLOCK_REFERENCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quantization/formats/block_format.h"

namespace causeway {

// Returns the scale, a bfloat16 code, of a block whose largest magnitude is
// `absmax` (not negative): absmax / top level, rounded to binary32 and then to
// the nearest even bfloat16; 0 if that is below kSmallestScale; at most
// LargestScale(format). Infinity and NaN give kInfiniteScale and kNanScale.
uint16_t ScaleOfAbsmax(BlockFormat format, float absmax);

// Returns the sum of squares, in a fixed order, so that all machines get the
// same bits: partial sum j (0 <= j < 16) adds the squares of values j, 16 + j,
// 32 + j ... one after the other in binary64, where squares are exact; then
// partial sums j and j + 8 are added, j and j + 4, j and j + 2, and the last
// two.
double SumOfBlockSquares(absl::Span<const float> block);

// Returns the largest magnitude, or NaN if a value is NaN.
float LargestMagnitude(absl::Span<const float> block);

// Returns the code of a value in a block with this scale; 0 if the scale is 0
// or not finite. kE3m0 takes the nearest level exactly. The other formats take
// the level nearest to the quotient value * (1 / scale), both operations
// rounded to binary32. A value that rounds to zero loses its sign, so code 0 is
// the only zero.
uint8_t EncodeValue(BlockFormat format, uint16_t scale, float value);

// Returns level(code) * scale.
float DecodeValue(BlockFormat format, uint16_t scale, uint8_t code);

// Encode and decode strips, of any number of values, in the bytes of
// quantization/formats/block_format.h.
std::string EncodeBlocks(BlockFormat format, uint32_t block_size,
                         absl::Span<const float> values);
std::vector<float> DecodeBlocks(BlockFormat format, uint32_t block_size,
                                absl::string_view encoded, uint64_t values);

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_TESTING_BLOCK_REFERENCE_H_
