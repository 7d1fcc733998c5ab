// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's metrics: the messages of the Status service in Prometheus's
// text format. docs/metrics.md lists them.
#ifndef SERVER_STATUS_METRICS_H_
#define SERVER_STATUS_METRICS_H_

#include <string>

#include "absl/time/time.h"
#include "common/metrics/metric_families.h"
#include "proto/status.pb.h"

namespace causeway {

// Adds the metrics of a run at `now`. Shows up to kMostIslands of `islands`:
// first the live ones, then departed ones that are missed (IsMissed) or were
// heard of in the last hour, most recent first. So islands that come and go
// cannot fill a Prometheus, and an alert on a missed island does not end with
// its metrics.
void AddStatus(const v1::RunStatus& run, const v1::ListIslandsResponse& islands,
               const v1::ListFragmentsResponse& fragments, absl::Time now,
               MetricFamilies& families);

// Adds whether this coordinator leads the run.
void AddLeads(const std::string& run, bool leads, MetricFamilies& families);

inline constexpr size_t kMostIslands = 1024;

}  // namespace causeway

#endif  // SERVER_STATUS_METRICS_H_
