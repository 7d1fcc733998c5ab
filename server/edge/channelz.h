// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef SERVER_EDGE_CHANNELZ_H_
#define SERVER_EDGE_CHANNELZ_H_

#include "server/edge/call.h"

namespace causeway {

// Returns the methods of grpc.channelz.v1.Channelz, by which tools see the
// process's channels, servers and sockets with their counts of calls and
// messages. Unlike gRPC's own service, these check Access.
Methods ChannelzMethods();

}  // namespace causeway

#endif  // SERVER_EDGE_CHANNELZ_H_
