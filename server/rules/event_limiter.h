// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Bounds the recorded events of an island, because it can cause events at any
// rate: for instance by heartbeats with changing trouble. At most kMost events
// of each kind are recorded in a window of time; one more event says how many
// were left out. Kinds are counted separately, so that noise hides no event of
// another kind.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_EVENT_LIMITER_H_
#define SERVER_RULES_EVENT_LIMITER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/rules/effects.h"

namespace causeway {

class EventLimiter {
 public:
  static constexpr uint64_t kMost = 60;
  static constexpr absl::Duration kWindow = absl::Hours(1);

  // Returns the `events` to record, preceded by an event for each ended window
  // in which events were left out. Records all events that belong to no island.
  std::vector<CoordinatorEvent> Limit(std::vector<CoordinatorEvent> events,
                                      absl::Time now);

 private:
  struct Window {
    absl::Time end;
    uint64_t events = 0;
  };

  // Keyed by island and kind.
  std::map<std::pair<std::string, std::string>, Window> windows_;
  // The earliest end of a window.
  absl::Time next_end_ = absl::InfiniteFuture();
};

}  // namespace causeway

#endif  // SERVER_RULES_EVENT_LIMITER_H_
