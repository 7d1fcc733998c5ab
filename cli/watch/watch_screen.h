// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Draws the screen of `causeway watch`: the run's state, curves, islands,
// fragments and last events, as far as the terminal has room. Pure functions.
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
  // The run and epoch of which the rest is known.
  std::string past_of;
  v1::GetHistoryResponse history;
  // The last events that are worth a line, oldest first.
  std::deque<v1::Event> events;
  // The id of the last event of any kind.
  uint64_t last_event = 0;
};

// Returns at most `format.rows` lines. `trouble` says why there is no newer
// state, or is empty. Before the first state, only `trouble` is shown.
std::vector<ScreenLine> DrawWatchScreen(const WatchedRun& run,
                                        const std::string& trouble,
                                        absl::Time now, absl::TimeZone zone,
                                        const ScreenFormat& format);

}  // namespace causeway

#endif  // CLI_WATCH_WATCH_SCREEN_H_
