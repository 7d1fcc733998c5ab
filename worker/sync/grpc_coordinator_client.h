// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// CoordinatorClient over gRPC. The control stream has a connection of its own,
// so that bulk data can never starve heartbeats.
#ifndef WORKER_SYNC_GRPC_COORDINATOR_CLIENT_H_
#define WORKER_SYNC_GRPC_COORDINATOR_CLIENT_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "grpcpp/security/credentials.h"
#include "worker/sync/coordinator_client.h"

namespace causeway {

struct GrpcCoordinatorClientOptions {
  // host:port.
  std::string address;
  // As common/transport/credentials.h makes them.
  std::shared_ptr<grpc::ChannelCredentials> credentials =
      grpc::InsecureChannelCredentials();
  // Deadline of calls that carry no bulk data.
  absl::Duration call_deadline = absl::Seconds(20);
  // A transfer must be at least this fast, or its try ends and is resumed.
  double slowest_bytes_per_second = 16 * 1024;
};

std::unique_ptr<CoordinatorClient> NewGrpcCoordinatorClient(
    const GrpcCoordinatorClientOptions& options);

}  // namespace causeway

#endif  // WORKER_SYNC_GRPC_COORDINATOR_CLIENT_H_
