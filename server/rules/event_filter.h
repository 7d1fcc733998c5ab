// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Says how much each kind of event matters, and filters events for watchers.
#ifndef SERVER_RULES_EVENT_FILTER_H_
#define SERVER_RULES_EVENT_FILTER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/status.pb.h"

namespace causeway {

// Returns NOTICE for a kind that this version does not know.
v1::Severity SeverityOf(absl::string_view kind);

struct EventFilter {
  // Wanted kinds; empty for all.
  std::vector<std::string> kinds;
  v1::Severity min_severity = v1::SEVERITY_UNSPECIFIED;
  absl::Time since = absl::InfinitePast();

  bool Wants(absl::string_view kind, absl::Time time) const;
};

// INVALID_ARGUMENT, with a list of the kinds, if there is no such kind.
absl::StatusOr<EventFilter> FilterOf(const v1::WatchEventsRequest& request);

}  // namespace causeway

#endif  // SERVER_RULES_EVENT_FILTER_H_
