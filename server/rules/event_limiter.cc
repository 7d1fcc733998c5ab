// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/event_limiter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace causeway {

std::vector<CoordinatorEvent> EventLimiter::Limit(
    std::vector<CoordinatorEvent> events, absl::Time now) {
  std::vector<CoordinatorEvent> recorded;
  if (now >= next_end_) {
    next_end_ = absl::InfiniteFuture();
    std::erase_if(windows_, [&](const auto& entry) {
      const auto& [key, window] = entry;
      if (now < window.end) {
        next_end_ = std::min(next_end_, window.end);
        return false;
      }
      if (window.events > kMost) {
        recorded.push_back(
            {"events_left_out", key.first,
             absl::StrCat("island ", key.first, ": ", window.events - kMost,
                          " more events ", key.second, " within ",
                          absl::FormatDuration(kWindow), " were left out")});
      }
      return true;
    });
  }
  for (CoordinatorEvent& event : events) {
    if (!event.island_id.empty()) {
      Window& window = windows_[{event.island_id, event.kind}];
      if (window.events == 0) window.end = now + kWindow;
      next_end_ = std::min(next_end_, window.end);
      if (++window.events > kMost) continue;
    }
    recorded.push_back(std::move(event));
  }
  return recorded;
}

}  // namespace causeway
