// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An OuterLoop that actors on several threads share: a mutex guards it, and
// actors wait for their next action.
//
//   while (true) {
//     SessionAction action = loop.AwaitSessionAction();
//     if (std::holds_alternative<action::End>(action)) return;
//     ... carry it out, without the lock ...
//     loop.Tell([&](OuterLoop& core, absl::Time now) {
//       core.membership().StreamOpened(now);
//     });
//   }
#ifndef WORKER_SYNC_SHARED_OUTER_LOOP_H_
#define WORKER_SYNC_SHARED_OUTER_LOOP_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "worker/outer_loop/outer_loop.h"

namespace causeway {

// Thread-safe.
class SharedOuterLoop {
 public:
  SharedOuterLoop(OuterLoop::Options options, Clock now)
      : now_(std::move(now)), core_(std::move(options)) {}

  // Each blocks until its actor has something to do. Returns Wait only at
  // `deadline`.
  TrainerAction AwaitTrainerAction(
      absl::Time deadline = absl::InfiniteFuture()) {
    return Await<TrainerAction>(
        [this](absl::Time now) {
          mu_.AssertHeld();
          return core_.NextForTrainer(now);
        },
        deadline);
  }
  SessionAction AwaitSessionAction() {
    return Await<SessionAction>([this](absl::Time now) {
      mu_.AssertHeld();
      return core_.NextForSession(now);
    });
  }
  FragmentAction AwaitFragmentAction(uint32_t fragment) {
    return Await<FragmentAction>([this, fragment](absl::Time now) {
      mu_.AssertHeld();
      return core_.NextForFragment(fragment, now);
    });
  }

  // Runs `event`, which takes the core and the time, and wakes the actors that
  // it gives something to do.
  template <typename Event>
  auto Tell(Event event) {
    absl::MutexLock lock(&mu_);
    ++events_;
    return event(core_, now_());
  }
  // Tells of a step. Wakes no actor, because a step changes only the next
  // action of the trainer, which calls this.
  void Stepped(uint64_t tokens) {
    absl::MutexLock lock(&mu_);
    core_.Stepped(tokens);
  }
  // Runs `view`, which takes the core and the time and changes nothing.
  template <typename View>
  auto Read(View view) const {
    absl::MutexLock lock(&mu_);
    return view(core_, now_());
  }

 private:
  template <typename Action, typename Next>
  Action Await(Next next, absl::Time deadline = absl::InfiniteFuture()) {
    absl::MutexLock lock(&mu_);
    while (true) {
      const absl::Time now = now_();
      Action action = next(now);
      const auto* const wait = std::get_if<action::Wait>(&action);
      if (wait == nullptr || now >= deadline) return action;
      const absl::Time until = std::min(wait->until, deadline);
      // The thread that tells of an event finds out whether it concerns this
      // actor. Most do not, and waking a thread costs more than asking.
      uint64_t seen = events_;
      bool is_due = false;
      const auto find_out = [&] {
        mu_.AssertHeld();
        if (is_due || events_ == seen) return is_due;
        seen = events_;
        const Action after = next(now_());
        const auto* const still = std::get_if<action::Wait>(&after);
        is_due = still == nullptr || still->until < until;
        return is_due;
      };
      mu_.AwaitWithTimeout(absl::Condition(&find_out), until - now);
    }
  }

  const Clock now_;
  mutable absl::Mutex mu_;
  OuterLoop core_ ABSL_GUARDED_BY(mu_);
  uint64_t events_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace causeway

#endif  // WORKER_SYNC_SHARED_OUTER_LOOP_H_
