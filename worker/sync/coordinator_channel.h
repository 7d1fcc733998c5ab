// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An island's connections to its coordinator, and the statuses of calls over
// them.
#ifndef WORKER_SYNC_COORDINATOR_CHANNEL_H_
#define WORKER_SYNC_COORDINATOR_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/transport/coordinator_target.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/security/credentials.h"

namespace causeway {

// The most streams that can share a transfer (proto/coordinator.proto).
inline constexpr int kMaxBulkConnections = 64;

// The unit of users' rates: 1e6 bits per second.
inline constexpr double kBytesPerMbit = 1e6 / 8;

struct GrpcCoordinatorClientOptions {
  // One address, or several (common/transport/coordinator_target.h).
  std::string address;
  // The region from whose follower, if there is one, the island fetches; if
  // empty, it fetches from the coordinator.
  std::string region = "";
  // Credentials from common/transport/credentials.h.
  std::shared_ptr<grpc::ChannelCredentials> credentials =
      grpc::InsecureChannelCredentials();
  // Is true if `credentials` are for TLS.
  bool tls = false;
  // Connections for bulk data, 1 to kMaxBulkConnections.
  int bulk_connections = 1;
  // Bytes per second to which bulk data are paced, each way. 0 does not pace.
  double uplink_bytes_per_second = 0;
  double downlink_bytes_per_second = 0;
  // The deadline of calls without bulk data.
  absl::Duration call_deadline = absl::Seconds(20);
  // The lowest rate of a transfer. A slower try ends, and the next one resumes.
  double slowest_bytes_per_second = 16 * 1024;
  Clock now;
};

// Returns the arguments of channels to coordinators and followers. Each channel
// has connections of its own.
grpc::ChannelArguments ChannelArgumentsOfIsland();

// Returns `count` channels to `target`, with one connection to each address.
std::vector<std::shared_ptr<grpc::Channel>> NewChannels(
    const GrpcCoordinatorClientOptions& options,
    const CoordinatorTarget& target, int count);

// Returns the timeout of a call that carries at most `bulk_bytes`.
absl::Duration CallTimeout(const GrpcCoordinatorClientOptions& options,
                           uint64_t bulk_bytes);

// "the coordinator at ADDRESS".
std::string CoordinatorName(const GrpcCoordinatorClientOptions& options);

// Returns a call's status, which names `peer` if it cannot be reached.
absl::Status CallStatus(absl::string_view peer, const grpc::Status& status);

}  // namespace causeway

#endif  // WORKER_SYNC_COORDINATOR_CHANNEL_H_
