// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strips/planes.h"

#include "absl/algorithm/container.h"
#include "quantization/formats/dense_kernels_cpu.h"

namespace causeway {

void StripPlanes::DecodeSum(absl::Span<const WeightedPart> terms,
                            absl::Span<float> sum) const {
  absl::c_fill(sum, 0.0f);
  for (const WeightedPart& term : terms) {
    DecodeAccumulate(term.part, term.weight, sum);
  }
}

double StripPlanes::SumOfSquares(ConstStripPart part, uint64_t count) const {
  // These values stay in the first-level cache.
  float values[kTileValues];
  Decode(part, absl::MakeSpan(values, count));
  return causeway::SumOfSquares(values, count);
}

}  // namespace causeway
