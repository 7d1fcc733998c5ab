// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The flags of `causeway events`, which select the events to show.
#ifndef CLI_EVENTS_EVENT_FLAGS_H_
#define CLI_EVENTS_EVENT_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cli/command_line.h"
#include "proto/status.pb.h"

namespace causeway {

struct EventFlags {
  uint64_t after = 0;
  bool follow = false;
  bool all = false;
  std::string severity;
  std::vector<std::string> kinds;
  std::string since;
};

// Adds the flags to `set`. `flags` is not owned.
void AddEventFlags(EventFlags& flags, FlagSet& set);

// Returns "detail", "notice", "warning" or "critical".
std::string SeverityName(v1::Severity severity);

// Returns the time that `text` names: a time in `zone`, or a duration before
// `now`.
//   INVALID_ARGUMENT  It is neither; the message has examples.
absl::StatusOr<absl::Time> ParseSince(absl::string_view text, absl::Time now,
                                      absl::TimeZone zone);

// Returns the request for what the flags select. INVALID_ARGUMENT names a flag.
absl::StatusOr<v1::WatchEventsRequest> EventsRequest(const EventFlags& flags,
                                                     absl::Time now,
                                                     absl::TimeZone zone);

}  // namespace causeway

#endif  // CLI_EVENTS_EVENT_FLAGS_H_
