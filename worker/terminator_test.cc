// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/terminator.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/os/daemon.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

// Sends this process a signal, and waits until the terminator has taken it.
void Terminate() {
  kill(getpid(), SIGTERM);
  sigset_t pending;
  do {
    absl::SleepFor(absl::Milliseconds(1));
    sigpending(&pending);
  } while (sigismember(&pending, SIGTERM) == 1);
}

TEST(TerminatorTest, SignalsAtOnceAreOneRequest) {
  BlockTerminationSignals();
  // A service manager signals the supervisor and its ranks; the supervisor
  // passes its signal on a moment later.
  for (const bool later : {false, true}) {
    std::atomic<int> seconds = 0;
    absl::Notification left;
    std::atomic<bool> stopped = false;
    {
      const Terminator terminator(
          [&](const std::string&) { left.Notify(); }, [&] { stopped = true; },
          [] {},
          [&] { return absl::UnixEpoch() + absl::Seconds(seconds.load()); });
      Terminate();
      left.WaitForNotification();
      seconds = later ? 3 : 1;
      Terminate();
    }
    EXPECT_EQ(stopped, later);
  }
  // A pause without a signal does not forget them.
  EXPECT_FALSE(PauseUnlessInterrupted(absl::ZeroDuration()));
  EXPECT_TRUE(IsInterrupted());
}

}  // namespace
}  // namespace causeway
