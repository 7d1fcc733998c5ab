// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The planes of the formats with one scale per block
// (quantization/formats/block_format.h): the kernels, for any number of values.
#ifndef QUANTIZATION_FORMATS_BLOCK_PLANES_H_
#define QUANTIZATION_FORMATS_BLOCK_PLANES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "quantization/formats/block_format.h"
#include "quantization/strips/planes.h"

namespace causeway {

// `block_size` is 64, 128 or 256.
const StripPlanes& BlockPlanesOf(BlockFormat format, uint32_t block_size);

// INVALID_ARGUMENT if one of the scales of `count` values is not what an
// encoder of `format` writes for finite values. Arguments are as for
// StripPlanes::CheckFinite().
absl::Status CheckBlockScales(BlockFormat format, uint32_t block_size,
                              const char* scales, uint64_t count,
                              uint64_t begin, uint64_t size);

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_BLOCK_PLANES_H_
