// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// How an island connects to its coordinator, and what it makes of the end of a
// call.
#ifndef WORKER_SYNC_COORDINATOR_CHANNEL_H_
#define WORKER_SYNC_COORDINATOR_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/security/credentials.h"

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
  // Bytes per second to which bulk data are paced, each way; 0 does not pace,
  // none takes the rate from transfers (common/transport/rate_finder.h).
  std::optional<double> uplink_bytes_per_second = 0.0;
  std::optional<double> downlink_bytes_per_second = 0.0;
  // Deadline of calls that carry no bulk data.
  absl::Duration call_deadline = absl::Seconds(20);
  // A transfer must be at least this fast, or its try ends and is resumed.
  double slowest_bytes_per_second = 16 * 1024;
  Clock now = SteadyWallClock();
};

// Each has a connection of its own.
std::shared_ptr<grpc::Channel> NewCoordinatorChannel(
    const GrpcCoordinatorClientOptions& options);

// Of a call that carries at most `bulk_bytes`.
absl::Duration CallTimeout(const GrpcCoordinatorClientOptions& options,
                           uint64_t bulk_bytes);

// How a call ended; names the address if it cannot be reached.
absl::Status CallStatus(const GrpcCoordinatorClientOptions& options,
                        const grpc::Status& status);

}  // namespace causeway

#endif  // WORKER_SYNC_COORDINATOR_CHANNEL_H_
