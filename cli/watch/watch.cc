// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/watch.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/human.h"
#include "cli/status_facts.h"
#include "cli/status_report.h"
#include "common/status_macros.h"
#include "google/protobuf/repeated_field.h"

namespace causeway {
namespace {

// A large screen shows this many events.
constexpr size_t kMostEvents = 64;

// A history of more points is thinned out, as the coordinator does.
constexpr int kMostPoints = 2048;

// Removes every other point, but neither the first nor the last one, until
// there are few enough.
template <typename Point>
void ThinOut(google::protobuf::RepeatedPtrField<Point>& points) {
  while (points.size() > kMostPoints) {
    const int size = points.size();
    int kept = 1;
    for (int i = 1; i < size; ++i) {
      if ((size - i) % 2 == 1) points.SwapElements(kept++, i);
    }
    points.DeleteSubrange(kept, size - kept);
  }
}

void Print(const WatchedRun& run, const std::string& trouble, absl::Time now,
           std::ostream& out) {
  if (!trouble.empty()) out << trouble << "\n\n";
  if (!run.status.run.run_id().empty()) PrintStatus(run.status, now, out);
  out << "\n";
  out.flush();
}

}  // namespace

void Watch(const std::function<absl::Status(WatchedRun&)>& update,
           absl::Duration interval, const WatchEnvironment& environment) {
  WatchedRun run;
  absl::Time heard = environment.now();
  do {
    const absl::Status updated = update(run);
    const absl::Time now = environment.now();
    if (updated.ok()) heard = now;
    const std::string trouble =
        updated.ok()
            ? ""
            : absl::StrCat("no answer for ", HumanDuration(now - heard), ": ",
                           updated.message());
    const absl::Time shown = TimeOf(run.status.run, now);
    if (environment.terminal != nullptr) {
      environment.terminal->Draw(
          DrawWatchScreen(run, trouble, shown, environment.time_zone,
                          environment.terminal->Format()));
    } else {
      Print(run, trouble, shown, environment.out);
    }
  } while (environment.out.good() && environment.sleep(interval));
}

absl::Status UpdatePast(CoordinatorClient& client, WatchedRun& run) {
  // A takeover may lose versions and events, whose numbers others then get.
  const std::string past_of = absl::StrCat(
      run.status.run.run_id(), " in epoch ", run.status.run.epoch());
  if (run.past_of != past_of) {
    run.past_of = past_of;
    run.history.Clear();
    run.events.clear();
    run.last_event = 0;
  }
  RETURN_IF_ERROR(client.FetchHistory(run.history));
  ThinOut(*run.history.mutable_training());
  ThinOut(*run.history.mutable_validations());
  v1::WatchEventsRequest request;
  request.set_after_id(run.last_event);
  request.set_recorded_only(true);
  // The fragments' table and the curves show details.
  request.set_min_severity(v1::NOTICE);
  const absl::Status read = client.WatchEvents(
      request,
      [&](const v1::Event& event) {
        run.last_event = event.id();
        run.events.push_back(event);
        if (run.events.size() > kMostEvents) run.events.pop_front();
        return true;
      },
      /*limit_time=*/true);
  // The next time goes on with the rest of a long log.
  return absl::IsDeadlineExceeded(read) ? absl::OkStatus() : read;
}

}  // namespace causeway
