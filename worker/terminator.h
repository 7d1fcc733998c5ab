// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Ends causeway-worker in order at a signal, or at a notice of pre-emption
// (--preemption_notice_file).
#ifndef WORKER_TERMINATOR_H_
#define WORKER_TERMINATOR_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace causeway {

// Returns whether a signal or a notice has asked the process to end.
// Thread-safe.
bool IsInterrupted();

// Waits for `pause` before there is a Terminator. Returns false if a signal has
// come, now or earlier.
bool PauseUnlessInterrupted(absl::Duration pause);

// Calls `leave` with the reason at the first termination signal or notice of
// pre-emption, `stop` at another signal more than two seconds later, and `tend`
// ten times a second, until destroyed.
class Terminator {
 public:
  Terminator(std::function<void(const std::string&)> leave,
             std::function<void()> stop, std::function<void()> tend,
             Clock now = SteadyWallClock());
  ~Terminator();

 private:
  absl::Notification done_;
  std::thread thread_;
};

}  // namespace causeway

#endif  // WORKER_TERMINATOR_H_
