// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The world in which a simulated history takes place: virtual time, chance from
// one seed, and a trace of the events. One world belongs to one history and one
// thread; the same seed makes the same world on every machine.
#ifndef TESTS_SIMULATION_VIRTUAL_TIME_H_
#define TESTS_SIMULATION_VIRTUAL_TIME_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <queue>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace causeway::simulation {

// Random choices. The class does its own arithmetic on the generator's output,
// because the distributions of the standard library differ between
// implementations.
class Chance {
 public:
  explicit Chance(uint64_t seed) : generator_(seed) {}

  // Returns 0 .. below - 1.
  uint64_t Pick(uint64_t below) { return generator_() % below; }
  // Returns low .. high, both included.
  uint64_t Between(uint64_t low, uint64_t high) {
    return low + Pick(high - low + 1);
  }
  bool OneIn(uint64_t n) { return Pick(n) == 0; }
  // Returns true in `percent` of 100 cases.
  bool Percent(uint64_t percent) { return Pick(100) < percent; }
  absl::Duration Between(absl::Duration low, absl::Duration high) {
    return low +
           absl::Microseconds(static_cast<int64_t>(Pick(static_cast<uint64_t>(
               absl::ToInt64Microseconds(high - low) + 1))));
  }

 private:
  std::mt19937_64 generator_;
};

// Runs actions in the order of their times; actions of one time run in the
// order in which they were added.
class EventLoop {
 public:
  using Action = std::function<void()>;

  absl::Time now() const { return now_; }
  void At(absl::Time time, Action action) {
    events_.push({std::max(time, now_), ++made_, std::move(action)});
  }
  void After(absl::Duration delay, Action action) {
    At(now_ + delay, std::move(action));
  }
  // Runs the next action. Returns false if there is none.
  bool RunNext() {
    if (events_.empty()) return false;
    now_ = events_.top().time;
    const Action action = std::move(events_.top().action);
    events_.pop();
    action();
    return true;
  }

 private:
  struct Event {
    absl::Time time;
    uint64_t number;
    // Running moves from the action, which does not affect the order.
    mutable Action action;

    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  absl::Time now_ = absl::UnixEpoch();
  uint64_t made_ = 0;
  std::priority_queue<Event> events_;
};

struct World {
  World(uint64_t seed, bool trace) : chance(seed), tracing(trace) {}

  template <typename... Parts>
  void Trace(const Parts&... parts) {
    if (!tracing) return;
    std::cout << absl::StrFormat(
        "%9.3f  %s\n", absl::ToDoubleSeconds(loop.now() - absl::UnixEpoch()),
        absl::StrCat(parts...));
  }

  EventLoop loop;
  Chance chance;
  const bool tracing;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_VIRTUAL_TIME_H_
