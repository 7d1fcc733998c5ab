// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strips/plain_encoder.h"

#include <algorithm>

#include "glog/logging.h"
#include "quantization/strips/layout.h"

namespace causeway {

static_assert(kStripValues % kPieceAlignment == 0);

PlainEncoder::PlainEncoder(const StripPlanes& planes,
                           const EncodeOptions& options, uint64_t first_value,
                           uint64_t values, absl::Span<char> buffer)
    : planes_(planes),
      options_(options),
      first_value_(first_value),
      values_(values),
      buffer_(buffer),
      progress_(values) {
  // Strips are whole blocks and whole groups of codes, so the bytes of all
  // strips add up to those of the vector.
  CHECK_EQ(buffer.size(), planes.Bytes(values));
}

void PlainEncoder::Encode(uint64_t begin, absl::Span<const float> values,
                          absl::Span<float> decoded) {
  // A piece outside the vector is a bug of our own.
  CHECK_EQ(begin % kPieceAlignment, 0u);
  CHECK_LE(begin, values_);
  CHECK_LE(values.size(), values_ - begin);
  const uint64_t end = begin + values.size();
  CHECK(end == values_ || end % kPieceAlignment == 0) << end;
  if (!decoded.empty()) CHECK_EQ(decoded.size(), values.size());
  ForEachStripPart(begin, values.size(), [&](uint64_t part, uint64_t count) {
    planes_.Encode(
        options_, first_value_ + part, values.subspan(part - begin, count),
        PartAt(part),
        decoded.empty() ? decoded : decoded.subspan(part - begin, count));
  });
  progress_.Add(begin, values.size());
}

StripPart PlainEncoder::PartAt(uint64_t value) const {
  const uint64_t strip = value / kStripValues;
  const uint64_t in_strip = value % kStripValues;
  char* const scales = buffer_.data() + strip * planes_.Bytes(kStripValues);
  char* const codes =
      scales + planes_.ScaleBytes(ValuesOfStrip(strip, values_));
  return {.scales = scales + planes_.ScaleBytes(in_strip),
          .codes = codes + planes_.CodeBytes(in_strip)};
}

uint64_t PlainEncoder::ready() const {
  const uint64_t strips = progress_.leading_strips();
  return std::min(strips * planes_.Bytes(kStripValues), buffer_.size());
}

uint64_t PlainEncoder::Finish() {
  CHECK(progress_.finished());
  return buffer_.size();
}

}  // namespace causeway
