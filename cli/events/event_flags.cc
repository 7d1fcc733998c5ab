// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/events/event_flags.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/proto_time.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

absl::StatusOr<v1::Severity> ParseSeverity(const std::string& name) {
  for (const v1::Severity severity :
       {v1::DETAIL, v1::NOTICE, v1::WARNING, v1::CRITICAL}) {
    if (SeverityName(severity) == name) return severity;
  }
  return UsageError(
      absl::StrCat("--severity is \"", name,
                   "\"; it is detail, notice, warning or critical"));
}

// Also accepts days, which absl::ParseDuration does not know.
bool ParseAge(absl::string_view text, absl::Duration& age) {
  double days = 0;
  absl::string_view number = text;
  if (absl::ConsumeSuffix(&number, "d") && absl::SimpleAtod(number, &days)) {
    age = days * absl::Hours(24);
  } else if (!absl::ParseDuration(text, &age)) {
    return false;
  }
  return age >= absl::ZeroDuration();
}

}  // namespace

void AddEventFlags(EventFlags& flags, FlagSet& set) {
  set.Add("after", "ID", "Shows only events with a higher number.",
          &flags.after);
  set.Add("follow", "",
          "Then shows new events as they happen, until interrupted. Restarts "
          "of the coordinator do not end it.",
          &flags.follow);
  set.Add("all", "",
          "Also shows routine events: merged rounds and measurements. The same "
          "as --severity detail.",
          &flags.all);
  set.Add("severity", "LEVEL",
          "Shows only events of at least this severity: detail, notice, "
          "warning or critical. Default: notice, or detail with --kind.",
          &flags.severity);
  set.Add("kind", "KIND...",
          "Shows only events of these kinds, such as island_evicted.",
          &flags.kinds);
  set.Add("since", "TIME",
          "Shows only events since a time: 90m, 2h or 3d ago, or since "
          "\"2026-11-25 14:30\".",
          &flags.since);
}

std::string SeverityName(v1::Severity severity) {
  return absl::AsciiStrToLower(v1::Severity_Name(severity));
}

absl::StatusOr<absl::Time> ParseSince(absl::string_view text, absl::Time now,
                                      absl::TimeZone zone) {
  absl::Duration age;
  if (ParseAge(text, age)) return now - age;
  absl::Time time;
  std::string error;
  for (const char* format : {absl::RFC3339_full, "%Y-%m-%d %H:%M:%S",
                             "%Y-%m-%d %H:%M", "%Y-%m-%d"}) {
    if (absl::ParseTime(format, text, zone, &time, &error)) return time;
  }
  return UsageError(
      absl::StrCat("--since is \"", text,
                   "\"; examples: 90m, 2h, 3d, 2026-11-25, \"2026-11-25 "
                   "14:30\", 2026-11-25T14:30:00Z"));
}

absl::StatusOr<v1::WatchEventsRequest> EventsRequest(const EventFlags& flags,
                                                     absl::Time now,
                                                     absl::TimeZone zone) {
  v1::WatchEventsRequest request;
  request.set_after_id(flags.after);
  request.set_recorded_only(!flags.follow);
  for (const std::string& kind : flags.kinds) request.add_kinds(kind);
  request.set_min_severity(flags.all || !flags.kinds.empty() ? v1::DETAIL
                                                             : v1::NOTICE);
  if (!flags.severity.empty()) {
    if (flags.all) {
      return UsageError("--all and --severity cannot both be given");
    }
    ASSIGN_OR_RETURN(const v1::Severity severity,
                     ParseSeverity(flags.severity));
    request.set_min_severity(severity);
  }
  if (!flags.since.empty()) {
    ASSIGN_OR_RETURN(const absl::Time since,
                     ParseSince(flags.since, now, zone));
    *request.mutable_since() = ToTimestamp(since);
  }
  return request;
}

}  // namespace causeway
