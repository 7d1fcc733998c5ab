// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The picture of `causeway watch`: the run's state, its curves, its islands,
// its fragments and its last events, as much of it as the terminal has room
// for. Pure functions.
#ifndef CLI_WATCH_WATCH_SCREEN_H_
#define CLI_WATCH_WATCH_SCREEN_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/coordinator_client.h"
#include "cli/watch/screen.h"
#include "proto/status.pb.h"

namespace causeway {

// The state of a run as `causeway watch` knows it.
struct WatchedRun {
  StatusSnapshot status;
  v1::GetHistoryResponse history;
  // The last events that are worth a line, oldest first.
  std::deque<v1::Event> events;
  // The number of the last event of all.
  uint64_t last_event = 0;
};

// Returns at most `format.rows` lines. `trouble` says why there is no newer
// state; empty if there is one. Only that is shown before the first state.
std::vector<ScreenLine> DrawWatchScreen(const WatchedRun& run,
                                        const std::string& trouble,
                                        absl::Time now, absl::TimeZone zone,
                                        const ScreenFormat& format);

}  // namespace causeway

#endif  // CLI_WATCH_WATCH_SCREEN_H_
