// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests calls that wait for the disk.
#include "server/edge/download_call.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
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

// gRPC has at most 16 threads for calls.
constexpr int kCalls = 17;

// Has `methods` serve the calls of a coordinator, of which Leave is answered at
// once.
class CallThreadsTest : public testing::Test {
 protected:
  void Serve(Methods methods) {
    methods["/causeway.v1.Coordinator/Leave"] =
        Unary([](const v1::LeaveRequest&) { return absl::OkStatus(); });
    service_ = NewService(std::move(methods), &connections_, &access_);
    server_.emplace(LocalGrpcServer::Options{.services = {service_.get()}});
    stub_ = v1::Coordinator::NewStub(grpc::CreateChannel(
        server_->address(), grpc::InsecureChannelCredentials()));
  }
  // Waits until two calls wait for the disk.
  void AwaitTwo() {
    for (int seen = 0; seen < 2; seen = waiting_) waiting_.wait(seen);
  }
  void WaitForDisk() {
    ++waiting_;
    waiting_.notify_all();
    disk_is_back_.WaitForNotification();
  }
  void ExpectAnswers() {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    v1::LeaveResponse response;
    EXPECT_OK(
        FromGrpcStatus(stub_->Leave(&context, v1::LeaveRequest(), &response)));
  }

  std::atomic<int> waiting_ = 0;
  absl::Notification disk_is_back_;
  std::deque<grpc::ClientContext> contexts_{kCalls};
  DiskThreads threads_{4};
  Connections connections_{{}, SteadyWallClock()};
  const Access access_{{.run = "r", .now = SteadyWallClock()}};
  std::unique_ptr<grpc::Service> service_;
  std::optional<LocalGrpcServer> server_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
};

TEST_F(CallThreadsTest, DownloadsThatWaitForTheDiskHoldUpNoOtherCall) {
  Listeners news;
  std::atomic<uint64_t> bytes_sent = 0;
  const auto open = [&](const v1::FetchUpdateRequest&)
      -> absl::StatusOr<std::optional<OpenedUpdate>> {
    WaitForDisk();
    return absl::NotFoundError("no longer kept");
  };
  Serve({{"/causeway.v1.Coordinator/FetchUpdate",
          SendStored<v1::FetchUpdateRequest, v1::FetchUpdateResponse>(
              {&news, &bytes_sent, &threads_}, open)}});
  std::vector<std::unique_ptr<grpc::ClientReader<v1::FetchUpdateResponse>>>
      downloads;
  for (grpc::ClientContext& context : contexts_) {
    downloads.push_back(stub_->FetchUpdate(&context, v1::FetchUpdateRequest()));
  }
  AwaitTwo();
  ExpectAnswers();
  disk_is_back_.Notify();
  for (const auto& download : downloads) {
    EXPECT_THAT(FromGrpcStatus(download->Finish()), IsNotFound("kept"));
  }
  server_.reset();
}

TEST_F(CallThreadsTest, UnaryCallsThatWaitForTheDiskHoldUpNoOtherCall) {
  Serve({{"/causeway.v1.Coordinator/Join",
          On(&threads_, Unary([&](const v1::JoinRequest&) -> absl::Status {
            WaitForDisk();
            return absl::NotFoundError("no longer kept");
          }))}});
  std::vector<std::thread> calls;
  for (grpc::ClientContext& context : contexts_) {
    calls.emplace_back([&] {
      v1::JoinResponse response;
      EXPECT_THAT(FromGrpcStatus(stub_->Join(&context, {}, &response)),
                  IsNotFound("kept"));
    });
  }
  AwaitTwo();
  ExpectAnswers();
  disk_is_back_.Notify();
  for (std::thread& call : calls) call.join();
  server_.reset();
}

}  // namespace
}  // namespace causeway
