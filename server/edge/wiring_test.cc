// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests that each call passes its request on to the engine, and that the edge's
// own counts are reported.
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/testing/status_matchers.h"
#include "common/transport/grpc_status.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/control.grpc.pb.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/status.grpc.pb.h"
#include "server/edge/testing/served_engine.h"

namespace causeway {
namespace {

class WiringTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(driver_.Start(TestRunConfig()));
    ASSERT_OK_AND_ASSIGN(a_, driver_.Join("a"));
    ASSERT_OK_AND_ASSIGN(b_, driver_.Join("b"));
    ASSERT_OK_AND_ASSIGN(anchor_, driver_.Fetch(a_, 0, 0));
    ASSERT_OK(driver_.Serve());
    coordinator_ = v1::Coordinator::NewStub(driver_.channel());
    status_ = v1::Status::NewStub(driver_.channel());
    control_ = v1::Control::NewStub(driver_.channel());
  }

  // Calls a method that answers with one message, and returns the message.
  template <typename Stub, typename Request, typename Response>
  Response Call(Stub& stub,
                grpc::Status (Stub::*method)(grpc::ClientContext*,
                                             const Request&, Response*),
                const Request& request) {
    grpc::ClientContext context;
    Response response;
    EXPECT_OK(FromGrpcStatus((stub.*method)(&context, request, &response)));
    return response;
  }
  v1::ListIslandsResponse Islands(bool include_departed) {
    v1::ListIslandsRequest request;
    request.set_include_departed(include_departed);
    return Call(*status_, &v1::Status::Stub::ListIslands, request);
  }
  v1::ListQuarantineResponse Quarantine(bool include_decided) {
    v1::ListQuarantineRequest request;
    request.set_include_decided(include_decided);
    return Call(*control_, &v1::Control::Stub::ListQuarantine, request);
  }
  // Fetches fragment 0 and returns its bytes.
  std::string Fetch(const v1::StreamOptions& options) {
    v1::FetchParametersRequest request;
    *request.mutable_identity() = a_;
    *request.mutable_stream() = options;
    grpc::ClientContext context;
    const auto stream = coordinator_->FetchParameters(&context, request);
    v1::FetchParametersResponse message;
    std::string bytes;
    for (bool first = true; stream->Read(&message); first = false) {
      EXPECT_EQ(message.has_head(), first) << "it is described once";
      bytes += message.chunk().data();
    }
    EXPECT_OK(FromGrpcStatus(stream->Finish()));
    return bytes;
  }

  ServedEngine driver_;
  v1::IslandIdentity a_;
  v1::IslandIdentity b_;
  std::vector<float> anchor_;
  std::unique_ptr<v1::Coordinator::Stub> coordinator_;
  std::unique_ptr<v1::Status::Stub> status_;
  std::unique_ptr<v1::Control::Stub> control_;
};

TEST_F(WiringTest, BytesConnectionsAndPausesAreReported) {
  v1::StreamOptions options;
  options.set_chunk_bytes(1000);
  const std::string bytes = Fetch(options);
  EXPECT_EQ(bytes.size(), anchor_.size() * sizeof(float));
  EXPECT_EQ(Islands(false).islands(0).progress().downlink().paced_seconds(), 0);
  // A part is sent at once, as a burst.
  options.set_pace_bytes_per_second(10'000);
  const absl::Time begin = absl::Now();
  EXPECT_EQ(Fetch(options), bytes);
  const absl::Duration taken = absl::Now() - begin;
  EXPECT_GT(taken,
            0.5 * absl::Seconds(static_cast<double>(bytes.size()) / 10'000));
  const v1::ListIslandsResponse islands = Islands(false);
  const v1::LinkUse& downlink = islands.islands(0).progress().downlink();
  EXPECT_EQ(downlink.pace_bytes_per_second(), 10'000);
  EXPECT_GT(downlink.paced_seconds(), 0);
  EXPECT_EQ(islands.islands(1).progress().downlink().pace_bytes_per_second(),
            0);

  v1::RunStatus run;
  EXPECT_TRUE(driver_.Await([&] {
    run = Call(*status_, &v1::Status::Stub::GetRun, v1::GetRunRequest());
    // The last calls may not have ended yet.
    return run.connections().calls() == 1;
  })) << "this one";
  EXPECT_EQ(run.bytes_sent(), 2 * bytes.size());
  EXPECT_EQ(run.connections().open(), 1);
  EXPECT_EQ(run.connections().limit(), 256 + 8 * 3);
}

TEST_F(WiringTest, APacedDownloadEndsWithItsCallAndWithTheServer) {
  struct Download {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::FetchParametersResponse>> stream;
  };
  v1::FetchParametersRequest request;
  *request.mutable_identity() = a_;
  request.mutable_stream()->set_chunk_bytes(60'000);
  request.mutable_stream()->set_pace_bytes_per_second(1000);
  const auto seconds =
      static_cast<double>(anchor_.size() * sizeof(float)) / 1000;
  std::vector<std::unique_ptr<Download>> downloads;
  // Each download waits for the ones before it, so most wait for minutes.
  const auto open_many = [&] {
    const double paced =
        Islands(false).islands(0).progress().downlink().paced_seconds();
    for (int i = 0; i < 18; ++i) {
      Download& download = *downloads.emplace_back(new Download);
      download.stream =
          coordinator_->FetchParameters(&download.context, request);
    }
    return driver_.Await([&] {
      return Islands(false).islands(0).progress().downlink().paced_seconds() >
             paced + 100 * seconds;
    });
  };
  ASSERT_TRUE(open_many());
  for (const auto& download : downloads) download->context.TryCancel();
  EXPECT_TRUE(driver_.Await([&] {
    return Call(*status_, &v1::Status::Stub::GetRun, v1::GetRunRequest())
               .connections()
               .calls() == 1;
  })) << "this one";
  for (const auto& download : downloads) download->stream->Finish();
  downloads.clear();

  ASSERT_TRUE(open_many());
  driver_.StopServing();
  for (const auto& download : downloads) {
    EXPECT_FALSE(download->stream->Finish().ok());
  }
}

TEST_F(WiringTest, ListsHaveWhatIsAskedFor) {
  ASSERT_FALSE(driver_
                   .Contribute(driver_.MakeContribution(b_, 0, 0, anchor_,
                                                        Shifted(anchor_, 1000)))
                   .ok());
  EXPECT_EQ(Islands(false).islands_size(), 1);
  EXPECT_EQ(Islands(true).islands_size(), 2);
  EXPECT_EQ(Quarantine(false).contributions_size(), 1);
  v1::DropContributionRequest drop;
  drop.set_id(1);
  Call(*control_, &v1::Control::Stub::DropContribution, drop);
  EXPECT_EQ(Quarantine(false).contributions_size(), 0);
  ASSERT_EQ(Quarantine(true).contributions_size(), 1);
  EXPECT_EQ(Quarantine(true).contributions(0).state(),
            v1::QuarantinedContribution::DROPPED);
}

TEST_F(WiringTest, RecordedEventsEnd) {
  v1::WatchEventsRequest request;
  request.set_recorded_only(true);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
  const auto stream = status_->WatchEvents(&context, request);
  v1::Event event;
  uint64_t events = 0;
  while (stream->Read(&event)) EXPECT_EQ(event.id(), ++events);
  EXPECT_OK(FromGrpcStatus(stream->Finish()));
  EXPECT_EQ(events, 4);
}

TEST_F(WiringTest, AHeartbeatIsAnsweredByOneView) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
  const auto stream = coordinator_->Session(&context);
  v1::SessionRequest heartbeat;
  *heartbeat.mutable_identity() = a_;
  v1::SessionResponse view;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(stream->Write(heartbeat));
    ASSERT_TRUE(stream->Read(&view));
    EXPECT_EQ(view.run_state(), v1::RUNNING);
  }
  // The next view comes with the next news.
  ASSERT_OK(driver_.engine().Pause({}));
  ASSERT_TRUE(stream->Read(&view));
  EXPECT_EQ(view.run_state(), v1::PAUSED);
  heartbeat.mutable_identity()->set_incarnation(9);
  ASSERT_TRUE(stream->Write(heartbeat));
  EXPECT_FALSE(stream->Read(&view));
  EXPECT_THAT(FromGrpcStatus(stream->Finish()), IsAborted());
}

TEST_F(WiringTest, CallsWithoutARequestAreRefused) {
  EXPECT_THAT(driver_.Send("Coordinator/Join", {}),
              IsInvalidArgument("the call has no request"));
  EXPECT_THAT(driver_.Send("Coordinator/FetchUpdate", {}),
              IsCancelled("no request"));
  EXPECT_THAT(driver_.Send("Status/WatchEvents", {}),
              IsCancelled("no request"));
}

// Bytes that calls have read are no longer held.
TEST_F(WiringTest, AConnectionMayMakeManyLargeRequests) {
  const std::string junk(60'000, '\xff');
  for (int i = 0; i < 200; ++i) {
    ASSERT_THAT(driver_.Send("Coordinator/Join", {junk}), IsInvalidArgument())
        << i;
  }
}

}  // namespace
}  // namespace causeway
