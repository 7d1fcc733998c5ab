// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A leader with two islands, and a follower.
#ifndef SERVER_REPLICATION_TESTING_FOLLOWER_TEST_BASE_H_
#define SERVER_REPLICATION_TESTING_FOLLOWER_TEST_BASE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/testing/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "glog/logging.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/replication.grpc.pb.h"
#include "server/edge/copy_source.h"
#include "server/edge/server.h"
#include "server/edge/testing/served_engine.h"
#include "server/engine.h"
#include "server/replication/follower.h"

namespace causeway {

// Passes a follower's stream on, and may change or end the leader's messages.
class Proxy : public v1::Replication::Service {
 public:
  // Returns whether the stream continues.
  using Look = std::function<bool(v1::FollowResponse&)>;

  Proxy(const std::string& leader, Look look)
      : stub_(v1::Replication::NewStub(
            grpc::CreateChannel(leader, grpc::InsecureChannelCredentials()))),
        look_(std::move(look)) {}

  const std::string& address() const { return server_.address(); }
  // Returns how often the follower has said that it is at work.
  int times_at_work() const { return times_at_work_; }

  grpc::Status Follow(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::FollowResponse, v1::FollowRequest>* stream)
      override {
    grpc::ClientContext call;
    const auto leader = stub_->Follow(&call);
    std::thread upward([&] {
      v1::FollowRequest request;
      while (stream->Read(&request)) {
        if (!request.has_hello() && request.durable_index() == 0) {
          ++times_at_work_;
        }
        leader->Write(request);
      }
      call.TryCancel();
    });
    v1::FollowResponse response;
    while (leader->Read(&response) && look_(response)) stream->Write(response);
    call.TryCancel();
    context->TryCancel();
    upward.join();
    leader->Finish();
    return grpc::Status::CANCELLED;
  }

 private:
  const std::unique_ptr<v1::Replication::Stub> stub_;
  const Look look_;
  std::atomic<int> times_at_work_ = 0;
  const LocalGrpcServer server_{{.services = {this}}};
};

class FollowerTest : public testing::Test {
 protected:
  void StartLeader(const std::string& more = "") {
    ASSERT_OK(driver_.Start(
        TestRunConfig(absl::StrCat("training { total_steps: 200 } ", more))));
    for (const char* island : {"a", "b"}) {
      ASSERT_OK_AND_ASSIGN(islands_.emplace_back(), driver_.Join(island));
    }
    ASSERT_OK(driver_.Serve());
  }
  void TearDown() override {
    copy_server_.reset();
    successor_.reset();
    follower_.reset();
    driver_.StopServing();
  }

  std::string leader() const { return driver_.address(); }
  std::string copy_dir() const { return driver_.state_dir() + "-copy"; }
  void Follow(const std::string& address, bool is_candidate = false) {
    follower_.reset();
    ASSERT_OK_AND_ASSIGN(follower_,
                         Follower::Open({.state_dir = copy_dir(),
                                         .name = "f",
                                         .is_candidate = is_candidate}));
    follower_->Follow(address);
  }

  // Starts the follower's server, and returns a channel to it.
  std::shared_ptr<grpc::Channel> ServeCopy() {
    source_.emplace(follower_.get(), SteadyWallClock());
    auto server = CoordinatorServer::StartFollower(
        follower_.get(), &*source_,
        {.address = "127.0.0.1:0", .now = SteadyWallClock()});
    CHECK(server.ok()) << server.status();
    copy_server_ = *std::move(server);
    return grpc::CreateChannel(absl::StrCat("127.0.0.1:", copy_server_->port()),
                               grpc::InsecureChannelCredentials());
  }

  // Promotes the follower, and serves the run from its copy.
  void Lead() {
    v1::PromoteRequest request;
    request.set_force(true);
    ASSERT_OK(follower_->Promote(request));
    ASSERT_OK_AND_ASSIGN(successor_,
                         Engine::Start({.state_dir = copy_dir(),
                                        .config = follower_->view().config,
                                        .now = SteadyWallClock()},
                                       follower_->Release()));
    ASSERT_OK_AND_ASSIGN(
        copy_server_,
        CoordinatorServer::Start(successor_.get(), {.address = "127.0.0.1:0",
                                                    .now = SteadyWallClock()}));
  }

  // Makes both islands contribute to the next version.
  void Contribute(uint32_t fragment) {
    const uint64_t version = driver_.Head(fragment).version();
    for (const v1::IslandIdentity& island : islands_) {
      ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                           driver_.Fetch(island, fragment, version));
      ASSERT_OK(driver_.Contribute(driver_.MakeContribution(
          island, fragment, version, anchor,
          Shifted(anchor, 0.01f * static_cast<float>(version + 1)))));
    }
  }
  // Makes the next version of both fragments.
  void Train() {
    for (uint32_t fragment = 0; fragment < 2; ++fragment) {
      const uint64_t version = driver_.Head(fragment).version();
      Contribute(fragment);
      ASSERT_TRUE(driver_.AwaitVersion(fragment, version + 1));
    }
  }

  bool Await(const std::function<bool(const Follower::View&)>& holds) {
    for (int i = 0; i < 1000; ++i) {
      if (holds(follower_->view())) return true;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return false;
  }
  bool AwaitAll() {
    return Await([&](const Follower::View& view) {
      return view.is_complete &&
             view.changes == driver_.engine().followed().feed->Newest().index();
    });
  }
  // Promotes the follower, and expects that its engine has the leader's
  // versions.
  void ExpectTheSameRun() {
    driver_.StopServing();
    std::vector<std::string> heads;
    for (uint32_t fragment = 0; fragment < 2; ++fragment) {
      heads.push_back(driver_.Head(fragment).DebugString());
    }
    v1::PromoteRequest request;
    request.set_force(true);
    ASSERT_OK(follower_->Promote(request));
    const v1::RunConfig config = follower_->view().config;
    const auto expect = [&](OpenedRun opened) {
      ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine,
                           Engine::Start({.state_dir = copy_dir(),
                                          .config = config,
                                          .now = SteadyWallClock()},
                                         std::move(opened)));
      const v1::ListFragmentsResponse fragments = engine->ListFragments();
      for (int fragment = 0; fragment < 2; ++fragment) {
        EXPECT_EQ(fragments.fragments(fragment).head().DebugString(),
                  heads[fragment]);
      }
      EXPECT_EQ(engine->GetRun().epoch(), 2);
      EXPECT_EQ(engine->run_id(), driver_.engine().run_id());
    };
    expect(follower_->Release());
    // The files that the engine has left can be read.
    expect({});
  }

  ServedEngine driver_;
  std::vector<v1::IslandIdentity> islands_;
  std::unique_ptr<Follower> follower_;
  std::optional<CopySource> source_;
  std::unique_ptr<Engine> successor_;
  std::unique_ptr<CoordinatorServer> copy_server_;
};

}  // namespace causeway

#endif  // SERVER_REPLICATION_TESTING_FOLLOWER_TEST_BASE_H_
