// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/status_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "grpc/support/time.h"
#include "grpcpp/grpcpp.h"

namespace causeway {
namespace {

constexpr int kCallMilliseconds = 5000;

std::shared_ptr<grpc::Channel> Connect(
    const std::string& address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  // A watcher sees a restarted coordinator within about a second.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

// One call with a deadline.
template <typename Request, typename Response>
grpc::Status Call(v1::Status::Stub& stub,
                  grpc::Status (v1::Status::Stub::*method)(grpc::ClientContext*,
                                                           const Request&,
                                                           Response*),
                  const Request& request, Response& response) {
  grpc::ClientContext context;
  context.set_deadline(gpr_time_from_millis(kCallMilliseconds, GPR_TIMESPAN));
  return (stub.*method)(&context, request, &response);
}

}  // namespace

StatusClient::StatusClient(
    std::string address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials)
    : address_(std::move(address)),
      stub_(v1::Status::NewStub(Connect(address_, credentials))) {}

absl::StatusOr<StatusSnapshot> StatusClient::Fetch(bool departed) {
  StatusSnapshot snapshot;
  RETURN_IF_ERROR(Explain(Call(*stub_, &v1::Status::Stub::GetRun,
                               v1::GetRunRequest(), snapshot.run)));
  v1::ListIslandsRequest islands;
  islands.set_include_departed(departed);
  RETURN_IF_ERROR(Explain(
      Call(*stub_, &v1::Status::Stub::ListIslands, islands, snapshot.islands)));
  RETURN_IF_ERROR(
      Explain(Call(*stub_, &v1::Status::Stub::ListFragments,
                   v1::ListFragmentsRequest(), snapshot.fragments)));
  return snapshot;
}

absl::Status StatusClient::WatchEvents(
    uint64_t after_id, bool follow,
    const std::function<bool(const v1::Event&)>& consume) {
  grpc::ClientContext context;
  if (!follow) {
    context.set_deadline(gpr_time_from_millis(kCallMilliseconds, GPR_TIMESPAN));
  }
  v1::WatchEventsRequest request;
  request.set_after_id(after_id);
  request.set_recorded_only(!follow);
  const std::unique_ptr<grpc::ClientReader<v1::Event>> reader =
      stub_->WatchEvents(&context, request);
  v1::Event event;
  while (reader->Read(&event)) {
    if (consume(event)) continue;
    context.TryCancel();
    // The status is that of our own cancellation.
    reader->Finish();
    return absl::OkStatus();
  }
  return Explain(reader->Finish());
}

absl::Status StatusClient::Explain(const grpc::Status& status) const {
  const absl::Status explained = FromGrpcStatus(status);
  if (!absl::IsUnavailable(explained) && !absl::IsDeadlineExceeded(explained)) {
    return explained;
  }
  return absl::Status(
      explained.code(),
      absl::StrCat("no coordinator answers at ", address_, " (",
                   explained.message(),
                   "); is it running, and is this its address?"));
}

}  // namespace causeway
