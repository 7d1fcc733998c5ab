// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests downloads that take long to open.
#include "server/edge/download_call.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/listeners.h"
#include "common/testing/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "common/transport/grpc_status.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/coordinator.grpc.pb.h"
#include "server/edge/access.h"
#include "server/edge/call.h"
#include "server/edge/connections.h"
#include "server/edge/disk_threads.h"
#include "server/opened.h"

namespace causeway {
namespace {

TEST(DownloadCallTest, OtherCallsAreAnsweredWhileTheDiskIsSlow) {
  // gRPC has at most 16 threads for calls.
  constexpr int kDownloads = 17;
  std::atomic<int> opening = 0;
  absl::Notification disk_is_back;
  Listeners news;
  std::atomic<uint64_t> bytes_sent = 0;
  DiskThreads openers(4);
  const auto open = [&](const v1::FetchUpdateRequest&)
      -> absl::StatusOr<std::optional<OpenedUpdate>> {
    ++opening;
    opening.notify_all();
    disk_is_back.WaitForNotification();
    return absl::NotFoundError("no longer kept");
  };
  Methods methods = {
      {"/causeway.v1.Coordinator/FetchUpdate",
       SendStored<v1::FetchUpdateRequest, v1::FetchUpdateResponse>(
           {&news, &bytes_sent, &openers}, open)},
      {"/causeway.v1.Coordinator/Leave",
       Unary([](const v1::LeaveRequest&) { return absl::OkStatus(); })}};
  Connections connections({}, SteadyWallClock());
  const Access access({.run = "r", .now = SteadyWallClock()});
  const std::unique_ptr<grpc::Service> service =
      NewService(std::move(methods), &connections, &access);
  const LocalGrpcServer server({.services = {service.get()}});
  const auto stub = v1::Coordinator::NewStub(grpc::CreateChannel(
      server.address(), grpc::InsecureChannelCredentials()));

  std::deque<grpc::ClientContext> contexts(kDownloads);
  std::vector<std::unique_ptr<grpc::ClientReader<v1::FetchUpdateResponse>>>
      downloads;
  for (grpc::ClientContext& context : contexts) {
    downloads.push_back(stub->FetchUpdate(&context, v1::FetchUpdateRequest()));
  }
  for (int seen = 0; seen < 2; seen = opening) opening.wait(seen);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
  v1::LeaveResponse response;
  EXPECT_OK(
      FromGrpcStatus(stub->Leave(&context, v1::LeaveRequest(), &response)));
  disk_is_back.Notify();
  for (const auto& download : downloads) {
    EXPECT_THAT(FromGrpcStatus(download->Finish()), IsNotFound("kept"));
  }
}

}  // namespace
}  // namespace causeway
