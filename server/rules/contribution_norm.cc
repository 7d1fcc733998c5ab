// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/contribution_norm.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/status_macros.h"
#include "quantization/kernels_cpu.h"

namespace causeway {
namespace {

// Values decoded at once: they stay in the first cache.
constexpr uint64_t kTile = 4096;

}  // namespace

absl::StatusOr<double> EncodedNorm(const CodecSpec& spec,
                                   absl::string_view encoded, uint64_t values) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                   OpenDecoder(spec, encoded, values));
  const std::unique_ptr<DecodeCursor> cursor = decoder->NewCursor();
  std::vector<float> tile(std::min(kTile, values));
  double sum = 0;
  for (uint64_t begin = 0; begin < values; begin += kTile) {
    const uint64_t size = std::min(kTile, values - begin);
    cursor->Decode(begin, absl::MakeSpan(tile).subspan(0, size));
    sum += SumOfSquares(tile.data(), size);
  }
  return std::sqrt(sum);
}

}  // namespace causeway
