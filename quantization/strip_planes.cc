// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strip_planes.h"

#include <algorithm>
#include <iterator>

#include "quantization/kernels_cpu.h"

namespace causeway {

double StripPlanes::SumOfSquares(ConstStripPart part, uint64_t count) const {
  // They stay in the first-level cache.
  float tile[4096];
  double sum = 0;
  for (uint64_t begin = 0; begin < count; begin += std::size(tile)) {
    const uint64_t size = std::min<uint64_t>(count - begin, std::size(tile));
    Decode({.scales = part.scales + ScaleBytes(begin),
            .codes = part.codes + CodeBytes(begin),
            .parameter = part.parameter},
           absl::MakeSpan(tile, size));
    sum += causeway::SumOfSquares(tile, size);
  }
  return sum;
}

}  // namespace causeway
