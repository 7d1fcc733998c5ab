// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A listening coordinator: an Engine behind gRPC, with health checking, and
// with reflection if clients show no certificates. A coordinator that has stood
// down is not healthy.
//
//   ASSIGN_OR_RETURN(auto server,
//                    CoordinatorServer::Start(
//                        engine.get(), {.address = "[::]:7070", .now = now}));
//   LOG(INFO) << server->port();
//   server->Shutdown(absl::Seconds(2));
#ifndef SERVER_EDGE_SERVER_H_
#define SERVER_EDGE_SERVER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/transport/certificate_expiry.h"
#include "common/transport/credentials.h"
#include "grpcpp/grpcpp.h"
#include "server/edge/access.h"
#include "server/edge/connections.h"
#include "server/edge/copy_source.h"
#include "server/edge/island_links.h"
#include "server/edge/listener.h"
#include "server/edge/services.h"
#include "server/engine.h"
#include "server/replication/follower.h"
#include "server/trust/trust.h"

namespace causeway {

class CoordinatorServer {
 public:
  struct Options {
    // As for Listener::Listen.
    std::string address;
    Clock now;
    // The wall clock, by which certificates expire. Not used without
    // client_certificates.
    Clock wall_clock;
    // The coordinator's region. Islands of other regions fetch from a follower
    // in theirs, if there is one.
    std::string region = "";
    // See common/transport/credentials.h.
    std::shared_ptr<grpc::ServerCredentials> credentials =
        grpc::InsecureServerCredentials();
    // Is true if `credentials` ask clients for certificates. If not, every
    // client may do everything, which is for trusted networks only.
    bool client_certificates = false;
    // See Access::Options.
    std::function<absl::Status(const ClientCertificate&)> check_certificate =
        nullptr;
    // The expiry of the certificate in `credentials`; may be null. It must
    // outlive the server.
    CertificateExpiry* certificate = nullptr;
    // The coordinator's own authority, if it has one. It must outlive the
    // server.
    Trust* trust = nullptr;
    // The most connections to accept; 0 means 256, plus 8 for each island that
    // may take part.
    int max_connections = 0;
  };

  // `engine` must outlive the server. Returns the errors of Listener::Listen.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(
      Engine* engine, const Options& options);
  // Does the same for a follower that knows the run: the server answers what it
  // can from the copy, and refuses the rest. `source` is the follower's; both
  // must outlive the server.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> StartFollower(
      Follower* follower, CopySource* source, const Options& options);
  // Shuts down without grace if Shutdown was not called.
  ~CoordinatorServer();

  int port() const { return listener_->port(); }
  // Answers as the Status service does, until the server is destroyed. Not for
  // followers.
  const StatusSource& status() const { return status_; }

  // Returns whether islands may join (Engine::CheckOpen), as of the last news.
  // Does not wait for the engine. Not for followers.
  bool is_open() const { return is_open_; }

  // Stops taking calls, and cancels calls still under way after `grace`.
  void Shutdown(absl::Duration grace);

 private:
  CoordinatorServer(const ConnectionLimits& limits, Access::Options access,
                    std::unique_ptr<Listener> listener);

  // Returns a server that listens but does not serve yet.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Listen(
      const v1::RunConfig& config, const Options& options,
      std::function<void(const CoordinatorEvent&)> record);
  absl::Status Serve(const v1::RunConfig& config, const Options& options,
                     std::vector<Methods> services, bool is_open);

  const Access access_;
  IslandLinks links_;
  CallThreads threads_;
  Connections connections_;
  StatusSource status_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  // Uses acceptor_.
  const std::unique_ptr<Listener> listener_;
  uint64_t news_ = 0;
  std::atomic<bool> is_open_ = false;
};

}  // namespace causeway

#endif  // SERVER_EDGE_SERVER_H_
