// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strips/entropy_encoder.h"

#include <cstring>

#include "glog/logging.h"
#include "quantization/strips/entropy_strip.h"
#include "quantization/strips/layout.h"

namespace causeway {

EntropyEncoder::EntropyEncoder(const StripPlanes& planes,
                               const EncodeOptions& options,
                               uint64_t first_value, uint64_t values,
                               absl::Span<char> buffer)
    : planes_(planes),
      options_(options),
      first_value_(first_value),
      values_(values),
      buffer_(buffer),
      waiting_(StripCount(values)) {}

void EntropyEncoder::Encode(uint64_t begin, absl::Span<const float> values,
                            absl::Span<float> decoded) {
  // A piece outside the vector is a bug of our own.
  CHECK_EQ(begin % kStripValues, 0u);
  CHECK_LE(begin, values_);
  CHECK_LE(values.size(), values_ - begin);
  const uint64_t end = begin + values.size();
  CHECK(end == values_ || end % kStripValues == 0) << end;
  if (!decoded.empty()) CHECK_EQ(decoded.size(), values.size());
  std::vector<char> codes;
  ForEachStripPart(begin, values.size(), [&](uint64_t part, uint64_t count) {
    const uint64_t strip = part / kStripValues;
    char* const place = PlaceOf(strip);
    const uint64_t bytes = EncodeEntropyStrip(
        planes_, options_, first_value_ + part,
        values.subspan(part - begin, count),
        decoded.empty() ? decoded : decoded.subspan(part - begin, count), codes,
        place);
    Finished(strip, place, bytes);
  });
}

uint64_t EntropyEncoder::Finish() {
  absl::MutexLock lock(&mutex_);
  CHECK_EQ(placed_, waiting_.size()) << "strips are missing";
  return ready_;
}

char* EntropyEncoder::PlaceOf(uint64_t strip) {
  absl::MutexLock lock(&mutex_);
  return buffer_.data() +
         (strip == placed_
              ? ready_.load()
              : strip * MaxEntropyStripBytes(planes_, kStripValues));
}

void EntropyEncoder::Finished(uint64_t strip, const char* place,
                              uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  CHECK(waiting_[strip].place == nullptr) << strip << " came twice";
  waiting_[strip] = {.place = place, .bytes = bytes};
  for (; placed_ < waiting_.size(); ++placed_) {
    const Waiting& next = waiting_[placed_];
    if (next.place == nullptr) break;
    char* const to = buffer_.data() + ready_;
    if (next.place != to) std::memmove(to, next.place, next.bytes);
    ready_ += next.bytes;
  }
}

}  // namespace causeway
