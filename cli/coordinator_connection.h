// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Lets commands reach a coordinator, and explains errors when it does not
// answer.
#ifndef CLI_COORDINATOR_CONNECTION_H_
#define CLI_COORDINATOR_CONNECTION_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/command_line.h"
#include "common/transport/credentials.h"
#include "grpc/support/time.h"
#include "grpcpp/grpcpp.h"

namespace causeway {

// The time that a call may take.
inline constexpr absl::Duration kCallTimeout = absl::Seconds(5);

struct ConnectionFlags {
  std::string coordinator = "127.0.0.1:7070";
  ClientTlsFiles tls;
};

// Adds --coordinator, --tls_ca, --tls_cert and --tls_key to `set`. `flags` is
// not owned.
void AddConnectionFlags(ConnectionFlags& flags, FlagSet& set);

// Connects on the first call, and again within about a second after a
// coordinator was restarted.
std::shared_ptr<grpc::Channel> ConnectToCoordinator(
    const std::string& address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials);

// Returns the answer's status; the message has the address if nobody answered.
absl::Status ExplainAnswer(const grpc::Status& status,
                           const std::string& address);

// Makes one unary call with a deadline.
template <typename Stub, typename Request, typename Response>
grpc::Status CallOnce(Stub& stub,
                      grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                   const Request&, Response*),
                      const Request& request, Response& response) {
  grpc::ClientContext context;
  context.set_deadline(gpr_time_from_millis(
      absl::ToInt64Milliseconds(kCallTimeout), GPR_TIMESPAN));
  return (stub.*method)(&context, request, &response);
}

}  // namespace causeway

#endif  // CLI_COORDINATOR_CONNECTION_H_
