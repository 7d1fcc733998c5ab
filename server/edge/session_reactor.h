// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The server's side of one control stream: heartbeats in, the state of the run
// out, after each heartbeat and whenever it changes.
#ifndef SERVER_EDGE_SESSION_REACTOR_H_
#define SERVER_EDGE_SESSION_REACTOR_H_

#include "grpcpp/grpcpp.h"
#include "proto/coordinator.pb.h"
#include "server/engine.h"

namespace causeway {

// Deletes itself when the stream is done.
grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>*
NewSessionReactor(Engine* engine);

}  // namespace causeway

#endif  // SERVER_EDGE_SESSION_REACTOR_H_
