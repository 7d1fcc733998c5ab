// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Calls a coordinator's Status, Control and Trust services. Every call except a
// WatchEvents that follows ends within ten seconds. Only one thread at a time
// may use a client.
//
// Errors: those of ExplainCall (common/transport/reachability.h) if no
// coordinator answers; otherwise the service's own (proto/status.proto,
// control.proto, trust.proto).
#ifndef CLI_COORDINATOR_CLIENT_H_
#define CLI_COORDINATOR_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/command_line.h"
#include "common/transport/credentials.h"
#include "grpcpp/grpcpp.h"
#include "proto/control.grpc.pb.h"
#include "proto/replication.grpc.pb.h"
#include "proto/status.grpc.pb.h"
#include "proto/trust.grpc.pb.h"

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

class CoordinatorClient {
 public:
  // Connects on the first call, and again within about a second after a
  // coordinator was restarted. Renews the certificate of --tls first if it is
  // time. Errors of MakeChannelCredentials at `now`.
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

  // Appends the training history after the last points of `history` to it.
  absl::Status FetchHistory(v1::GetHistoryResponse& history);

  // Calls `consume` with the recorded events that `request` asks for, oldest
  // first, and then, unless `recorded_only` is set, with every such event as it
  // happens. Returns OK at the end of the recorded events, or when `consume`
  // returns false.
  absl::Status WatchEvents(
      const v1::WatchEventsRequest& request,
      const std::function<bool(const v1::Event&)>& consume);

  // Calls a method of the Control service.
  template <typename Request, typename Response>
  absl::Status Control(grpc::Status (v1::Control::Stub::*method)(
                           grpc::ClientContext*, const Request&, Response*),
                       const Request& request, Response& response) {
    return Call(*control_, method, request, response);
  }

  // Calls the follower at the address.
  absl::Status Promote(const v1::PromoteRequest& request,
                       v1::PromoteResponse& response) {
    return Call(*replication_, &v1::Replication::Stub::Promote, request,
                response);
  }

  // Calls a method of the Trust service.
  template <typename Request, typename Response>
  absl::Status Trust(grpc::Status (v1::Trust::Stub::*method)(
                         grpc::ClientContext*, const Request&, Response*),
                     const Request& request, Response& response) {
    return Call(*trust_, method, request, response);
  }

 private:
  template <typename Stub, typename Request, typename Response>
  absl::Status Call(Stub& stub,
                    grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                 const Request&, Response*),
                    const Request& request, Response& response) {
    grpc::ClientContext context;
    LimitTime(context);
    return Explain((stub.*method)(&context, request, &response));
  }

  // Adds all pages to `islands`.
  absl::Status FetchIslands(bool departed, v1::ListIslandsResponse& islands);

  static void LimitTime(grpc::ClientContext& context);

  // Returns the answer's status; without an answer, the message says why.
  absl::Status Explain(const grpc::Status& status) const;

  const std::string address_;
  const bool tls_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Status::Stub> status_;
  const std::unique_ptr<v1::Control::Stub> control_;
  const std::unique_ptr<v1::Replication::Stub> replication_;
  const std::unique_ptr<v1::Trust::Stub> trust_;
};

}  // namespace causeway

#endif  // CLI_COORDINATOR_CLIENT_H_
