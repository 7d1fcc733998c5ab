// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Lets one caller through at a time, in the order in which they came.
//
//   Turnstile uplink;
//   Turnstile::Turn turn(&uplink);  // waits for earlier turns
//   ...
//   turn.End();                     // or the destructor lets the next one go
#ifndef COMMON_TURNSTILE_H_
#define COMMON_TURNSTILE_H_

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace causeway {

// Thread-safe.
class Turnstile {
 public:
  // One caller's turn, for one thread.
  class Turn {
   public:
    // Blocks until all turns that began before have ended.
    explicit Turn(Turnstile* turnstile) : turnstile_(turnstile) {
      turnstile_->Enter();
    }
    ~Turn() { End(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    // Ends the turn; repeated calls do nothing.
    void End() {
      if (turnstile_ != nullptr) std::exchange(turnstile_, nullptr)->Leave();
    }

   private:
    Turnstile* turnstile_;
  };

 private:
  void Enter() {
    absl::MutexLock lock(&mu_);
    const uint64_t ticket = tickets_++;
    const auto admitted = [this, ticket] {
      mu_.AssertReaderHeld();
      return left_ == ticket;
    };
    mu_.Await(absl::Condition(&admitted));
  }

  void Leave() {
    absl::MutexLock lock(&mu_);
    ++left_;
  }

  absl::Mutex mu_;
  uint64_t tickets_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t left_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace causeway

#endif  // COMMON_TURNSTILE_H_
