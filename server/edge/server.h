// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A listening coordinator: an Engine behind gRPC, with health checking and
// reflection on.
//
//   ASSIGN_OR_RETURN(auto server,
//                    CoordinatorServer::Start(engine.get(), "[::]:7070",
//                                             credentials));
//   LOG(INFO) << server->port();
//   server->Shutdown(absl::Seconds(2));
#ifndef SERVER_EDGE_SERVER_H_
#define SERVER_EDGE_SERVER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "grpcpp/grpcpp.h"
#include "server/edge/connections.h"
#include "server/edge/island_links.h"
#include "server/edge/listener.h"
#include "server/engine.h"

namespace causeway {

class CoordinatorServer {
 public:
  // Listens on `address` (see Listener::Listen, whose errors it returns).
  // `engine` must outlive the server. `credentials` come from
  // common/transport/credentials.h; plain text, without authentication, is for
  // trusted networks only. Accepts at most `max_connections`; 0 means 256, and
  // 8 more for each island that may take part.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(
      Engine* engine, const std::string& address,
      std::shared_ptr<grpc::ServerCredentials> credentials =
          grpc::InsecureServerCredentials(),
      int max_connections = 0);
  // Shuts down without grace if Shutdown was not called.
  ~CoordinatorServer();

  int port() const { return listener_->port(); }

  // Stops taking calls, and cancels those still under way after `grace`.
  void Shutdown(absl::Duration grace);

 private:
  CoordinatorServer(const ConnectionLimits& limits,
                    std::unique_ptr<Listener> listener);

  IslandLinks links_{SteadyWallClock()};
  Connections connections_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  // Uses acceptor_.
  const std::unique_ptr<Listener> listener_;
};

}  // namespace causeway

#endif  // SERVER_EDGE_SERVER_H_
