// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef QUANTIZATION_CODEC_PLANES_H_
#define QUANTIZATION_CODEC_PLANES_H_

#include <memory>

#include "quantization/codec.h"
#include "quantization/strip_planes.h"

namespace causeway {

// How to read strips that are their planes side by side; null if they are not:
// formats without scales, and entropy coding. `spec` must pass CheckCodecSpec.
std::unique_ptr<const StripPlanes> NewStripPlanes(const CodecSpec& spec);

}  // namespace causeway

#endif  // QUANTIZATION_CODEC_PLANES_H_
