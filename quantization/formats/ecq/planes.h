// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The planes of ECQ (quantization/formats/ecq/reference.h). They choose the
// quantizer of each strip and call the kernels.
#ifndef QUANTIZATION_FORMATS_ECQ_PLANES_H_
#define QUANTIZATION_FORMATS_ECQ_PLANES_H_

#include <cstdint>

#include "quantization/strips/planes.h"

namespace causeway {

// Returns the planes for blocks of `block_size` values: 64, 128 or 256.
// Encoding takes a whole strip at once; the strip's parameter is the shift, in
// parts of 256.
const StripPlanes& EcqPlanesOf(uint32_t block_size);

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_ECQ_PLANES_H_
