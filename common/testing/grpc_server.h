// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A gRPC server for the services that a test brings, on a free port of this
// host. It serves until it is destroyed, and then waits for calls under way.
//
//   FalseCoordinator coordinator;
//   const LocalGrpcServer server({.services = {&coordinator}});
//   const auto channel = grpc::CreateChannel(server.address(), credentials);
#ifndef COMMON_TESTING_GRPC_SERVER_H_
#define COMMON_TESTING_GRPC_SERVER_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"

namespace causeway {

class LocalGrpcServer {
 public:
  struct Options {
    // These outlive the server.
    std::vector<grpc::Service*> services;
    std::string host = "127.0.0.1";
    std::shared_ptr<grpc::ServerCredentials> credentials =
        grpc::InsecureServerCredentials();
    // Says whether the server answers health checks (SetServing).
    bool has_health = false;
  };

  explicit LocalGrpcServer(const Options& options) {
    if (options.has_health) grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat(options.host, ":0"),
                             options.credentials, &port_);
    for (grpc::Service* const service : options.services) {
      builder.RegisterService(service);
    }
    server_ = builder.BuildAndStart();
    CHECK(server_ != nullptr) << "no port of " << options.host << " is free";
    address_ = absl::StrCat(options.host, ":", port_);
  }

  int port() const { return port_; }
  // Returns "host:port".
  const std::string& address() const { return address_; }
  void SetServing(const std::string& service, bool serving) {
    server_->GetHealthCheckService()->SetServingStatus(service, serving);
  }
  // Waits for calls under way.
  void Shutdown() { server_->Shutdown(); }
  // Ends calls under way at once, as the end of a killed process does.
  void Kill() { server_->Shutdown(std::chrono::system_clock::now()); }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace causeway

#endif  // COMMON_TESTING_GRPC_SERVER_H_
