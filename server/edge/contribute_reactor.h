// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The server's side of one Contribute stream (proto/coordinator.proto): an
// upload, or a further stream of one.
#ifndef SERVER_EDGE_CONTRIBUTE_REACTOR_H_
#define SERVER_EDGE_CONTRIBUTE_REACTOR_H_

#include "grpcpp/grpcpp.h"
#include "server/edge/upload_turns.h"
#include "server/engine.h"

namespace causeway {

// Deletes itself when the stream is done; `uploads` has those that several
// streams share.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>*
NewContributeReactor(Engine* engine, SharedUploads* uploads);

}  // namespace causeway

#endif  // SERVER_EDGE_CONTRIBUTE_REACTOR_H_
