// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_METRICS_PROCESS_METRICS_H_
#define COMMON_METRICS_PROCESS_METRICS_H_

#include "common/metrics/metric_families.h"

namespace causeway {

// Adds the version of the program, and the process metrics that Prometheus's
// client libraries have in common, as far as the system provides them.
void AddProcessMetrics(MetricFamilies& families);

}  // namespace causeway

#endif  // COMMON_METRICS_PROCESS_METRICS_H_
