// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of quantization/formats/block_format.h for CPUs: one source
// in Highway, compiled for several instruction sets, of which the best that the
// machine has is taken at run time. Bit-identical to
// quantization/formats/block_reference.h on all of them.
//
// Kernels work on whole units of kBlockUnit values, which are whole blocks and
// whole groups of codes for every block size. What is left of a vector is
// encoded by the reference; for decoding the caller fills it up. `scales` and
// `codes` are the two planes from the unit on and need no alignment. Source and
// destination do not overlap. Thread-safe.
#ifndef QUANTIZATION_FORMATS_BLOCK_KERNELS_CPU_H_
#define QUANTIZATION_FORMATS_BLOCK_KERNELS_CPU_H_

#include <cstddef>
#include <cstdint>

#include "quantization/formats/block_format.h"
#include "quantization/strips/planes.h"

namespace causeway {

inline constexpr size_t kBlockUnit = 256;

struct BlockKernels {
  // `decoded`, if not null, receives what Decode() will make of the values; it
  // may be the same memory as `values`.
  void (*encode)(size_t block_size, size_t units, const float* values,
                 char* scales, char* codes, float* decoded);
  // Does the same with stochastic rounding, by the random numbers of values
  // `begin`, a multiple of 64, and on.
  void (*encode_stochastically)(size_t block_size, size_t units, uint64_t seed,
                                uint64_t begin, const float* values,
                                char* scales, char* codes, float* decoded);
  void (*decode)(size_t block_size, size_t units, const char* scales,
                 const char* codes, float* values);
  // accumulator[i] += weight * decoded[i], rounded as Accumulate().
  void (*decode_accumulate)(size_t block_size, size_t units, const char* scales,
                            const char* codes, float weight,
                            float* accumulator);
  // sum[i] = 0 + weight_0 * decoded_0[i] + ..., `count` terms in order, rounded
  // as Accumulate().
  void (*sum)(size_t block_size, size_t units, const WeightedPart* terms,
              size_t count, float* sum);
  // The sum of the values' squares in binary64: each block's by itself, without
  // rounding, then those of the blocks in order.
  double (*sum_of_squares)(size_t block_size, size_t units, const char* scales,
                           const char* codes);
};

// Returns the kernels of the best instruction set that this machine has.
const BlockKernels& CpuBlockKernels(BlockFormat format);

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_BLOCK_KERNELS_CPU_H_
