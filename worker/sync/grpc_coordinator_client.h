// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// CoordinatorClient over gRPC. The control stream has a connection of its own,
// so that bulk data can never starve heartbeats. Bulk data are striped over
// other connections, and paced if a rate is given.
#ifndef WORKER_SYNC_GRPC_COORDINATOR_CLIENT_H_
#define WORKER_SYNC_GRPC_COORDINATOR_CLIENT_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/clock.h"
#include "grpcpp/security/credentials.h"
#include "worker/sync/coordinator_client.h"

namespace causeway {

// More streams than this cannot share a transfer (proto/coordinator.proto).
inline constexpr int kMaxBulkConnections = 64;

struct GrpcCoordinatorClientOptions {
  // host:port.
  std::string address;
  // As common/transport/credentials.h makes them.
  std::shared_ptr<grpc::ChannelCredentials> credentials =
      grpc::InsecureChannelCredentials();
  // Connections for bulk data, 1 to kMaxBulkConnections.
  int bulk_connections = 1;
  // Bytes per second to which bulk data are paced, each way; 0 does not pace.
  double uplink_bytes_per_second = 0;
  double downlink_bytes_per_second = 0;
  // Deadline of calls that carry no bulk data.
  absl::Duration call_deadline = absl::Seconds(20);
  // A transfer must be at least this fast, or its try ends and is resumed.
  double slowest_bytes_per_second = 16 * 1024;
  Clock now = SteadyWallClock();
};

std::unique_ptr<CoordinatorClient> NewGrpcCoordinatorClient(
    const GrpcCoordinatorClientOptions& options);

}  // namespace causeway

#endif  // WORKER_SYNC_GRPC_COORDINATOR_CLIENT_H_
