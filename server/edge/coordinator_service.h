// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The Coordinator service (proto/coordinator.proto) over an Engine: gRPC
// plumbing only, no rule of the domain.
#ifndef SERVER_EDGE_COORDINATOR_SERVICE_H_
#define SERVER_EDGE_COORDINATOR_SERVICE_H_

#include <memory>

#include "grpcpp/grpcpp.h"
#include "server/edge/island_links.h"
#include "server/engine.h"

namespace causeway {

// `engine` and `links` outlive the service and the server it is registered
// with.
std::unique_ptr<grpc::Service> NewCoordinatorService(Engine* engine,
                                                     IslandLinks* links);

}  // namespace causeway

#endif  // SERVER_EDGE_COORDINATOR_SERVICE_H_
