// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strip_planes.h"

#include <algorithm>

#include "quantization/kernels_cpu.h"

namespace causeway {

double StripPlanes::SumOfSquares(ConstStripPart part, uint64_t count) const {
  double sum = 0;
  for (uint64_t begin = 0; begin < count; begin += kTileValues) {
    sum += SumOfTile({.scales = part.scales + ScaleBytes(begin),
                      .codes = part.codes + CodeBytes(begin),
                      .parameter = part.parameter},
                     std::min(count - begin, kTileValues));
  }
  return sum;
}

double StripPlanes::SumOfTile(ConstStripPart part, uint64_t count) const {
  // They stay in the first-level cache.
  float values[kTileValues];
  Decode(part, absl::MakeSpan(values, count));
  return causeway::SumOfSquares(values, count);
}

}  // namespace causeway
