// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Bounds the events that strangers can cause at any rate.
#ifndef SERVER_RULES_QUIET_COUNT_H_
#define SERVER_RULES_QUIET_COUNT_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace causeway {

// Says which of many occurrences to record: one, then none for a minute. Not
// thread-safe.
class QuietCount {
 public:
  static constexpr absl::Duration kQuiet = absl::Minutes(1);

  // Notes an occurrence. If it must be recorded, returns how many before it
  // were not.
  std::optional<uint64_t> Note(absl::Time now) {
    // If the clock was put back, the end may be far away.
    if (now < quiet_until_ && quiet_until_ - now <= kQuiet) {
      ++unrecorded_;
      return std::nullopt;
    }
    quiet_until_ = now + kQuiet;
    return std::exchange(unrecorded_, 0);
  }

 private:
  absl::Time quiet_until_ = absl::InfinitePast();
  uint64_t unrecorded_ = 0;
};

}  // namespace causeway

#endif  // SERVER_RULES_QUIET_COUNT_H_
