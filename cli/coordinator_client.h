// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Calls a coordinator's services. Every call ends within ten seconds, except
// WatchEvents without a limit and calls that are given another timeout. Only
// one thread at a time may use a client.
//
// Returns errors of ExplainCall (common/transport/reachability.h) if no
// coordinator answers, and otherwise the service's own (proto/status.proto,
// control.proto, trust.proto).
#ifndef CLI_COORDINATOR_CLIENT_H_
#define CLI_COORDINATOR_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/command_line.h"
#include "common/status_macros.h"
#include "common/transport/credentials.h"
#include "grpcpp/grpcpp.h"
#include "proto/status.grpc.pb.h"

namespace causeway {

struct ConnectionFlags {
  std::string coordinator = "127.0.0.1:7070";
  ClientTlsFiles tls;
};

// Adds --tls, --tls_ca, --tls_cert and --tls_key to `set`. `flags` is not
// owned.
void AddTlsFlags(ClientTlsFiles& flags, FlagSet& set);
// Adds these and --coordinator.
void AddConnectionFlags(ConnectionFlags& flags, FlagSet& set);

// A coordinator's answers, given at about the same moment.
struct StatusSnapshot {
  v1::RunStatus run;
  v1::ListIslandsResponse islands;
  v1::ListFragmentsResponse fragments;
};

// A method of a service's generated client.
template <typename Stub, typename Request, typename Response>
using ClientMethod = grpc::Status (Stub::*)(grpc::ClientContext*,
                                            const Request&, Response*);

class CoordinatorClient {
 public:
  static constexpr absl::Duration kCallTimeout = absl::Seconds(5);

  // Connects on the first call, and reconnects within about a second after a
  // coordinator restarts. First renews the certificate of --tls if it is due.
  // Errors of MakeChannelCredentials at `now`.
  static absl::StatusOr<std::unique_ptr<CoordinatorClient>> Create(
      const ConnectionFlags& flags, absl::Time now);

  // Connects with `credentials`, by default in plain text; `tls` says whether
  // they use TLS. `address` is one or several
  // (common/transport/coordinator_target.h).
  explicit CoordinatorClient(
      std::string address,
      const std::shared_ptr<grpc::ChannelCredentials>& credentials =
          grpc::InsecureChannelCredentials(),
      bool tls = false);

  // Fetches the status. With `departed`, the list includes islands that left or
  // were evicted.
  absl::StatusOr<StatusSnapshot> Fetch(bool departed);

  // Appends to `history` the training history after its last points.
  absl::Status FetchHistory(v1::GetHistoryResponse& history);

  // Calls `consume` with the recorded events that `request` asks for, oldest
  // first, and then, unless `recorded_only` is set, with every such event as it
  // happens. Returns OK at the end of the recorded events, or when `consume`
  // returns false. Unless `limit_time` is set, there is no deadline, so that
  // `consume` may wait for a pager.
  absl::Status WatchEvents(const v1::WatchEventsRequest& request,
                           const std::function<bool(const v1::Event&)>& consume,
                           bool limit_time = false);

  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(ClientMethod<Stub, Request, Response> method,
                                const Request& request,
                                absl::Duration timeout = kCallTimeout) {
    grpc::ClientContext context;
    LimitTime(context, timeout);
    Response response;
    RETURN_IF_ERROR(
        Explain((Stub(channel_).*method)(&context, request, &response)));
    return response;
  }

 private:
  // Returns all pages.
  absl::StatusOr<v1::ListIslandsResponse> FetchIslands(bool departed);

  static void LimitTime(grpc::ClientContext& context, absl::Duration timeout);

  // Returns the answer's status; without an answer, the message says why.
  absl::Status Explain(const grpc::Status& status) const;

  const std::string address_;
  const bool tls_;
  const std::shared_ptr<grpc::Channel> channel_;
};

// Makes the only call of a command, at `now`. Errors of Create and the call.
template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> CallOnce(
    const ConnectionFlags& flags, absl::Time now,
    ClientMethod<Stub, Request, Response> method, const Request& request,
    absl::Duration timeout = CoordinatorClient::kCallTimeout) {
  ASSIGN_OR_RETURN(const std::unique_ptr<CoordinatorClient> client,
                   CoordinatorClient::Create(flags, now));
  return client->Call(method, request, timeout);
}

}  // namespace causeway

#endif  // CLI_COORDINATOR_CLIENT_H_
