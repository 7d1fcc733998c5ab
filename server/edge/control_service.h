// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The gRPC edge of an Engine for operators: the Control service
// (proto/control.proto).
#ifndef SERVER_EDGE_CONTROL_SERVICE_H_
#define SERVER_EDGE_CONTROL_SERVICE_H_

#include <memory>

#include "grpcpp/grpcpp.h"
#include "server/engine.h"

namespace causeway {

// `engine` must outlive the service and its calls.
std::unique_ptr<grpc::Service> NewControlService(Engine* engine);

}  // namespace causeway

#endif  // SERVER_EDGE_CONTROL_SERVICE_H_
