// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The server's side of one Contribute stream (proto/coordinator.proto): an
// upload, or a further stream of one.
#ifndef SERVER_EDGE_CONTRIBUTE_CALL_H_
#define SERVER_EDGE_CONTRIBUTE_CALL_H_

#include "server/edge/call.h"
#include "server/edge/upload_turns.h"
#include "server/engine.h"

namespace causeway {

// `uploads` holds the uploads that several streams share.
Call* NewContributeCall(CallTicket ticket, Engine* engine,
                        SharedUploads* uploads);

}  // namespace causeway

#endif  // SERVER_EDGE_CONTRIBUTE_CALL_H_
