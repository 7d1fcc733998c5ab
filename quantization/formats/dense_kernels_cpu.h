// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The formats' inner loops for CPUs: one source in Highway, compiled for
// several instruction sets, of which the best that the machine has is taken at
// run time. Bit-identical to quantization/formats/dense_reference.h on all of
// them.
//
// Encoded bytes are little-endian and need no alignment. Source and
// destination do not overlap. Pure functions, thread-safe.
#ifndef QUANTIZATION_FORMATS_DENSE_KERNELS_CPU_H_
#define QUANTIZATION_FORMATS_DENSE_KERNELS_CPU_H_

#include <cstddef>

namespace causeway {

// `values` -> 2 * count bytes at `encoded`.
void EncodeBf16(const float* values, size_t count, char* encoded);

// 2 * count bytes at `encoded` -> `values`.
void DecodeBf16(const char* encoded, size_t count, float* values);

// accumulator[i] += weight * decoded[i], rounded as Accumulate().
void DecodeAccumulateBf16(const char* encoded, size_t count, float weight,
                          float* accumulator);
void DecodeAccumulateFp32(const char* encoded, size_t count, float weight,
                          float* accumulator);

// Whether none of the encoded values is infinite or NaN.
bool AllFiniteBf16(const char* encoded, size_t count);
bool AllFiniteFp32(const char* encoded, size_t count);

// A sum of squares in binary64: partial sum j is over the values i with
// i mod 32 = j, in order.
struct SquareSums {
  static constexpr size_t kCount = 32;

  // Adds the partial sums in order of j.
  double Total() const;

  alignas(64) double partial[kCount] = {};
};
// Adds the squares of `values`. In several calls with the same sums, `count` is
// a multiple of SquareSums::kCount in all but the last.
void AddSquares(const float* values, size_t count, SquareSums& sums);
// The total of one call.
double SumOfSquares(const float* values, size_t count);

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_DENSE_KERNELS_CPU_H_
