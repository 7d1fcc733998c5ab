// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strips/planes.h"

#include "quantization/formats/dense_kernels_cpu.h"

namespace causeway {

double StripPlanes::SumOfSquares(ConstStripPart part, uint64_t count) const {
  // These values stay in the first-level cache.
  float values[kTileValues];
  Decode(part, absl::MakeSpan(values, count));
  return causeway::SumOfSquares(values, count);
}

}  // namespace causeway
