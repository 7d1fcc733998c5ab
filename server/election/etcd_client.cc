// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/election/etcd_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/transport/grpc_status.h"
#include "common/transport/grpc_time.h"
#include "proto/etcd.grpc.pb.h"

namespace causeway {
namespace {

std::shared_ptr<grpc::Channel> Connect(const EtcdClient::Options& options,
                                       const std::string& member) {
  grpc::ChannelArguments arguments;
  // A channel must not share the connection of the one it replaces.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Find a member that comes back soon.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  return grpc::CreateCustomChannel(member, options.credentials, arguments);
}

}  // namespace

EtcdClient::EtcdClient(Options options) : options_(std::move(options)) {
  absl::MutexLock lock(&mu_);
  for (const std::string& member : options_.members) {
    channels_.push_back(Connect(options_, member));
  }
}

absl::StatusOr<std::string> EtcdClient::Authenticate(
    const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  context.set_deadline(FromNow(kTimeout));
  etcdserverpb::AuthenticateRequest request;
  request.set_name(options_.user);
  request.set_password(options_.password);
  etcdserverpb::AuthenticateResponse response;
  RETURN_IF_ERROR(
      FromGrpcStatus(etcdserverpb::Auth::NewStub(channel)->Authenticate(
          &context, request, &response)));
  return response.token();
}

absl::Status EtcdClient::Ask(const Call& call) {
  size_t member = 0;
  std::shared_ptr<grpc::Channel> channel;
  std::string token;
  {
    absl::MutexLock lock(&mu_);
    member = current_;
    channel = channels_[member];
    token = token_;
  }
  absl::Status answered;
  if (!options_.user.empty() && token.empty()) {
    absl::StatusOr<std::string> authenticated = Authenticate(channel);
    answered = authenticated.status();
    if (answered.ok()) token = *std::move(authenticated);
  }
  if (answered.ok()) {
    grpc::ClientContext context;
    context.set_deadline(FromNow(kTimeout));
    if (!token.empty()) context.AddMetadata("token", token);
    answered = FromGrpcStatus(call(channel, context));
  }
  absl::MutexLock lock(&mu_);
  // A token expires, and ends when the member that gave it restarts.
  token_ = answered.ok() ? token : "";
  if (answered.ok()) return answered;
  // A NAT or firewall may have silently forgotten the connection, which TCP
  // would keep using for many minutes. A new channel also looks the member's
  // name up at once; after failed look-ups, gRPC pauses for up to two minutes.
  const bool is_lost = absl::IsDeadlineExceeded(answered) ||
                       channel->GetState(/*try_to_connect=*/false) ==
                           GRPC_CHANNEL_TRANSIENT_FAILURE;
  if (is_lost && channels_[member] == channel) {
    channels_[member] = Connect(options_, options_.members[member]);
  }
  if (current_ == member) current_ = (member + 1) % channels_.size();
  return absl::Status(answered.code(),
                      absl::StrCat("etcd at ", options_.members[member], ": ",
                                   answered.message()));
}

absl::StatusOr<etcdserverpb::TxnResponse> EtcdClient::Transact(
    const etcdserverpb::TxnRequest& request) {
  etcdserverpb::TxnResponse response;
  RETURN_IF_ERROR(Ask([&](const auto& channel, grpc::ClientContext& context) {
    return etcdserverpb::KV::NewStub(channel)->Txn(&context, request,
                                                   &response);
  }));
  return response;
}

absl::StatusOr<int64_t> EtcdClient::GrantLease(absl::Duration ttl) {
  etcdserverpb::LeaseGrantRequest request;
  request.set_ttl(absl::ToInt64Seconds(ttl));
  etcdserverpb::LeaseGrantResponse response;
  RETURN_IF_ERROR(Ask([&](const auto& channel, grpc::ClientContext& context) {
    return etcdserverpb::Lease::NewStub(channel)->LeaseGrant(&context, request,
                                                             &response);
  }));
  return response.id();
}

absl::Status EtcdClient::KeepAlive(int64_t lease) {
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  etcdserverpb::LeaseKeepAliveResponse response;
  RETURN_IF_ERROR(Ask([&](const auto& channel, grpc::ClientContext& context) {
    const auto stream =
        etcdserverpb::Lease::NewStub(channel)->LeaseKeepAlive(&context);
    if (stream->Write(request) && stream->WritesDone() &&
        stream->Read(&response)) {
      context.TryCancel();
      stream->Finish();
      return grpc::Status::OK;
    }
    const grpc::Status ended = stream->Finish();
    return ended.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                     "no answer to a lease's keep-alive")
                      : ended;
  }));
  if (response.ttl() > 0) return absl::OkStatus();
  return absl::NotFoundError("the lease in etcd has ended");
}

absl::Status EtcdClient::Revoke(int64_t lease) {
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(lease);
  etcdserverpb::LeaseRevokeResponse response;
  return Ask([&](const auto& channel, grpc::ClientContext& context) {
    return etcdserverpb::Lease::NewStub(channel)->LeaseRevoke(&context, request,
                                                              &response);
  });
}

}  // namespace causeway
