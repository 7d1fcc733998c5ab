// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The server's side of one control stream: heartbeats in, the state of the run
// out, after each heartbeat and whenever it changes.
#ifndef SERVER_EDGE_SESSION_CALL_H_
#define SERVER_EDGE_SESSION_CALL_H_

#include "server/edge/call.h"
#include "server/engine.h"

namespace causeway {

Call* NewSessionCall(CallTicket ticket, Engine* engine);

}  // namespace causeway

#endif  // SERVER_EDGE_SESSION_CALL_H_
