// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of quantization/formats/block_format.h for CPUs. One source
// in Highway is compiled for several instruction sets; the best one that the
// machine has is chosen at run time. All are bit-identical to
// quantization/formats/testing/block_reference.h.
//
// Kernels work on whole units of kBlockUnit values, which are whole blocks and
// whole groups of codes for every block size. Callers pad the rest of a vector
// to a unit. `scales` and `codes` are the two planes from the unit on and need
// no alignment. Source and destination do not overlap. Thread-safe.
#ifndef QUANTIZATION_FORMATS_BLOCK_KERNELS_CPU_H_
#define QUANTIZATION_FORMATS_BLOCK_KERNELS_CPU_H_

#include <cstddef>

#include "quantization/formats/block_format.h"
#include "quantization/strips/planes.h"

namespace causeway {

inline constexpr size_t kBlockUnit = 256;

struct BlockKernels {
  // Encodes. `decoded`, if not null, receives the values that decode() will
  // return; it may be the same memory as `values`.
  void (*encode)(size_t block_size, size_t units, const float* values,
                 char* scales, char* codes, float* decoded);
  void (*decode)(size_t block_size, size_t units, const char* scales,
                 const char* codes, float* values);
  // Computes sum[i] = 0 + weight_0 * decoded_0[i] + ..., `count` terms in
  // order, rounded as Accumulate().
  void (*sum)(size_t block_size, size_t units, const WeightedPart* terms,
              size_t count, float* sum);
  // Returns the sum of the values' squares in binary64: each block's sum, which
  // needs no rounding, and then the sum over the blocks in order.
  double (*sum_of_squares)(size_t block_size, size_t units, const char* scales,
                           const char* codes);
};

// Returns the kernels of the best instruction set that this machine has.
const BlockKernels& CpuBlockKernels(BlockFormat format);

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_BLOCK_KERNELS_CPU_H_
