// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Values that kernels of the block formats must encode as the reference does:
// what tests of the kernels for CPUs and for GPUs share. The same arguments
// give the same values.
#ifndef QUANTIZATION_FORMATS_TESTING_BLOCK_VALUES_H_
#define QUANTIZATION_FORMATS_TESTING_BLOCK_VALUES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "quantization/formats/block_format.h"

namespace causeway {

inline constexpr BlockFormat kAllBlockFormats[] = {
    BlockFormat::kInt8, BlockFormat::kInt4, BlockFormat::kE3m0};

// For the names of tests.
const char* BlockFormatName(BlockFormat format);

// Bits to compare: which ones of a NaN are set is not part of the contract.
std::vector<uint32_t> BitsOf(absl::Span<const float> values);

std::vector<float> GaussianValues(uint64_t count, uint32_t seed,
                                  float deviation);

// Finite floats of any bits: one outlier of a block sets its scale, most of the
// rest is far below it.
std::vector<float> ValuesOfAnyBits(uint64_t count);

// Magnitudes from 0 to beyond the least block that is not flushed.
std::vector<float> DenormalValues(uint64_t count);

// Small values and, here and there, the largest floats.
std::vector<float> ValuesWithOutliers(uint64_t count);

// Half-way between two levels of `format` under scales of eight significant
// bits, where half-ways are exact, and the floats around it.
std::vector<float> ValuesBetweenLevels(BlockFormat format, uint32_t block_size,
                                       uint64_t count, uint32_t seed);

// Every second block has only the value `bad`; of the others some have one.
std::vector<float> ValuesWithBad(float bad, uint32_t block_size,
                                 uint64_t count);

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_TESTING_BLOCK_VALUES_H_
