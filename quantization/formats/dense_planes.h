// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The formats without scales, FP32 and BF16. The codes are the values: value i
// is at i * (bytes of a value), little-endian.
#ifndef QUANTIZATION_FORMATS_DENSE_PLANES_H_
#define QUANTIZATION_FORMATS_DENSE_PLANES_H_

#include "quantization/strips/planes.h"

namespace causeway {

const StripPlanes& Fp32Planes();
const StripPlanes& Bf16Planes();

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_DENSE_PLANES_H_
