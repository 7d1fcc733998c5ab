// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The Status service (proto/status.proto) over an Engine.
#ifndef SERVER_STATUS_SERVICE_H_
#define SERVER_STATUS_SERVICE_H_

#include <memory>

#include "grpcpp/grpcpp.h"
#include "server/engine.h"
#include "server/island_links.h"

namespace causeway {

// `engine` and `links` outlive the service and the server it is registered
// with.
std::unique_ptr<grpc::Service> NewStatusService(Engine* engine,
                                                const IslandLinks* links);

}  // namespace causeway

#endif  // SERVER_STATUS_SERVICE_H_
