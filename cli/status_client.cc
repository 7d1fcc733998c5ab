// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/status_client.h"

#include <utility>

#include "cli/coordinator_connection.h"
#include "common/status_macros.h"
#include "grpc/support/time.h"
#include "grpcpp/grpcpp.h"

namespace causeway {
StatusClient::StatusClient(
    std::string address,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials)
    : address_(std::move(address)),
      stub_(v1::Status::NewStub(ConnectToCoordinator(address_, credentials))) {}

absl::StatusOr<StatusSnapshot> StatusClient::Fetch(bool departed) {
  StatusSnapshot snapshot;
  RETURN_IF_ERROR(Explain(CallOnce(*stub_, &v1::Status::Stub::GetRun,
                                   v1::GetRunRequest(), snapshot.run)));
  v1::ListIslandsRequest islands;
  islands.set_include_departed(departed);
  RETURN_IF_ERROR(Explain(CallOnce(*stub_, &v1::Status::Stub::ListIslands,
                                   islands, snapshot.islands)));
  RETURN_IF_ERROR(
      Explain(CallOnce(*stub_, &v1::Status::Stub::ListFragments,
                       v1::ListFragmentsRequest(), snapshot.fragments)));
  return snapshot;
}

absl::Status StatusClient::WatchEvents(
    uint64_t after_id, bool follow,
    const std::function<bool(const v1::Event&)>& consume) {
  grpc::ClientContext context;
  if (!follow) {
    context.set_deadline(gpr_time_from_millis(
        absl::ToInt64Milliseconds(kCallTimeout), GPR_TIMESPAN));
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
    // The status reports our own cancellation.
    reader->Finish();
    return absl::OkStatus();
  }
  return Explain(reader->Finish());
}

absl::Status StatusClient::Explain(const grpc::Status& status) const {
  return ExplainAnswer(status, address_);
}

}  // namespace causeway
