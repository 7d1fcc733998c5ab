// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The process of a simulated island: its surroundings, its possible ends, and
// its calls to the coordinator.
#ifndef TESTS_SIMULATION_PROCESS_H_
#define TESTS_SIMULATION_PROCESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/coordinator_host.h"
#include "tests/simulation/network.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/virtual_time.h"

namespace causeway::simulation {

// The parts of a history. They outlive the processes.
struct Parts {
  const Scenario* scenario;
  World* world;
  Network* network;
  CoordinatorHost* host;
  Checker* checker;
};

class Process {
 public:
  static constexpr absl::Duration kCallTimeout = absl::Seconds(10);

  Process(const Parts& parts, uint32_t island)
      : parts(parts),
        island(island),
        number(parts.checker->commits().NewProcess(island)),
        // Islands' clocks differ, too.
        clock_rate_(
            parts.scenario->Has(kClockSkew)
                ? 0.9 + 0.01 * static_cast<double>(parts.world->chance.Pick(21))
                : 1) {}

  const Parts parts;
  const uint32_t island;
  // The number that identifies the process in contents.h.
  const uint32_t number;

  bool dead() const { return dead_; }
  // Ends the process: none of its pending actions happen.
  void Die() {
    dead_ = true;
    deferred_.clear();
  }
  void Stall() { stalled_ = true; }
  void Resume() {
    stalled_ = false;
    while (!dead_ && !stalled_ && !deferred_.empty()) {
      const EventLoop::Action next = std::move(deferred_.front());
      deferred_.pop_front();
      next();
    }
  }

  // Runs `action` in the process.
  void Deliver(EventLoop::Action action) {
    if (dead_) return;
    if (stalled_) {
      deferred_.push_back(std::move(action));
    } else {
      action();
    }
  }
  void After(absl::Duration delay, EventLoop::Action action) {
    parts.world->loop.After(
        delay * clock_rate_,
        [this, action = std::move(action)] { Deliver(action); });
  }

  // Returns the time of the process's own clock.
  absl::Time now() const {
    return absl::UnixEpoch() +
           (parts.world->loop.now() - absl::UnixEpoch()) / clock_rate_;
  }

  // Makes a unary call: runs `serve` where the request arrives, perhaps twice,
  // and calls `done` once.
  template <typename Answer>
  void Call(std::function<void(CoordinatorHost::Reply<Answer>)> serve,
            CoordinatorHost::Reply<Answer> done) {
    const auto answer = [pending = true, done = std::move(done)](
                            const absl::StatusOr<Answer>& answer) mutable {
      if (std::exchange(pending, false)) done(answer);
    };
    auto once =
        std::make_shared<std::function<void(const absl::StatusOr<Answer>&)>>(
            answer);
    parts.network->Send(
        island, /*may_duplicate=*/true, [this, once, serve = std::move(serve)] {
          serve([this, once](const absl::StatusOr<Answer>& answer) {
            parts.network->Send(island, /*may_duplicate=*/false,
                                [this, once, answer] {
                                  Deliver([once, answer] { (*once)(answer); });
                                });
          });
        });
    After(kCallTimeout, [once] {
      (*once)(absl::DeadlineExceededError("no answer in time"));
    });
  }

 private:
  const double clock_rate_;
  bool dead_ = false;
  bool stalled_ = false;
  std::deque<EventLoop::Action> deferred_;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_PROCESS_H_
