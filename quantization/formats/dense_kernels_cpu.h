// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of the formats without scales for CPUs. One source in Highway
// is compiled for several instruction sets; the best one that the machine has
// is chosen at run time. All are bit-identical to
// quantization/formats/dense_reference.h.
//
// Encoded bytes are little-endian and need no alignment. Source and destination
// do not overlap. Pure functions, thread-safe.
#ifndef QUANTIZATION_FORMATS_DENSE_KERNELS_CPU_H_
#define QUANTIZATION_FORMATS_DENSE_KERNELS_CPU_H_

#include <cstddef>

namespace causeway {

// Encodes `values` to 2 * count bytes at `encoded`.
void EncodeBf16(const float* values, size_t count, char* encoded);

// Decodes 2 * count bytes at `encoded` to `values`.
void DecodeBf16(const char* encoded, size_t count, float* values);

// Decodes and adds: accumulator[i] += weight * decoded[i], rounded as
// Accumulate().
void DecodeAccumulateBf16(const char* encoded, size_t count, float weight,
                          float* accumulator);
void DecodeAccumulateFp32(const char* encoded, size_t count, float weight,
                          float* accumulator);

// Returns whether none of the encoded values is infinite or NaN.
bool AllFiniteBf16(const char* encoded, size_t count);
bool AllFiniteFp32(const char* encoded, size_t count);

// A sum of squares in binary64. Partial sum j covers the values i with i mod 32
// = j, in order.
struct SquareSums {
  static constexpr size_t kCount = 32;

  // Returns the total of the partial sums, added in order of j.
  double Total() const;

  alignas(64) double partial[kCount] = {};
};
// Adds the squares of `values`. If several calls have the same sums, `count` is
// a multiple of SquareSums::kCount in all but the last.
void AddSquares(const float* values, size_t count, SquareSums& sums);
// Returns the total of a single call.
double SumOfSquares(const float* values, size_t count);

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_DENSE_KERNELS_CPU_H_
