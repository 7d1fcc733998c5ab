// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The loop of `causeway watch`.
#ifndef CLI_WATCH_WATCH_H_
#define CLI_WATCH_WATCH_H_

#include <functional>
#include <ostream>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/coordinator_client.h"
#include "cli/watch/terminal.h"
#include "cli/watch/watch_screen.h"

namespace causeway {

struct WatchEnvironment {
  std::function<absl::Time()> now;
  // The time zone in which events are shown.
  absl::TimeZone time_zone;
  // Shows the run; not owned. If null, the run is printed to `out` each time.
  Terminal* terminal = nullptr;
  std::ostream& out;
  // Waits between two updates; false ends the loop.
  std::function<bool(absl::Duration)> sleep;
};

// Updates and shows the run every `interval`. If an update fails, the last
// state stays under a line that says so, and the loop continues. Returns when
// environment.sleep returns false, or `out` fails.
void Watch(const std::function<absl::Status(WatchedRun&)>& update,
           absl::Duration interval, const WatchEnvironment& environment);

// Gets the history and the events since the last update of `run`; all of them
// if its status is now that of another run or epoch.
absl::Status UpdatePast(CoordinatorClient& client, WatchedRun& run);

}  // namespace causeway

#endif  // CLI_WATCH_WATCH_H_
