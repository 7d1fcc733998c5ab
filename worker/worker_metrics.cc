// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/worker_metrics.h"

#include "common/metrics/island_metrics.h"

namespace causeway {
namespace {

// Returns no value for a time that never comes.
double UnixTime(absl::Time time) {
  return time < absl::InfiniteFuture()
             ? absl::ToDoubleSeconds(time - absl::UnixEpoch())
             : Known(0);
}

}  // namespace

void WorkerMetrics::SetRun(const v1::JoinResponse& joined) {
  absl::MutexLock lock(&mu_);
  labels_ = {{"run", joined.config().name()},
             {"island", joined.identity().island_id()}};
}

absl::Status WorkerMetrics::CheckJoined() const {
  absl::MutexLock lock(&mu_);
  if (!labels_.empty()) return absl::OkStatus();
  return absl::UnavailableError("the island has not joined the run yet");
}

void WorkerMetrics::Add(const std::optional<v1::IslandProgress>& progress,
                        absl::Time certificate_expiry,
                        absl::Time certificate_notice,
                        MetricFamilies& families) const {
  constexpr char kPrefix[] = "causeway_worker_";
  absl::MutexLock lock(&mu_);
  families.AddSample({.name = "causeway_worker_joined",
                      .help = "1 once the island has joined the run."},
                     labels_.empty() ? 0 : 1, labels_);
  families.AddSample(
      {.name = "causeway_worker_certificate_expiry_timestamp_seconds",
       .help = "End of the island's certificate, as Unix time."},
      UnixTime(certificate_expiry), labels_);
  families.AddSample(
      {.name = "causeway_worker_certificate_notice_timestamp_seconds",
       .help =
           "Unix time by which the island's certificate should be renewed."},
      UnixTime(certificate_notice), labels_);
  if (labels_.empty() || !progress.has_value()) return;
  AddIslandProgress(kPrefix, *progress, labels_, families);
  AddRanks(kPrefix, *progress, labels_, families);
}

}  // namespace causeway
