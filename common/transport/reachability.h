// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Explains why a call has found no coordinator, because gRPC's message fits
// several causes: a plain-text client gets the same error from a server that
// wants TLS and from one that is going down.
#ifndef COMMON_TRANSPORT_REACHABILITY_H_
#define COMMON_TRANSPORT_REACHABILITY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/status.h"

namespace causeway {

// Returns the status of a call to `addresses` (coordinator_target.h), over TLS
// or in plain text. If no coordinator has answered, the message says why, and
// what to do. Finding out may take connections of its own, up to three seconds
// each.
//   UNAUTHENTICATED    Only another configuration helps: one side wants TLS and
//                      the other does not, or the server's certificate is not
//                      the expected one. Only for a single address.
//   UNAVAILABLE,
//   DEADLINE_EXCEEDED  A later call may find one.
absl::Status ExplainCall(const std::string& addresses, bool tls,
                         const grpc::Status& status);

// Returns whether a coordinator's error says that its disk takes no writes.
bool SaysDiskFails(absl::string_view error);

}  // namespace causeway

#endif  // COMMON_TRANSPORT_REACHABILITY_H_
