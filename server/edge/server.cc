// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/server.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "common/transport/grpc_time.h"
#include "common/transport/socket_address.h"
#include "glog/logging.h"
#include "grpc/support/log.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_builder_plugin.h"
#include "grpcpp/resource_quota.h"
#include "proto/control.grpc.pb.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/status.grpc.pb.h"
#include "server/edge/call.h"
#include "server/edge/services.h"
#include "server/replication/follower.h"

namespace causeway {
namespace {

// Calls on one connection that move no fragment: an island's control stream and
// short calls, or an operator's calls.
constexpr int kOtherCalls = 16;

// Memory for everything except uploads, and for an island's upload: its window,
// which may grow to 32 MiB (server/edge/connections.cc), and two messages.
constexpr uint64_t kBytesForOthers = 32 << 20;
constexpr uint64_t kMostBytesOfIsland = 36 << 20;

// TLS and HTTP/2's settings take three round trips.
constexpr int kHandshakeMilliseconds = 10'000;

// Reflection takes a thread for each call.
constexpr int kMostThreads = 16;

// Leaves gRPC's reflection out of a server. The library adds it to every
// server, and serves it without checking Access.
class NoReflection : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*
                         plugins) override {
    plugins->erase(
        std::remove_if(
            plugins->begin(), plugins->end(),
            [](const auto& plugin) {
              return dynamic_cast<
                         grpc::reflection::ProtoServerReflectionPlugin*>(
                         plugin.get()) != nullptr;
            }),
        plugins->end());
  }
};

// Most of gRPC's errors are failed TLS handshakes. A certificate that lacks the
// name by which the client calls the server is no error: with --tls auto, names
// do not matter.
void LogError(gpr_log_func_args* message) {
  if (absl::StrContains(message->message, "No match found for server name")) {
    return;
  }
  LOG_EVERY_T(WARNING, 10) << "gRPC: " << message->message;
}

ConnectionLimits LimitsFor(const v1::RunConfig& config, int max_connections) {
  const int islands = static_cast<int>(config.membership().max_islands());
  ConnectionLimits limits{
      .connections = max_connections > 0 ? max_connections : 256 + 8 * islands,
      .undelivered_bytes = kBytesForOthers + (4ull << 20) * islands,
      .held_bytes = kBytesForOthers + kMostBytesOfIsland * islands};
  ReserveDescriptors(limits);
  limits.per_address = (limits.connections + 1) / 2;
  return limits;
}

// A contribution and an update of each fragment may be under way on one
// connection.
int CallsOfAConnection(const v1::RunConfig& config) {
  return kOtherCalls +
         2 * static_cast<int>(config.synchronization().fragments());
}

// Sets the options that islands rely on, and the bounds on peers
// (docs/security.md).
void Configure(const v1::RunConfig& config, grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             kHandshakeMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             CallsOfAConnection(config));
  builder.SetMaxReceiveMessageSize(4 << 20);
  // Compressed messages are refused without being decompressed.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  // The quota's memory bound is not used: beyond it gRPC ends calls at random,
  // islands' control streams first, because these are alone on their
  // connections.
  builder.SetResourceQuota(
      grpc::ResourceQuota("coordinator").SetMaxThreads(kMostThreads));
}

// Clients that know several addresses call the open one.
void SetOpen(grpc::Server& server, bool is_open) {
  for (const char* const service : {v1::Coordinator::service_full_name(),
                                    v1::Control::service_full_name()}) {
    server.GetHealthCheckService()->SetServingStatus(service, is_open);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Listen(
    const v1::RunConfig& config, const Options& options,
    std::function<void(const CoordinatorEvent&)> record) {
  ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener,
                   Listener::Listen(options.address));
  std::unique_ptr<CoordinatorServer> server(
      new CoordinatorServer(LimitsFor(config, options.max_connections),
                            {.run = config.name(),
                             .certificates = options.client_certificates,
                             .now = options.now,
                             .wall_clock = options.wall_clock,
                             .check_certificate = options.check_certificate,
                             .record = std::move(record)},
                            std::move(listener)));
  server->status_ = {.links = &server->links_,
                     .connections = &server->connections_,
                     .certificate = options.certificate};
  std::string& warning = server->status_.warning;
  if (!options.client_certificates && !IsLoopback(options.address)) {
    warning = absl::StrCat(
        "anyone who can reach ", options.address,
        " can read and change the run: clients show no certificates");
    LOG(WARNING) << warning;
  }
  return server;
}

absl::Status CoordinatorServer::Serve(const v1::RunConfig& config,
                                      const Options& options,
                                      std::vector<Methods> services,
                                      bool is_open) {
  gpr_set_log_function(LogError);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  Configure(config, builder);
  if (options.client_certificates) {
    builder.SetOption(std::make_unique<NoReflection>());
  }
  for (Methods& methods : services) {
    services_.push_back(
        NewService(std::move(methods), &connections_, &access_));
    builder.RegisterService(services_.back().get());
  }
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      options.credentials);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return absl::InternalError("gRPC did not start; its log says why");
  }
  SetOpen(*server_, is_open);
  server_->GetHealthCheckService()->SetServingStatus(
      v1::Status::service_full_name(), true);
  listener_->Start(&connections_, [acceptor = acceptor_.get()](int file) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
        connection;
    connection.fd = file;
    acceptor->HandleNewConnection(&connection);
  });
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    Engine* engine, const Options& options) {
  const v1::RunConfig config = engine->GetRun().config();
  ASSIGN_OR_RETURN(
      std::unique_ptr<CoordinatorServer> server,
      Listen(config, options, [engine](const CoordinatorEvent& event) {
        engine->Record(event);
      }));
  server->status_.engine = engine;
  std::vector<Methods> services = {
      CoordinatorMethods(engine, &server->links_, &server->threads_,
                         options.region),
      StatusMethods(&server->status_, &server->threads_),
      ControlMethods(engine, &server->connections_, &server->threads_),
      ReplicationMethods(engine, &server->threads_)};
  if (options.trust != nullptr) {
    services.push_back(TrustMethods(options.trust, &server->threads_));
  }
  RETURN_IF_ERROR(server->Serve(config, options, std::move(services),
                                engine->CheckOpen().ok()));
  const auto note = [engine, noted = server.get()] {
    noted->is_open_ = engine->CheckOpen().ok();
    SetOpen(*noted->server_, noted->is_open_);
  };
  server->news_ = engine->news().Add(note);
  // Something may have changed in between. Listeners are called one at a time,
  // so a newer answer is not replaced by an older one.
  engine->news().Notify();
  return server;
}

absl::StatusOr<std::unique_ptr<CoordinatorServer>>
CoordinatorServer::StartFollower(Follower* follower, CopySource* source,
                                 const Options& options) {
  const v1::RunConfig config = follower->view().config;
  ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorServer> server,
                   Listen(config, options, [](const CoordinatorEvent& event) {
                     LOG(WARNING) << Printable(event.text);
                   }));
  RETURN_IF_ERROR(server->Serve(
      config, options,
      FollowerMethods(follower, source, &server->links_, &server->threads_),
      /*is_open=*/false));
  return server;
}

CoordinatorServer::CoordinatorServer(const ConnectionLimits& limits,
                                     Access::Options access,
                                     std::unique_ptr<Listener> listener)
    : access_(access),
      links_(access.now),
      connections_(limits, access.now),
      listener_(std::move(listener)) {}

CoordinatorServer::~CoordinatorServer() { Shutdown(absl::ZeroDuration()); }

void CoordinatorServer::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  // A gRPC server that has ended drops new connections without closing them.
  listener_->Stop();
  if (status_.engine != nullptr) status_.engine->news().Remove(news_);
  server_->GetHealthCheckService()->Shutdown();
  server_->Shutdown(FromNow(grace));
  server_->Wait();
}

}  // namespace causeway
