// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_METRICS_ISLAND_METRICS_H_
#define COMMON_METRICS_ISLAND_METRICS_H_

#include "absl/strings/string_view.h"
#include "common/metrics/metric_families.h"
#include "proto/coordinator.pb.h"

namespace causeway {

// Adds what an island reports. The coordinator and the island's worker publish
// the same metrics, each with its own `prefix`.
void AddIslandProgress(absl::string_view prefix,
                       const v1::IslandProgress& progress,
                       const MetricLabels& labels, MetricFamilies& families);

// Adds what each rank has trained, with a label for the rank.
void AddRanks(absl::string_view prefix, const v1::IslandProgress& progress,
              const MetricLabels& labels, MetricFamilies& families);

}  // namespace causeway

#endif  // COMMON_METRICS_ISLAND_METRICS_H_
