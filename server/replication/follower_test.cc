// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replication/follower.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/testing/grpc_server.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/coordinator.grpc.pb.h"
#include "proto/replication.grpc.pb.h"
#include "proto/status.grpc.pb.h"
#include "proto/trust.grpc.pb.h"
#include "quantization/encoded_object.h"
#include "server/edge/copy_source.h"
#include "server/engine.h"
#include "server/replication/testing/follower_test_base.h"
#include "server/storage/commit_log.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

using testing::HasSubstr;

TEST_F(FollowerTest, MakesTheSameOuterSteps) {
  StartLeader("synchronization { uplink_format: INT4 downlink_format: INT4 }");
  Train();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  for (int i = 0; i < 5; ++i) Train();
  ASSERT_TRUE(AwaitAll());
  ExpectTheSameRun();
}

TEST_F(FollowerTest, ContinuesAfterARestart) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  for (int i = 0; i < 3; ++i) {
    follower_.reset();
    Train();
    Follow(leader());
    ASSERT_TRUE(AwaitAll());
  }
  ExpectTheSameRun();
}

TEST_F(FollowerTest, GetsStatesWhereRecordsAreGone) {
  StartLeader("storage { snapshot_log_ratio: 0 }");
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  follower_.reset();
  for (int i = 0; i < 6; ++i) Train();
  const std::string record =
      driver_.state_dir() + "/merges/merge-0000-v00000001.safetensors";
  ASSERT_TRUE(driver_.Await([&] { return !std::filesystem::exists(record); }));
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  Train();
  ASSERT_TRUE(AwaitAll());
  ExpectTheSameRun();
}

TEST_F(FollowerTest, GetsStatesWhereRecordsAreFarLarger) {
  // The leader makes no snapshot, so it keeps all records: 4 bytes a value, and
  // a state has 8.
  StartLeader(
      "storage { snapshot_log_ratio: 1000 } "
      "synchronization { uplink_format: BF16 }");
  std::atomic<int> states = 0;
  Proxy proxy(leader(), [&](v1::FollowResponse& response) {
    if (response.object().kind() == v1::ReplicatedObject::STATE) ++states;
    return true;
  });
  const auto miss = [&](int rounds) {
    follower_.reset();
    for (int i = 0; i < rounds; ++i) Train();
    Follow(proxy.address());
    return AwaitAll();
  };
  ASSERT_TRUE(miss(0));
  EXPECT_EQ(states, 2);
  ASSERT_TRUE(miss(1));
  EXPECT_EQ(states, 2) << "the copy was thrown away";
  ASSERT_TRUE(miss(18));
  EXPECT_EQ(states, 4);
  ExpectTheSameRun();
}

// The leader starts again, so it no longer has the changes that the follower
// lacks. The stream ends once after each of the first messages.
TEST_F(FollowerTest, KeepsItsCopyUntilTheNewLogIsThere) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  follower_.reset();
  Train();
  driver_.StopServing();
  ASSERT_OK(driver_.Start(TestRunConfig("training { total_steps: 200 }")));
  ASSERT_OK(driver_.Serve());
  int allowed = 0;
  int messages = 0;
  std::atomic<int> logs = 0;
  std::atomic<int> states = 0;
  Proxy proxy(leader(), [&](v1::FollowResponse& response) {
    if (response.object().kind() == v1::ReplicatedObject::LOG) ++logs;
    if (response.object().kind() == v1::ReplicatedObject::STATE) ++states;
    if (messages++ < allowed) return true;
    ++allowed;
    messages = 0;
    return false;
  });
  Follow(proxy.address());
  EXPECT_TRUE(follower_->view().is_complete);
  ASSERT_TRUE(AwaitAll());
  // The log is a message and a chunk, and two records follow.
  EXPECT_GE(logs, 6);
  EXPECT_EQ(states, 0) << "the copy was thrown away";
  ExpectTheSameRun();
}

// Ends the stream once after each of the first messages.
TEST_F(FollowerTest, SurvivesAStreamThatBreaksAnywhere) {
  StartLeader("storage { snapshot_log_ratio: 0 }");
  for (int i = 0; i < 4; ++i) Train();
  int allowed = 0;
  int messages = 0;
  Proxy proxy(leader(), [&](v1::FollowResponse&) {
    if (messages++ < allowed) return true;
    ++allowed;
    messages = 0;
    return false;
  });
  Follow(proxy.address());
  ASSERT_TRUE(AwaitAll());
  Train();
  ASSERT_TRUE(AwaitAll());
  EXPECT_GT(allowed, 5);
  ExpectTheSameRun();
}

TEST_F(FollowerTest, AsksAgainForADamagedChunk) {
  StartLeader();
  Train();
  int damages = 3;
  Proxy proxy(leader(), [&](v1::FollowResponse& response) {
    if (response.has_chunk() && damages-- > 0) {
      response.mutable_chunk()->mutable_data()->back() ^= 4;
    }
    return true;
  });
  Follow(proxy.address());
  ASSERT_TRUE(AwaitAll());
  EXPECT_LE(damages, 0);
  ExpectTheSameRun();
}

TEST_F(FollowerTest, EndsIfAnOuterStepGivesOtherValues) {
  StartLeader();
  Proxy proxy(leader(), [&](v1::FollowResponse& response) {
    if (response.object().kind() == v1::ReplicatedObject::MERGE) {
      response.mutable_object()->mutable_head()->set_digest(
          std::string(16, 'x'));
    }
    return true;
  });
  Follow(proxy.address());
  ASSERT_TRUE(AwaitAll());
  Train();
  ASSERT_TRUE(
      Await([](const Follower::View& view) { return !view.ended.ok(); }));
  EXPECT_THAT(follower_->view().ended,
              IsDataLoss("to version 1 of fragment 0"));
  EXPECT_TRUE(driver_.AwaitVersion(1, 1)) << "the leader goes on";
}

TEST_F(FollowerTest, GetsTheRecordOfAMergeBeforeItIsCommitted) {
  StartLeader();
  std::atomic<int> records = 0;
  Proxy proxy(leader(), [&](v1::FollowResponse& response) {
    if (response.object().kind() == v1::ReplicatedObject::MERGE) ++records;
    return true;
  });
  Follow(proxy.address());
  ASSERT_TRUE(AwaitAll());
  ASSERT_OK(driver_.RefuseInserts("commits"));
  Contribute(0);
  ASSERT_TRUE(driver_.Await([&] {
    return records == 1 && driver_.engine().run_state() == v1::SUSPENDED;
  }));
  EXPECT_EQ(driver_.Head(0).version(), 0);
  ASSERT_OK(driver_.AllowInserts());
  driver_.AdvanceSeconds(6);
  ASSERT_TRUE(driver_.AwaitVersion(0, 1));
  ASSERT_TRUE(AwaitAll());
  EXPECT_EQ(records, 2) << "the merge was made again";
  ExpectTheSameRun();
}

TEST_F(FollowerTest, SaysThatItIsAtWorkOnALongRecord) {
  StartLeader();
  std::atomic<bool> is_slow = false;
  Proxy proxy(leader(), [&](v1::FollowResponse& response) {
    if (response.has_chunk() && is_slow.exchange(false)) {
      absl::SleepFor(absl::Milliseconds(1500));
    }
    return true;
  });
  Follow(proxy.address());
  ASSERT_TRUE(AwaitAll());
  Train();
  ASSERT_TRUE(AwaitAll());
  const int before = proxy.times_at_work();
  is_slow = true;
  Contribute(0);
  EXPECT_TRUE(Await(
      [&](const Follower::View&) { return proxy.times_at_work() > before; }));
}

TEST_F(FollowerTest, RefusesTheDirectoryOfARunThatWasNotReplaced) {
  StartLeader();
  ASSERT_OK(Engine::Start({.state_dir = copy_dir(),
                           .config = TestRunConfig(),
                           .random = (uint64_t{5} << 32) + 7,
                           .now = SteadyWallClock()})
                .status());
  Follow(leader());
  ASSERT_TRUE(
      Await([](const Follower::View& view) { return !view.ended.ok(); }));
  EXPECT_THAT(follower_->view().ended,
              IsFailedPrecondition("has not replaced it"));
  EXPECT_THAT(follower_->Promote({}), IsFailedPrecondition());
}

TEST_F(FollowerTest, SaysWhyItsLeaderRefusesIt) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  absl::Time now = absl::FromUnixSeconds(1'000'000);
  CopySource source(follower_.get(), [&] { return now; });
  const auto text = [&] {
    for (int i = 0; i < 2; ++i) {
      source.Observe([] { return "promote it"; });
      now += absl::Seconds(6);
    }
    return source.Read()->run().attention(0).text();
  };
  const auto fails = [](const Follower::View& view) {
    return !view.problem.ok();
  };
  // Each of its calls is refused with UNIMPLEMENTED.
  v1::Replication::Service refusing;
  LocalGrpcServer server({.services = {&refusing}});
  follower_->Follow(server.address());
  ASSERT_TRUE(Await(fails));
  EXPECT_EQ(text(), absl::StrCat("this coordinator follows no one: the one at ",
                                 server.address(),
                                 " cannot be followed: UNIMPLEMENTED: "));
  server.Kill();
  follower_->Follow(server.address());
  ASSERT_TRUE(Await(fails));
  EXPECT_THAT(text(), HasSubstr("promote it; the last try: "));
}

TEST_F(FollowerTest, AnOperatorCannotPromoteACandidate) {
  StartLeader();
  Follow(leader(), /*is_candidate=*/true);
  ASSERT_TRUE(AwaitAll());
  v1::PromoteRequest request;
  request.set_force(true);
  EXPECT_THAT(follower_->Promote(request), IsFailedPrecondition("--etcd"));
  Contribute(0);
  EXPECT_TRUE(AwaitAll());
  EXPECT_EQ(follower_->view().epoch, 1);
}

// The leader with epoch 5 is lost before it has sent a change.
TEST_F(FollowerTest, ATakeoverReusesNoEpochOfALeaderThatItHasMet) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  Proxy proxy(leader(), [](v1::FollowResponse& response) {
    if (!response.has_run()) return false;
    response.mutable_run()->set_epoch(5);
    return true;
  });
  follower_->Follow(proxy.address());
  ASSERT_TRUE(
      Await([](const Follower::View& view) { return view.epoch == 5; }));
  // The process starts again.
  Follow(leader());
  EXPECT_EQ(follower_->view().epoch, 5);
  v1::PromoteRequest request;
  request.set_force(true);
  ASSERT_OK_AND_ASSIGN(const v1::PromoteResponse promoted,
                       follower_->Promote(request));
  EXPECT_EQ(promoted.epoch(), 6);
}

TEST_F(FollowerTest, AnEngineDoesNotTakeUpACopy) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  EXPECT_THAT(follower_->Promote({}), IsFailedPrecondition("is alive"));
  follower_.reset();
  EXPECT_THAT(
      Engine::Start({.state_dir = copy_dir(),
                     .config = TestRunConfig("training { total_steps: 200 }"),
                     .now = SteadyWallClock()}),
      IsFailedPrecondition("--promote"));
}

TEST_F(FollowerTest, AFollowerThatHasTheWholeLogContinuesAtANewLeader) {
  StartLeader();
  Follow(leader());
  const std::string other_dir = copy_dir() + "-other";
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Follower> other,
      Follower::Open({.state_dir = other_dir, .name = "other"}));
  other->Follow(leader());
  Train();
  // The leader's log gets no further event once both are in sync.
  ASSERT_TRUE(Await([&](const Follower::View& view) {
    const auto in_sync = driver_.engine().log().NewestEvents(
        0, 9, {.kinds = {"follower_in_sync"}});
    const uint64_t newest = driver_.engine().followed().feed->Newest().index();
    return in_sync.ok() && in_sync->size() == 2 && view.changes == newest &&
           other->view().changes == newest;
  }));
  driver_.StopServing();
  Lead();
  if (HasFatalFailure()) return;
  std::atomic<int> logs = 0;
  Proxy proxy(absl::StrCat("127.0.0.1:", copy_server_->port()),
              [&](v1::FollowResponse& response) {
                if (response.object().kind() == v1::ReplicatedObject::LOG) {
                  ++logs;
                }
                return true;
              });
  other->Follow(proxy.address());
  ASSERT_TRUE(Await([&](const Follower::View&) {
    const Follower::View view = other->view();
    return view.epoch == 2 &&
           view.changes == successor_->followed().feed->Newest().index();
  }));
  EXPECT_EQ(logs, 0) << "the copy was thrown away";
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<CommitLog> log,
                       CommitLog::OpenReadOnly(other_dir + "/run.sqlite3"));
  ASSERT_OK_AND_ASSIGN(
      const std::vector<v1::Event> takeovers,
      log->NewestEvents(0, 9, {.kinds = {"follower_promoted"}}));
  ASSERT_EQ(takeovers.size(), 1);
  EXPECT_THAT(takeovers[0].text(), HasSubstr("f has taken the run over"));
}

TEST_F(FollowerTest, AFollowerThatCannotTakeOverKeepsFollowing) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  std::filesystem::remove(copy_dir() + "/run.sqlite3");
  v1::PromoteRequest request;
  request.set_force(true);
  EXPECT_THAT(follower_->Promote(request), IsFailedPrecondition("removed"));
  // Following ends with the same error.
  EXPECT_TRUE(
      Await([](const Follower::View& view) { return !view.ended.ok(); }));
}

// A follower whose acknowledgements the test decides.
class ManualFollower {
 public:
  explicit ManualFollower(const std::string& leader)
      : stub_(v1::Replication::NewStub(
            grpc::CreateChannel(leader, grpc::InsecureChannelCredentials()))),
        stream_(stub_->Follow(&context_)) {
    v1::FollowRequest request;
    request.mutable_hello()->set_name("manual");
    stream_->Write(request);
  }
  ~ManualFollower() {
    context_.TryCancel();
    stream_->Finish();
  }

  // Returns the next change.
  v1::LogChange Next() {
    v1::FollowResponse response;
    while (stream_->Read(&response)) {
      if (response.has_change()) return response.change();
    }
    return {};
  }
  void Acknowledge(const v1::LogChange& change) {
    v1::FollowRequest request;
    request.set_durable_index(change.position().index());
    stream_->Write(request);
  }

 private:
  grpc::ClientContext context_;
  const std::unique_ptr<v1::Replication::Stub> stub_;
  const std::unique_ptr<
      grpc::ClientReaderWriter<v1::FollowRequest, v1::FollowResponse>>
      stream_;
};

TEST_F(FollowerTest, AVersionIsPublishedOnceTheFollowersInSyncHaveIt) {
  StartLeader("storage { sync_replicas: 1 }");
  ManualFollower follower(leader());
  ASSERT_TRUE(driver_.Await(
      [&] { return driver_.engine().GetRun().followers_size() == 1; }));
  const auto state = [&] {
    return driver_.engine().GetRun().followers(0).state();
  };
  // The events that it joined and is in sync are changes, too.
  while (state() != v1::FollowerStatus::IN_SYNC) {
    follower.Acknowledge(follower.Next());
  }
  const auto await_commit = [&] {
    v1::LogChange change;
    while (change.commits().empty()) change = follower.Next();
    return change;
  };
  Contribute(0);
  const v1::LogChange change = await_commit();
  EXPECT_EQ(driver_.Head(0).version(), 0) << "it is committed, but not told";
  follower.Acknowledge(change);
  ASSERT_TRUE(driver_.AwaitVersion(0, 1));
  // Versions do not wait forever for a silent follower.
  Contribute(1);
  await_commit();
  EXPECT_EQ(driver_.Head(1).version(), 0);
  ASSERT_TRUE(driver_.Await([&] {
    driver_.AdvanceSeconds(6);
    return driver_.Head(1).version() == 1;
  }));
  EXPECT_EQ(state(), v1::FollowerStatus::BEHIND);
}

TEST_F(FollowerTest, IslandsReadWhatIsPublished) {
  StartLeader();
  // The follower learns of no version after 1.
  Proxy proxy(leader(), [](v1::FollowResponse& response) {
    if (response.has_published()) {
      v1::FragmentHead& head = *response.mutable_published();
      head.set_version(std::min<uint64_t>(head.version(), 1));
    }
    return true;
  });
  Follow(proxy.address());
  ASSERT_TRUE(AwaitAll());
  Train();
  Train();
  ASSERT_TRUE(AwaitAll());
  PublishedCopy& copy = follower_->published();
  v1::FetchUpdateRequest update;
  *update.mutable_identity() = islands_[0];
  absl::StatusOr<std::optional<OpenedUpdate>> opened;
  ASSERT_TRUE(Await([&](const Follower::View&) {
    opened = copy.OpenUpdate(update);
    return !opened.ok() || opened->has_value();
  }));
  ASSERT_OK(opened);
  ASSERT_OK_AND_ASSIGN(const OpenedUpdate own,
                       driver_.engine().OpenUpdate(update));
  EXPECT_EQ((*opened)->bytes, own.bytes);
  EXPECT_EQ((*opened)->response.head().digest(), own.response.head().digest());
  EXPECT_EQ((*opened)->response.object().digest(),
            own.response.object().digest());
  update.set_from_version(1);
  EXPECT_FALSE(copy.OpenUpdate(update).value().has_value());
  v1::FetchParametersRequest parameters;
  *parameters.mutable_identity() = islands_[0];
  parameters.set_version(2);
  EXPECT_FALSE(copy.OpenParameters(parameters).value().has_value());

  const auto code = [&](const auto& change) {
    v1::FetchUpdateRequest request = update;
    change(request);
    return copy.OpenUpdate(request).status().code();
  };
  EXPECT_EQ(code([](auto& r) { r.mutable_identity()->set_epoch(2); }),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(code([](auto& r) { r.mutable_identity()->set_run_id("other"); }),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code([](auto& r) { r.set_fragment(9); }),
            absl::StatusCode::kNotFound);
  // A restart of the leader can change the encoding that islands decode.
  copy.Connect(1, {.format = v1::BF16});
  EXPECT_EQ(code([](auto& r) { r.set_from_version(0); }),
            absl::StatusCode::kNotFound);
  copy.Connect(1, SpecOf(own.response.object()));
  // Nothing else will come, but published versions can be read.
  follower_->Pause();
  EXPECT_EQ(code([](auto&) {}), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code([](auto& r) { r.set_from_version(0); }),
            absl::StatusCode::kOk);
}

TEST_F(FollowerTest, HearsWhichCertificatesWereRevoked) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  EXPECT_OK(follower_->CheckCertificate("abcd01"));
  v1::RevokedCertificates revoked;
  revoked.add_ids("abcd");
  driver_.engine().followed().feed->SetRevoked(revoked);
  EXPECT_TRUE(Await([&](const Follower::View&) {
    return absl::IsUnauthenticated(follower_->CheckCertificate("abcd01"));
  }));
  EXPECT_OK(follower_->CheckCertificate("abce01"));
  // The next start may find no leader.
  driver_.StopServing();
  Follow("127.0.0.1:1");
  EXPECT_THAT(follower_->CheckCertificate("abcd01"),
              IsUnauthenticated("was revoked"));
  EXPECT_OK(follower_->CheckCertificate("abce01"));
}

TEST_F(FollowerTest, ItsServerSendsEventsAsTheyCome) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  const auto stub = v1::Status::NewStub(ServeCopy());
  grpc::ClientContext context;
  const auto reader = stub->WatchEvents(&context, v1::WatchEventsRequest());
  v1::Event event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.kind(), "coordinator_started");
  ASSERT_OK(driver_.engine().Pause({}));
  do {
    ASSERT_TRUE(reader->Read(&event)) << "no run_paused";
  } while (event.kind() != "run_paused");
}

TEST_F(FollowerTest, ItsServerSendsParametersAsTheLeadersDoes) {
  StartLeader();
  Follow(leader());
  ASSERT_TRUE(AwaitAll());
  const std::shared_ptr<grpc::Channel> channel = ServeCopy();
  const auto stub = v1::Coordinator::NewStub(channel);
  // The call begins before the version exists.
  v1::FetchParametersRequest request;
  *request.mutable_identity() = islands_[0];
  request.set_version(1);
  grpc::ClientContext context;
  const auto reader = stub->FetchParameters(&context, request);
  Train();
  std::string bytes;
  v1::FetchParametersResponse response;
  while (reader->Read(&response)) bytes += response.chunk().data();
  EXPECT_TRUE(reader->Finish().ok());
  ASSERT_OK_AND_ASSIGN(const OpenedParameters own,
                       driver_.engine().OpenParameters(request));
  EXPECT_EQ(bytes, own.bytes);
  const v1::RunStatus run = source_->Read()->run();
  EXPECT_EQ(run.copy_bytes_sent(), own.bytes.size());
  EXPECT_NE(run.bytes_sent(), own.bytes.size()) << "it is the run's";

  grpc::ClientContext join_context;
  v1::JoinResponse joined;
  const grpc::Status refused = stub->Join(&join_context, {}, &joined);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), HasSubstr(leader()));

  grpc::ClientContext token_context;
  v1::CreateTokenResponse token;
  EXPECT_THAT(v1::Trust::NewStub(channel)
                  ->CreateToken(&token_context, {}, &token)
                  .error_message(),
              HasSubstr(leader()));
}

}  // namespace
}  // namespace causeway
