// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/collective/grpc_rendezvous.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "common/transport/grpc_time.h"
#include "grpcpp/grpcpp.h"
#include "proto/island.grpc.pb.h"

namespace causeway {
namespace {

// A Put takes longer only if rank 0 is stuck.
constexpr absl::Duration kPutTimeout = absl::Seconds(3);

// One Get, until its key is written or its caller gives up.
class GetCall : public grpc::ServerUnaryReactor {
 public:
  GetCall(const std::string& key, v1::GetResponse* response,
          LocalRendezvous* table) {
    state_->call = this;
    table->OnceWritten(key,
                       [state = state_, response](const std::string& value) {
                         GetCall* const call = state->Take();
                         if (call == nullptr) return;
                         response->set_value(value);
                         call->Finish(grpc::Status::OK);
                       });
  }

  void OnCancel() override {
    GetCall* const call = state_->Take();
    if (call != nullptr) call->Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  // Outlives the call, because the table cannot drop a waiter.
  struct State {
    // Returns the call, but null after the first time.
    GetCall* Take() {
      absl::MutexLock lock(&mu);
      return std::exchange(call, nullptr);
    }
    absl::Mutex mu;
    GetCall* call ABSL_GUARDED_BY(mu) = nullptr;
  };

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

class RendezvousService : public v1::Rendezvous::CallbackService {
 public:
  LocalRendezvous* table() { return &table_; }

  grpc::ServerUnaryReactor* Put(grpc::CallbackServerContext* context,
                                const v1::PutRequest* request,
                                v1::PutResponse*) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(table_.Put(request->key(), request->value())));
    return reactor;
  }
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext*,
                                const v1::GetRequest* request,
                                v1::GetResponse* response) override {
    return new GetCall(request->key(), response, &table_);
  }

 private:
  LocalRendezvous table_;
};

class GrpcRendezvousServer : public RendezvousServer {
 public:
  absl::Status Listen(const std::string& address) {
    grpc::ServerBuilder builder;
    // A second process at the same address must fail, not share it.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return absl::UnavailableError(absl::StrCat(
          "cannot listen on ", address, " for the island's other ranks"));
    }
    return absl::OkStatus();
  }
  ~GrpcRendezvousServer() override {
    if (server_ != nullptr) server_->Shutdown(FromNow(absl::ZeroDuration()));
  }

  Rendezvous* table() override { return service_.table(); }
  int port() const override { return port_; }

 private:
  RendezvousService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class GrpcRendezvous : public Rendezvous {
 public:
  explicit GrpcRendezvous(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(v1::Rendezvous::NewStub(channel)) {}

  absl::Status Put(absl::string_view key, absl::string_view value) override {
    v1::PutRequest request;
    request.set_key(std::string(key));
    request.set_value(std::string(value));
    v1::PutResponse response;
    grpc::ClientContext context;
    context.set_deadline(FromNow(kPutTimeout));
    return FromGrpcStatus(stub_->Put(&context, request, &response));
  }

  absl::StatusOr<std::string> Get(absl::string_view key,
                                  absl::Duration timeout) override {
    v1::GetRequest request;
    request.set_key(std::string(key));
    v1::GetResponse response;
    grpc::ClientContext context;
    context.set_deadline(FromNow(timeout));
    RETURN_IF_ERROR(FromGrpcStatus(stub_->Get(&context, request, &response)));
    return std::move(*response.mutable_value());
  }

 private:
  const std::unique_ptr<v1::Rendezvous::Stub> stub_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RendezvousServer>> RendezvousServer::Start(
    const std::string& address) {
  auto server = std::make_unique<GrpcRendezvousServer>();
  RETURN_IF_ERROR(server->Listen(address));
  return server;
}

absl::StatusOr<std::unique_ptr<Rendezvous>> ConnectRendezvous(
    const std::string& address, absl::Duration timeout) {
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  if (!channel->WaitForConnected(FromNow(timeout))) {
    return absl::UnavailableError(
        absl::StrCat("rank 0 of the island does not answer at ", address,
                     " (waited ", absl::FormatDuration(timeout), ")"));
  }
  return std::make_unique<GrpcRendezvous>(channel);
}

}  // namespace causeway
