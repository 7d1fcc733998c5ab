// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strips/progress.h"

#include "glog/logging.h"
#include "quantization/strips/layout.h"

namespace causeway {

StripProgress::StripProgress(uint64_t values)
    : strips_(StripCount(values)),
      missing_(std::make_unique<std::atomic<uint32_t>[]>(strips_)) {
  for (uint64_t strip = 0; strip < strips_; ++strip) {
    missing_[strip] = static_cast<uint32_t>(ValuesOfStrip(strip, values));
  }
}

void StripProgress::Add(uint64_t begin, uint64_t count) {
  bool finished_one = false;
  ForEachStripPart(begin, count, [&](uint64_t part, uint64_t length) {
    std::atomic<uint32_t>& missing = missing_[part / kStripValues];
    const uint32_t before = missing.load(std::memory_order_relaxed);
    CHECK_LE(length, before) << "values from " << part << " came twice";
    const uint32_t after = before - static_cast<uint32_t>(length);
    if (after > 0) {
      missing.store(after, std::memory_order_relaxed);
    } else {
      missing = 0;
      finished_one = true;
    }
  });
  if (!finished_one) return;
  // The loads below and the store of zero above are sequentially consistent: if
  // two threads finish neighbouring strips at once, one of them sees both.
  uint64_t leading = leading_;
  while (leading < strips_ && missing_[leading] == 0) {
    if (leading_.compare_exchange_weak(leading, leading + 1)) ++leading;
  }
}

}  // namespace causeway
