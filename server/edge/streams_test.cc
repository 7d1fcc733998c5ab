// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the streams that tell islands and operators what is new.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/control.pb.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/status.grpc.pb.h"
#include "server/edge/testing/served_engine.h"

namespace causeway {
namespace {

using testing::ElementsAre;

class StreamsTest : public testing::Test {
 protected:
  void SetUp() override {
    // Views of this run have about a kilobyte.
    ASSERT_OK(driver_.Start(TestRunConfig(
        "model { layers: 30 } training { total_steps: 100 } synchronization { "
        "fragments: 31 inner_steps_per_round: 50 }")));
    ASSERT_OK_AND_ASSIGN(identity_, driver_.Join("a"));
    ASSERT_OK(driver_.Serve());
    context_.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
  }

  ServedEngine driver_;
  v1::IslandIdentity identity_;
  grpc::ClientContext context_;
};

TEST_F(StreamsTest, HealthCheckingClientsLeaveAReplacedCoordinator) {
  grpc::ChannelArguments arguments;
  arguments.SetServiceConfigJSON(
      R"({"loadBalancingConfig": [{"round_robin": {}}],
          "healthCheckConfig": {"serviceName": "causeway.v1.Coordinator"}})");
  const auto channel = grpc::CreateCustomChannel(
      driver_.address(), grpc::InsecureChannelCredentials(), arguments);
  const auto deadline = absl::ToChronoTime(absl::Now() + absl::Seconds(20));
  ASSERT_TRUE(channel->WaitForConnected(deadline));
  ASSERT_OK(driver_.engine().StandDown(identity_.epoch() + 1));
  EXPECT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, deadline));
  EXPECT_NE(channel->GetState(/*try_to_connect=*/true), GRPC_CHANNEL_READY);
}

TEST_F(StreamsTest, ASlowIslandGetsTheNewestViewInTheEnd) {
  const auto stub = v1::Coordinator::NewStub(driver_.channel());
  const auto stream = stub->Session(&context_);
  v1::SessionRequest heartbeat;
  *heartbeat.mutable_identity() = identity_;
  // More views than fit into the stream's window, so that one is being written
  // when the next news arrives.
  constexpr uint64_t kHeartbeats = 10000;
  for (uint64_t i = 1; i <= kHeartbeats; ++i) {
    heartbeat.mutable_progress()->set_run_step(i);
    ASSERT_TRUE(stream->Write(heartbeat));
  }
  ASSERT_TRUE(driver_.Await([&] {
    return driver_.engine()
               .ListIslands(false)
               .islands(0)
               .progress()
               .run_step() == kHeartbeats;
  }));
  ASSERT_OK(driver_.Join("b"));
  v1::SessionResponse view;
  uint64_t views = 0;
  while (view.run_state() != v1::RUNNING && stream->Read(&view)) ++views;
  EXPECT_EQ(view.run_state(), v1::RUNNING);
  EXPECT_LT(views, kHeartbeats) << "no view was skipped";
  stream->WritesDone();
  while (stream->Read(&view)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
}

// A connection without a call makes room for one from the same address.
TEST_F(StreamsTest, OneAddressHasHalfOfTheConnections) {
  ASSERT_OK(driver_.Serve({.max_connections = 4}));
  sockaddr_in address = {.sin_family = AF_INET,
                         .sin_port = htons(driver_.server().port())};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int i = 0; i < 2; ++i) {
    const int file = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(file, reinterpret_cast<const sockaddr*>(&address),
                      sizeof(address)),
              0);
  }
  const auto stub = v1::Status::NewStub(driver_.channel());
  v1::RunStatus run;
  ASSERT_TRUE(stub->GetRun(&context_, {}, &run).ok());
  EXPECT_EQ(run.connections().limit(), 4);
  EXPECT_EQ(run.connections().displaced(), 1);
}

// One address may have half of the 16 connections, and six of these are in use.
TEST_F(StreamsTest, UnderLoadWatchersAreToldWhenToTryAgain) {
  ASSERT_OK(driver_.Serve({.max_connections = 16}));
  const auto connect = [&] {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(
        driver_.address(), grpc::InsecureChannelCredentials(), arguments);
  };
  struct Watcher {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::Event>> stream;
  };
  std::vector<std::unique_ptr<Watcher>> watchers(5);
  v1::Event event;
  for (auto& watcher : watchers) {
    watcher = std::make_unique<Watcher>();
    watcher->stream = v1::Status::NewStub(connect())->WatchEvents(
        &watcher->context, v1::WatchEventsRequest());
    ASSERT_TRUE(watcher->stream->Read(&event));
  }
  const auto channel = connect();
  const auto session = v1::Coordinator::NewStub(channel)->Session(&context_);
  v1::SessionRequest heartbeat;
  *heartbeat.mutable_identity() = identity_;
  v1::SessionResponse view;
  ASSERT_TRUE(session->Write(heartbeat) && session->Read(&view));
  const auto status = v1::Status::NewStub(channel);
  const auto get_run = [&](grpc::ClientContext& context) {
    v1::RunStatus run;
    return status->GetRun(&context, {}, &run).error_code();
  };
  ASSERT_TRUE(driver_.Await([&] {
    grpc::ClientContext context;
    return get_run(context) == grpc::StatusCode::RESOURCE_EXHAUSTED;
  }));
  grpc::ClientContext refused;
  EXPECT_EQ(get_run(refused), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"),
            1);
  // Members and joiners are served.
  EXPECT_TRUE(session->Write(heartbeat) && session->Read(&view));
  v1::JoinRequest join;
  join.set_island_id("b");
  join.set_instance_id(2);
  v1::JoinResponse joined;
  grpc::ClientContext joining;
  EXPECT_TRUE(
      v1::Coordinator::NewStub(channel)->Join(&joining, join, &joined).ok());

  for (auto& watcher : watchers) watcher->context.TryCancel();
  // Close their connections.
  watchers.clear();
  EXPECT_TRUE(driver_.Await([&] {
    grpc::ClientContext context;
    return get_run(context) == grpc::StatusCode::OK;
  }));
  session->WritesDone();
}

TEST_F(StreamsTest, AFollowerGetsTheEventsAfterTheOneItNames) {
  const auto stub = v1::Status::NewStub(driver_.channel());
  v1::WatchEventsRequest request;
  request.set_after_id(1);
  const auto stream = stub->WatchEvents(&context_, request);
  v1::Event event;
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.id(), 2);
  EXPECT_EQ(event.kind(), "island_joined");
  ASSERT_OK(driver_.Join("b"));
  std::vector<std::string> kinds;
  for (int i = 0; i < 2 && stream->Read(&event); ++i) {
    kinds.push_back(event.kind());
  }
  EXPECT_THAT(kinds, ElementsAre("island_joined", "run_started"));
  context_.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// The previous leader had events up to 100, and some were lost.
TEST_F(StreamsTest, AfterATakeoverThatLostEventsAFollowerGetsTheNewOnes) {
  driver_.engine().Record({.kind = "follower_promoted"});
  driver_.engine().Record({.kind = "validated"});
  v1::WatchEventsRequest request;
  request.set_after_id(100);
  const auto stream =
      v1::Status::NewStub(driver_.channel())->WatchEvents(&context_, request);
  v1::Event event;
  for (const char* const kind : {"follower_promoted", "validated"}) {
    ASSERT_TRUE(stream->Read(&event));
    EXPECT_EQ(event.kind(), kind);
  }
  driver_.engine().Record({.kind = "run_paused"});
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.kind(), "run_paused");
  context_.TryCancel();
}

TEST_F(StreamsTest, AFollowerGetsTheKindsThatItWants) {
  const auto stub = v1::Status::NewStub(driver_.channel());
  v1::WatchEventsRequest request;
  request.add_kinds("run_paused");
  request.add_kinds("run_suspended");
  const auto stream = stub->WatchEvents(&context_, request);
  // More than a page of others.
  for (int i = 0; i < 40; ++i) driver_.engine().Record({.kind = "validated"});
  driver_.engine().Record({.kind = "run_paused"});
  v1::Event event;
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.kind(), "run_paused");
  EXPECT_EQ(event.severity(), v1::WARNING);
  driver_.engine().Record({.kind = "validated"});
  driver_.engine().Record({.kind = "run_suspended"});
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.kind(), "run_suspended");
  context_.TryCancel();
}

TEST_F(StreamsTest, AWatcherHearsThatAKindDoesNotExist) {
  v1::WatchEventsRequest request;
  request.add_kinds("run_stopped");
  v1::Event event;
  const auto stream =
      v1::Status::NewStub(driver_.channel())->WatchEvents(&context_, request);
  EXPECT_FALSE(stream->Read(&event));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), testing::HasSubstr("run_suspended"));
}

}  // namespace
}  // namespace causeway
