// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the session of an island with streams that the test ends.
#include "worker/sync/session_actor.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/outer_loop/testing/island_driver.h"
#include "worker/sync/coordinator_client.h"
#include "worker/sync/shared_outer_loop.h"
#include "worker/sync/testing/unreachable_client.h"
#include "worker/sync/testing/warnings.h"

namespace causeway {
namespace {

// The coordinator's end of all streams, one at a time. Thread-safe.
class FakeCoordinator {
 public:
  int joins() const {
    absl::MutexLock lock(&mu_);
    return joins_;
  }
  bool cancelled() const {
    absl::MutexLock lock(&mu_);
    return cancelled_;
  }
  void Join() {
    absl::MutexLock lock(&mu_);
    ++joins_;
  }
  void Open() {
    absl::MutexLock lock(&mu_);
    end_.reset();
  }
  bool Write(const v1::SessionRequest& request) {
    absl::MutexLock lock(&mu_);
    heartbeats_.push_back(request);
    return !end_.has_value();
  }
  bool Read(v1::SessionResponse* view) {
    absl::MutexLock lock(&mu_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return end_.has_value() || !views_.empty();
    };
    mu_.Await(absl::Condition(&ready));
    if (views_.empty()) return false;
    *view = std::move(views_.front());
    views_.pop_front();
    return true;
  }
  absl::Status Finish() {
    absl::MutexLock lock(&mu_);
    return end_.value_or(absl::OkStatus());
  }
  void Cancel() {
    absl::MutexLock lock(&mu_);
    cancelled_ = true;
    if (!end_.has_value()) end_ = absl::CancelledError();
  }

  v1::SessionRequest AwaitHeartbeat() {
    absl::MutexLock lock(&mu_);
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return !heartbeats_.empty();
    };
    mu_.Await(absl::Condition(&ready));
    v1::SessionRequest heartbeat = std::move(heartbeats_.front());
    heartbeats_.pop_front();
    return heartbeat;
  }
  void Send(v1::SessionResponse view) {
    absl::MutexLock lock(&mu_);
    views_.push_back(std::move(view));
  }
  void End(const absl::Status& status) {
    absl::MutexLock lock(&mu_);
    end_ = status;
  }

 private:
  mutable absl::Mutex mu_;
  int joins_ ABSL_GUARDED_BY(mu_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<v1::SessionRequest> heartbeats_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::SessionResponse> views_ ABSL_GUARDED_BY(mu_);
  // The status of the open stream's end, if it has ended.
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

class FakeStream : public ControlStream {
 public:
  explicit FakeStream(FakeCoordinator* coordinator)
      : coordinator_(coordinator) {
    coordinator_->Open();
  }
  bool Write(const v1::SessionRequest& request) override {
    return coordinator_->Write(request);
  }
  bool Read(v1::SessionResponse* view) override {
    return coordinator_->Read(view);
  }
  absl::Status Finish() override { return coordinator_->Finish(); }
  void Cancel() override { coordinator_->Cancel(); }

 private:
  FakeCoordinator* const coordinator_;
};

class FakeClient : public UnreachableClient {
 public:
  explicit FakeClient(FakeCoordinator* coordinator)
      : coordinator_(coordinator) {}

  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest&) override {
    coordinator_->Join();
    v1::JoinResponse joined = IslandDriver().joined();
    joined.mutable_identity()->set_incarnation(coordinator_->joins());
    return joined;
  }
  std::unique_ptr<ControlStream> OpenSession() override {
    return std::make_unique<FakeStream>(coordinator_);
  }

 private:
  FakeCoordinator* const coordinator_;
};

class SessionActorTest : public testing::Test {
 protected:
  SessionActorTest() {
    session_ = std::make_unique<SessionActor>(&client_, &loop_, [] {
      v1::IslandProgress progress;
      progress.set_run_step(7);
      return progress;
    });
  }
  ~SessionActorTest() override {
    loop_.Tell([](OuterLoop& core, absl::Time) { core.RequestStop(); });
    session_.reset();
    EXPECT_TRUE(coordinator_.cancelled());
  }

  // Sends a view, and waits until it reaches the loop.
  void Publish(uint64_t version) {
    v1::SessionResponse view;
    view.add_heads()->set_version(version);
    coordinator_.Send(view);
    Await([&](const OuterLoop& core, absl::Time) {
      return core.membership().connected() &&
             core.membership().newest_version(0) == version;
    });
  }
  template <typename Condition>
  void Await(Condition condition) {
    while (!loop_.Read(condition)) absl::SleepFor(absl::Milliseconds(1));
  }

  FakeCoordinator coordinator_;
  FakeClient client_{&coordinator_};
  SharedOuterLoop loop_{IslandDriver::Options(), SteadyWallClock()};
  std::unique_ptr<SessionActor> session_;
};

TEST_F(SessionActorTest, HeartbeatsSayWhoTheIslandIsAndHowFar) {
  const v1::SessionRequest heartbeat = coordinator_.AwaitHeartbeat();
  EXPECT_EQ(heartbeat.identity().island_id(), "north");
  EXPECT_EQ(heartbeat.identity().incarnation(), 1);
  EXPECT_EQ(heartbeat.progress().run_step(), 7);
  Publish(3);
  Publish(4);
}

TEST_F(SessionActorTest, WhatTheCoordinatorSaysIsLoggedOnce) {
  Warnings warnings;
  coordinator_.AwaitHeartbeat();
  v1::SessionResponse view;
  view.set_message("other data\nof this line");
  coordinator_.Send(view);
  coordinator_.Send(view);
  Publish(3);
  EXPECT_THAT(warnings.lines(),
              testing::ElementsAre(
                  "the coordinator says: other data\\x0aof this line"));
}

TEST_F(SessionActorTest, AStreamThatBreaksIsOpenedAgain) {
  coordinator_.AwaitHeartbeat();
  Publish(3);
  coordinator_.End(absl::UnavailableError("reset"));
  EXPECT_EQ(coordinator_.AwaitHeartbeat().identity().incarnation(), 1);
  Publish(4);
  EXPECT_EQ(coordinator_.joins(), 1);
  EXPECT_FALSE(coordinator_.cancelled());
}

TEST_F(SessionActorTest, AFencedOffIslandJoinsAgain) {
  coordinator_.AwaitHeartbeat();
  coordinator_.End(absl::AbortedError("fenced off"));
  EXPECT_EQ(coordinator_.AwaitHeartbeat().identity().incarnation(), 2);
}

TEST_F(SessionActorTest, ARefusedIslandHearsTheReason) {
  coordinator_.AwaitHeartbeat();
  coordinator_.End(absl::PermissionDeniedError("who?"));
  Await([](const OuterLoop& core, absl::Time) {
    return absl::IsPermissionDenied(core.membership().failure());
  });
  coordinator_.Cancel();
}

}  // namespace
}  // namespace causeway
