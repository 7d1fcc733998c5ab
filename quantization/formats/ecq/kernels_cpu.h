// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of ECQ for CPUs. One source in Highway is compiled for
// several instruction sets; the best one that the machine has is chosen at run
// time. All are bit-identical to quantization/formats/ecq/reference.h.
//
// Kernels work on whole blocks of 64, 128 or 256 values. `scales` and `codes`
// are the two planes from the first block on and need no alignment.
// Thread-safe.
#ifndef QUANTIZATION_FORMATS_ECQ_KERNELS_CPU_H_
#define QUANTIZATION_FORMATS_ECQ_KERNELS_CPU_H_

#include <cstddef>
#include <cstdint>

namespace causeway {

// Measures each block: the sum of its squares (SumOfBlockSquares() of
// quantization/formats/testing/block_reference.h) and its largest magnitude,
// which is NaN if a value is NaN.
void MeasureEcqBlocks(size_t block_size, size_t blocks, const float* values,
                      double* squares, float* absmax);

// Writes the EcqCode() of each value.
void EncodeEcqBlocks(size_t block_size, size_t blocks, float offset,
                     const float* values, const char* scales, char* codes);

// Writes the EcqValue() of each code.
void DecodeEcqBlocks(size_t block_size, size_t blocks, uint8_t shift,
                     const char* scales, const char* codes, float* values);

// Decodes and adds: accumulator[i] += weight * EcqValue() of code i, rounded as
// Accumulate().
void DecodeAccumulateEcqBlocks(size_t block_size, size_t blocks, uint8_t shift,
                               const char* scales, const char* codes,
                               float weight, float* accumulator);

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_ECQ_KERNELS_CPU_H_
