// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Values that kernels of the block formats must encode as the reference does.
// The tests of the kernels for CPUs and for GPUs share them. The same arguments
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

// Returns a name for the names of tests.
const char* BlockFormatName(BlockFormat format);

// Returns the bits to compare: the payload of a NaN is not part of the
// contract.
std::vector<uint32_t> BitsOf(absl::Span<const float> values);

std::vector<float> GaussianValues(uint64_t count, uint32_t seed,
                                  float deviation);

// Returns finite floats of any bits. One outlier of a block sets its scale, and
// most others are far below it.
std::vector<float> ValuesOfAnyBits(uint64_t count);

// Returns magnitudes from 0 to beyond the least block that is not flushed.
std::vector<float> DenormalValues(uint64_t count);

// Returns small values and, here and there, the largest floats.
std::vector<float> ValuesWithOutliers(uint64_t count);

// Returns values half-way between two levels of `format` under scales of eight
// significant bits, where half-ways are exact, and the floats around them.
std::vector<float> ValuesBetweenLevels(BlockFormat format, uint32_t block_size,
                                       uint64_t count, uint32_t seed);

// Returns values in which every second block has only the value `bad`, and some
// of the other blocks have it once.
std::vector<float> ValuesWithBad(float bad, uint32_t block_size,
                                 uint64_t count);

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_TESTING_BLOCK_VALUES_H_
