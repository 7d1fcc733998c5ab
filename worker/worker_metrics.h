// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The metrics of a worker: its island's reports to the coordinator, and facts
// that only its own machine knows.
#ifndef WORKER_WORKER_METRICS_H_
#define WORKER_WORKER_METRICS_H_

#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/metrics/metric_families.h"
#include "proto/coordinator.pb.h"

namespace causeway {

// Thread-safe.
class WorkerMetrics {
 public:
  // Records that the island has joined the run.
  void SetRun(const v1::JoinResponse& joined);

  //   UNAVAILABLE  The island has not joined the run yet.
  absl::Status CheckJoined() const;

  // Adds the metrics, labelled with the run and the island, once it has joined.
  // `progress` is absent while the island starts again. The times are those of
  // CertificateExpiry::Get and its notice.
  void Add(const std::optional<v1::IslandProgress>& progress,
           absl::Time certificate_expiry, absl::Time certificate_notice,
           MetricFamilies& families) const;

 private:
  mutable absl::Mutex mu_;
  // Labels for the run and the island; empty before it has joined.
  MetricLabels labels_ ABSL_GUARDED_BY(mu_);
};

}  // namespace causeway

#endif  // WORKER_WORKER_METRICS_H_
