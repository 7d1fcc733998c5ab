// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_METRICS_METRICS_SERVER_H_
#define COMMON_METRICS_METRICS_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/http/http_server.h"
#include "common/metrics/metric_families.h"

namespace causeway {

// Serves /metrics at `address` (--metrics_listen), with what `add` adds and the
// metrics of this process; `ready` is as in HttpServer::Options. Logs the
// address. Returns null if `address` is empty. Errors of HttpServer::Start.
absl::StatusOr<std::unique_ptr<HttpServer>> StartMetricsServer(
    const std::string& address, const Clock& now,
    std::function<absl::Status()> ready,
    std::function<void(MetricFamilies&)> add);

}  // namespace causeway

#endif  // COMMON_METRICS_METRICS_SERVER_H_
