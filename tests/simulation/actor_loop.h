// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs an island's outer loop (worker/outer_loop/outer_loop.h), with the actors
// that carry out its orders, in virtual time. worker/sync/shared_outer_loop.h
// does the same with threads.
#ifndef TESTS_SIMULATION_ACTOR_LOOP_H_
#define TESTS_SIMULATION_ACTOR_LOOP_H_

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tests/simulation/process.h"
#include "worker/outer_loop/outer_loop.h"

namespace causeway::simulation {

class ActorLoop {
 public:
  // An actor, if it is idle, asks the core for work and begins it. It returns
  // the time at which the loop must ask it again even if nothing happens.
  using Actor = std::function<absl::Time()>;

  // `process` outlives the loop.
  ActorLoop(Process* process, OuterLoop::Options options)
      : process_(process), core_(std::move(options)) {}

  const OuterLoop& core() const { return core_; }
  OuterLoop& core() { return core_; }
  Process& process() { return *process_; }

  void Add(Actor actor) { actors_.push_back(std::move(actor)); }

  // Tells the core of an event, and wakes the actors.
  template <typename Event>
  void Tell(Event event) {
    event(core_, process_->now());
    Wake();
  }

  void Wake() {
    woken_ = true;
    if (asking_) return;
    asking_ = true;
    absl::Time until = absl::InfiniteFuture();
    while (std::exchange(woken_, false)) {
      until = absl::InfiniteFuture();
      // An actor may add others while it is asked.
      for (size_t i = 0; i < actors_.size() && !process_->dead(); ++i) {
        until = std::min(until, actors_[i]());
      }
    }
    asking_ = false;
    if (until == absl::InfiniteFuture() || until == alarm_) return;
    alarm_ = until;
    process_->After(std::max(until - process_->now(), absl::Microseconds(1)),
                    [this, until] {
                      if (alarm_ != until) return;
                      alarm_ = absl::InfiniteFuture();
                      Wake();
                    });
  }

 private:
  Process* const process_;
  OuterLoop core_;
  std::vector<Actor> actors_;
  bool asking_ = false;
  bool woken_ = false;
  // The time when the actors will be asked again.
  absl::Time alarm_ = absl::InfiniteFuture();
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_ACTOR_LOOP_H_
