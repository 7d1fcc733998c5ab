// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strips/encoder.h"

#include <cstring>

#include "glog/logging.h"
#include "quantization/strips/entropy_strip.h"
#include "quantization/strips/layout.h"

namespace causeway {

static_assert(kStripValues % kPieceAlignment == 0);

Encoder::Encoder(const StripPlanes& planes, bool entropy_coded,
                 const EncodeOptions& options, uint64_t values,
                 absl::Span<char> buffer)
    : planes_(planes),
      entropy_coded_(entropy_coded),
      options_(options),
      values_(values),
      buffer_(buffer),
      strip_bytes_(entropy_coded ? MaxEntropyStripBytes(planes, kStripValues)
                                 : planes.Bytes(kStripValues)),
      finished_(StripCount(values)) {
  for (uint64_t strip = 0; strip < StripCount(values); ++strip) {
    missing_.push_back(static_cast<uint32_t>(ValuesOfStrip(strip, values)));
  }
}

void Encoder::Encode(uint64_t begin, absl::Span<const float> values,
                     absl::Span<float> decoded) {
  // A piece outside the vector is a bug of our own.
  const uint64_t alignment = entropy_coded_ ? kStripValues : kPieceAlignment;
  CHECK_EQ(begin % alignment, 0u);
  CHECK_LE(begin, values_);
  CHECK_LE(values.size(), values_ - begin);
  const uint64_t end = begin + values.size();
  CHECK(end == values_ || end % alignment == 0) << end;
  if (!decoded.empty()) CHECK_EQ(decoded.size(), values.size());
  std::vector<char> codes;
  ForEachStripPart(begin, values.size(), [&](uint64_t part, uint64_t count) {
    const uint64_t strip = part / kStripValues;
    const absl::Span<const float> from = values.subspan(part - begin, count);
    const absl::Span<float> to =
        decoded.empty() ? decoded : decoded.subspan(part - begin, count);
    uint32_t& missing = missing_[strip];
    CHECK_LE(count, missing) << "values from " << part << " came twice";
    missing -= static_cast<uint32_t>(count);
    if (entropy_coded_) {
      char* const place = PlaceOf(strip);
      Finished(strip, place,
               EncodeEntropyStrip(planes_, options_, from, to, codes, place));
      return;
    }
    planes_.Encode(options_, from, PartAt(part), to);
    if (missing > 0) return;
    Finished(strip, buffer_.data() + strip * strip_bytes_,
             planes_.Bytes(ValuesOfStrip(strip, values_)));
  });
}

uint64_t Encoder::Finish() {
  absl::MutexLock lock(&mutex_);
  CHECK_EQ(placed_, finished_.size()) << "strips are missing";
  return ready_;
}

StripPart Encoder::PartAt(uint64_t value) const {
  const uint64_t strip = value / kStripValues;
  const uint64_t in_strip = value % kStripValues;
  char* const scales = buffer_.data() + strip * strip_bytes_;
  char* const codes =
      scales + planes_.ScaleBytes(ValuesOfStrip(strip, values_));
  return {.scales = scales + planes_.ScaleBytes(in_strip),
          .codes = codes + planes_.CodeBytes(in_strip)};
}

void Encoder::Finished(uint64_t strip, const char* place, uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  finished_[strip] = {.place = place, .bytes = bytes};
  for (; placed_ < finished_.size(); ++placed_) {
    const FinishedStrip& next = finished_[placed_];
    if (next.place == nullptr) break;
    char* const to = buffer_.data() + ready_;
    if (next.place != to) std::memmove(to, next.place, next.bytes);
    ready_ += next.bytes;
  }
}

}  // namespace causeway
