// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "proto/control.grpc.pb.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/status.grpc.pb.h"
#include "server/edge/control_service.h"
#include "server/edge/coordinator_service.h"
#include "server/edge/status_service.h"

namespace causeway {

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    Engine* engine, const std::string& address,
    std::shared_ptr<grpc::ServerCredentials> credentials) {
  std::unique_ptr<CoordinatorServer> server(new CoordinatorServer);
  server->coordinator_ = NewCoordinatorService(engine, &server->links_);
  server->status_ = NewStatusService(engine, &server->links_);
  server->control_ = NewControlService(engine);

  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  // gRPC would let two coordinators share one port.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.SetMaxReceiveMessageSize(4 << 20);
  builder.AddListeningPort(address, std::move(credentials), &server->port_);
  builder.RegisterService(server->coordinator_.get());
  builder.RegisterService(server->status_.get());
  builder.RegisterService(server->control_.get());
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || server->port_ == 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on \"", address,
        "\": the port is in use, or the address is not this machine's; choose "
        "another --listen (port 0 takes a free one)"));
  }
  grpc::HealthCheckServiceInterface* health =
      server->server_->GetHealthCheckService();
  health->SetServingStatus(v1::Coordinator::service_full_name(), true);
  health->SetServingStatus(v1::Status::service_full_name(), true);
  health->SetServingStatus(v1::Control::service_full_name(), true);
  return server;
}

CoordinatorServer::~CoordinatorServer() { Shutdown(absl::ZeroDuration()); }

void CoordinatorServer::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  server_->GetHealthCheckService()->Shutdown();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  server_->Wait();
}

}  // namespace causeway
