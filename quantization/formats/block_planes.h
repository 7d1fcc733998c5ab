// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The planes of the formats with one scale per block
// (quantization/formats/block_format.h). They apply the kernels to any number
// of values.
#ifndef QUANTIZATION_FORMATS_BLOCK_PLANES_H_
#define QUANTIZATION_FORMATS_BLOCK_PLANES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "quantization/formats/block_format.h"
#include "quantization/strips/planes.h"

namespace causeway {

// Returns the planes for blocks of `block_size` values: 64, 128 or 256.
const StripPlanes& BlockPlanesOf(BlockFormat format, uint32_t block_size);

// Checks the scales of `count` values. Arguments are as for
// StripPlanes::CheckFinite().
//   INVALID_ARGUMENT  an encoder of `format` never writes one of the scales for
//                     finite values.
absl::Status CheckBlockScales(BlockFormat format, uint32_t block_size,
                              const char* scales, uint64_t count,
                              uint64_t begin, uint64_t size);

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_BLOCK_PLANES_H_
