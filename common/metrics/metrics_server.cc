// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/metrics/metrics_server.h"

#include <utility>

#include "common/metrics/process_metrics.h"
#include "common/status_macros.h"
#include "common/transport/socket_address.h"
#include "glog/logging.h"

namespace causeway {

absl::StatusOr<std::unique_ptr<HttpServer>> StartMetricsServer(
    const std::string& address, const Clock& now,
    std::function<absl::Status()> ready,
    std::function<void(MetricFamilies&)> add) {
  if (address.empty()) return nullptr;
  const auto metrics = [add = std::move(add)](const HttpRequest&) {
    MetricFamilies families;
    add(families);
    AddProcessMetrics(families);
    return HttpResponse{.content_type = kMetricsContentType,
                        .body = families.Text()};
  };
  ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> server,
                   HttpServer::Start({.address = address,
                                      .ready = std::move(ready),
                                      .handlers = {{"/metrics", metrics}},
                                      .now = now}));
  LOG(INFO) << "metrics at http://" << HostOf(address) << ":" << server->port()
            << "/metrics";
  LOG_IF(WARNING, !IsLoopback(address))
      << "anyone who can reach --metrics_listen " << address
      << " can read the metrics";
  return server;
}

}  // namespace causeway
