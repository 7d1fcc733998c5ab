// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/event_filter.h"

#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace causeway {
namespace {

struct KindSeverity {
  absl::string_view kind;
  v1::Severity severity;
};

// docs/operations.md explains the kinds. Rounds come first, because they are
// most of a log.
constexpr KindSeverity kSeverities[] = {
    {"round_merged", v1::DETAIL},
    {"validated", v1::DETAIL},
    {"call_refused", v1::WARNING},
    {"certificate_revoked", v1::NOTICE},
    {"config_changed", v1::NOTICE},
    {"contribution_admitted", v1::NOTICE},
    {"contribution_dropped", v1::NOTICE},
    {"contribution_late", v1::NOTICE},
    {"contribution_quarantined", v1::WARNING},
    {"coordinator_replaced", v1::CRITICAL},
    {"coordinator_started", v1::NOTICE},
    {"data_accepted", v1::NOTICE},
    {"data_differs", v1::WARNING},
    {"enrolled", v1::NOTICE},
    {"enrolment_refused", v1::WARNING},
    {"events_left_out", v1::WARNING},
    {"follower_behind", v1::WARNING},
    {"follower_in_sync", v1::NOTICE},
    {"follower_joined", v1::NOTICE},
    {"follower_left", v1::WARNING},
    {"follower_promoted", v1::WARNING},
    {"island_draining", v1::NOTICE},
    {"island_evicted", v1::WARNING},
    {"island_even", v1::NOTICE},
    {"island_failed", v1::WARNING},
    {"island_joined", v1::NOTICE},
    {"island_left", v1::NOTICE},
    {"island_slow", v1::WARNING},
    {"link_slow", v1::WARNING},
    {"log_reconciled", v1::NOTICE},
    {"rank_back", v1::NOTICE},
    {"rank_corrupt", v1::WARNING},
    {"rank_dead", v1::WARNING},
    {"rank_slow", v1::WARNING},
    {"rank_stuck", v1::WARNING},
    {"ranks_even", v1::NOTICE},
    {"run_finished", v1::NOTICE},
    {"run_paused", v1::WARNING},
    {"run_resumed", v1::NOTICE},
    {"run_started", v1::NOTICE},
    {"run_suspended", v1::CRITICAL},
    {"token_created", v1::NOTICE},
    {"token_revoked", v1::NOTICE},
    {"uplink_bits", v1::NOTICE},
    {"uplink_too_slow", v1::WARNING},
};

const KindSeverity* Find(absl::string_view kind) {
  const auto* const found = absl::c_find_if(
      kSeverities, [&](const KindSeverity& one) { return one.kind == kind; });
  return found == std::end(kSeverities) ? nullptr : found;
}

}  // namespace

v1::Severity SeverityOf(absl::string_view kind) {
  const KindSeverity* const found = Find(kind);
  return found == nullptr ? v1::NOTICE : found->severity;
}

bool EventFilter::Wants(absl::string_view kind, absl::Time time) const {
  return time >= since && SeverityOf(kind) >= min_severity &&
         (kinds.empty() || absl::c_find(kinds, kind) != kinds.end());
}

absl::StatusOr<EventFilter> FilterOf(const v1::WatchEventsRequest& request) {
  EventFilter filter = {
      .kinds = {request.kinds().begin(), request.kinds().end()},
      .min_severity = request.min_severity()};
  for (const std::string& kind : filter.kinds) {
    if (Find(kind) != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "there are no events of kind \"", kind, "\", but of these kinds: ",
        absl::StrJoin(kSeverities, ", ",
                      [](std::string* out, const KindSeverity& one) {
                        absl::StrAppend(out, one.kind);
                      })));
  }
  if (request.has_since()) {
    filter.since = absl::FromUnixSeconds(request.since().seconds()) +
                   absl::Nanoseconds(request.since().nanos());
  }
  return filter;
}

}  // namespace causeway
