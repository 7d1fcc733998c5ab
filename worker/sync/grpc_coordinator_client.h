// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// CoordinatorClient over gRPC. The control stream has a connection of its own,
// so that bulk data can never starve heartbeats (worker/sync/bulk_transfers.h).
#ifndef WORKER_SYNC_GRPC_COORDINATOR_CLIENT_H_
#define WORKER_SYNC_GRPC_COORDINATOR_CLIENT_H_

#include <memory>

#include "worker/sync/coordinator_channel.h"
#include "worker/sync/coordinator_client.h"

namespace causeway {

std::unique_ptr<CoordinatorClient> NewGrpcCoordinatorClient(
    const GrpcCoordinatorClientOptions& options);

}  // namespace causeway

#endif  // WORKER_SYNC_GRPC_COORDINATOR_CLIENT_H_
