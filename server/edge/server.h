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

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "grpcpp/grpcpp.h"
#include "server/edge/island_links.h"
#include "server/engine.h"

namespace causeway {

class CoordinatorServer {
 public:
  // Listens on `address` (host:port; port 0 takes a free one). `engine`
  // outlives the server. `credentials` as common/transport/credentials.h makes
  // them; plain text, without authentication, is for trusted networks only.
  //   UNAVAILABLE  the address cannot be listened on.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(
      Engine* engine, const std::string& address,
      std::shared_ptr<grpc::ServerCredentials> credentials =
          grpc::InsecureServerCredentials());
  // Shuts down without grace if Shutdown was not called.
  ~CoordinatorServer();

  int port() const { return port_; }

  // Takes no new calls, and cancels what is still under way after `grace`.
  void Shutdown(absl::Duration grace);

 private:
  CoordinatorServer() = default;

  IslandLinks links_{SteadyWallClock()};
  std::unique_ptr<grpc::Service> coordinator_;
  std::unique_ptr<grpc::Service> status_;
  std::unique_ptr<grpc::Service> control_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace causeway

#endif  // SERVER_EDGE_SERVER_H_
