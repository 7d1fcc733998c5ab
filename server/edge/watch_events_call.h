// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The server's side of one WatchEvents stream (proto/status.proto): sends the
// log's events, then new ones as they are added.
#ifndef SERVER_EDGE_WATCH_EVENTS_CALL_H_
#define SERVER_EDGE_WATCH_EVENTS_CALL_H_

#include "server/edge/call.h"
#include "server/engine.h"

namespace causeway {

Call* NewWatchEventsCall(CallTicket ticket, Engine* engine);

}  // namespace causeway

#endif  // SERVER_EDGE_WATCH_EVENTS_CALL_H_
