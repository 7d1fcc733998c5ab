// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Bounds the events that are recorded of one island, which can cause them at
// any rate: by heartbeats of changing trouble, for instance. Of each kind,
// kMost are recorded in a window of time; one more event says how many were
// left out. Kinds are counted apart, so that noise hides no event of another
// kind.
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
#include "server/rules/coordinator.h"

namespace causeway {

class EventLimiter {
 public:
  static constexpr uint64_t kMost = 60;
  static constexpr absl::Duration kWindow = absl::Hours(1);

  // Returns those of `events` that are to be recorded, after an event for each
  // window that has ended and of which some were left out. Events of no island
  // are all recorded.
  std::vector<CoordinatorEvent> Limit(std::vector<CoordinatorEvent> events,
                                      absl::Time now);

 private:
  struct Window {
    absl::Time end;
    uint64_t events = 0;
  };

  // By island and kind.
  std::map<std::pair<std::string, std::string>, Window> windows_;
  // The earliest end of a window.
  absl::Time next_end_ = absl::InfiniteFuture();
};

}  // namespace causeway

#endif  // SERVER_RULES_EVENT_LIMITER_H_
