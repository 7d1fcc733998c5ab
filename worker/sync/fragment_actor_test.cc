// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests a fragment's actor with a real coordinator, over a client with faults
// that the test sets. The test is the trainer.
#include "worker/sync/fragment_actor.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/checksum.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/fragment_plan.h"
#include "quantization/strips/layout.h"
#include "server/edge/testing/served_engine.h"
#include "worker/replica/fragment_part.h"
#include "worker/replica/fragment_replica.h"
#include "worker/replica/testing/host_replica.h"
#include "worker/sync/grpc_coordinator_client.h"
#include "worker/sync/session_actor.h"
#include "worker/sync/shared_outer_loop.h"

namespace causeway {
namespace {

using testing::_;
using testing::ElementsAre;
using testing::Pair;
using testing::SizeIs;

// Passes messages on, but changes the first few to those that a fenced-off
// incarnation receives.
class FencingStream : public ControlStream {
 public:
  FencingStream(std::unique_ptr<ControlStream> stream,
                std::atomic<int>* fenced_views)
      : stream_(std::move(stream)), fenced_views_(fenced_views) {}

  bool Write(const v1::SessionRequest& request) override {
    return stream_->Write(request);
  }
  bool Read(v1::SessionResponse* response) override {
    if (!stream_->Read(response)) return false;
    if (*fenced_views_ > 0) {
      --*fenced_views_;
      response->clear_first_contribution_version();
    }
    return true;
  }
  absl::Status Finish() override { return stream_->Finish(); }
  void Cancel() override { stream_->Cancel(); }

 private:
  const std::unique_ptr<ControlStream> stream_;
  std::atomic<int>* const fenced_views_;
};

class BreakingClient;

// If the stream is null, the call's deadline passes before anything arrives.
class BreakingUpdateStream : public UpdateStream {
 public:
  BreakingUpdateStream(BreakingClient* client,
                       std::unique_ptr<UpdateStream> stream)
      : client_(client), stream_(std::move(stream)) {}
  absl::Status Receive(UpdateDownload& download,
                       absl::FunctionRef<absl::Status()> progress) override;

 private:
  BreakingClient* const client_;
  const std::unique_ptr<UpdateStream> stream_;
};

// Passes calls on. A fault that the test sets happens to the first call of its
// kind.
class BreakingClient : public CoordinatorClient {
 public:
  explicit BreakingClient(std::unique_ptr<CoordinatorClient> client)
      : client_(std::move(client)) {}

  bool break_contribute = false;
  bool lose_verdict = false;
  bool break_update = false;
  bool damage_head = false;
  // Describes the update in another format.
  bool misdescribe = false;
  // The next fetch of parameters fails, or brings none.
  bool break_parameters = false;
  bool omit_parameters = false;
  // Loses every call that waits for an update.
  bool lose_waits = false;
  // Runs before each Contribute, with the digest of the encoding.
  std::function<void(const std::string&)> before_contribute;
  // Runs before the first FetchUpdate.
  std::function<void(const v1::FetchUpdateRequest&)> before_update;
  // The number of the session's next views that are fenced off.
  std::atomic<int> fenced_views = 0;
  // For each Contribute: whether the encoding was complete when it began.
  std::vector<bool> complete_offers;
  // For each FetchUpdate: whether it waits, and the digest of the contribution.
  std::vector<std::pair<bool, std::string>> updates_asked_for;
  int parameter_fetches = 0;

  absl::StatusOr<v1::ContributeResponse> Contribute(
      v1::ContributionHeader header, StreamedEncoding& encoding,
      absl::FunctionRef<void()> sent) override {
    complete_offers.push_back(encoding.complete());
    if (before_contribute) {
      encoding.Await(encoding.max_bytes());
      before_contribute(encoding.object().digest());
    }
    if (std::exchange(break_contribute, false)) {
      encoding.Await(1);
      return absl::UnavailableError("broken by the test");
    }
    const auto response =
        client_->Contribute(std::move(header), encoding, sent);
    if (std::exchange(lose_verdict, false)) {
      return absl::UnavailableError("lost by the test");
    }
    return response;
  }
  std::unique_ptr<UpdateStream> FetchUpdate(
      const v1::FetchUpdateRequest& request, uint64_t max_bytes,
      const UpdateDownload& download) override {
    updates_asked_for.push_back(
        {request.wait(), request.contribution_digest()});
    std::unique_ptr<UpdateStream> stream;
    if (!request.wait() || !lose_waits) {
      if (before_update) std::exchange(before_update, nullptr)(request);
      stream = client_->FetchUpdate(request, max_bytes, download);
    }
    return std::make_unique<BreakingUpdateStream>(this, std::move(stream));
  }
  absl::Status FetchParameters(const v1::FetchParametersRequest& request,
                               uint64_t max_bytes,
                               ParametersDownload& download) override {
    ++parameter_fetches;
    if (std::exchange(break_parameters, false)) {
      return absl::UnavailableError("broken by the test");
    }
    if (std::exchange(omit_parameters, false)) return absl::OkStatus();
    return client_->FetchParameters(request, max_bytes, download);
  }
  absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) override {
    return client_->Join(request);
  }
  std::unique_ptr<ControlStream> OpenSession() override {
    return std::make_unique<FencingStream>(client_->OpenSession(),
                                           &fenced_views);
  }
  absl::Status Leave(const v1::LeaveRequest& request) override {
    return client_->Leave(request);
  }
  void Shutdown() override { client_->Shutdown(); }
  uint64_t bytes_up() const override { return client_->bytes_up(); }
  uint64_t bytes_down() const override { return client_->bytes_down(); }
  void ReportLinks(v1::IslandProgress& progress) const override {
    client_->ReportLinks(progress);
  }

 private:
  const std::unique_ptr<CoordinatorClient> client_;
};

absl::Status BreakingUpdateStream::Receive(
    UpdateDownload& download, absl::FunctionRef<absl::Status()> progress) {
  if (stream_ == nullptr) {
    return absl::DeadlineExceededError("lost by the test");
  }
  const bool breaks = std::exchange(client_->break_update, false);
  const bool misdescribes = std::exchange(client_->misdescribe, false);
  const absl::Status fetched =
      stream_->Receive(download, [&]() -> absl::Status {
        if (misdescribes) {
          download.description.mutable_object()->set_format(v1::BF16);
        }
        RETURN_IF_ERROR(progress());
        return breaks ? absl::UnavailableError("broken by the test")
                      : absl::OkStatus();
      });
  if (fetched.ok() && std::exchange(client_->damage_head, false)) {
    download.description.mutable_head()->set_digest(
        std::string(kDigestBytes, 'x'));
  }
  return fetched;
}

class FragmentActorTest : public testing::Test {
 protected:
  // The model is one fragment of several strips and chunks.
  void SetUp() override {
    ASSERT_OK(driver_.Start(TestRunConfig(
        R"pb(
          model { hidden_size: 256 intermediate_size: 512 }
          synchronization { fragments: 1 max_overlap_steps: 1 }
          membership { min_islands: 1 heartbeat_seconds: 0.1 grace_seconds: 0 }
        )pb" +
        more_)));
    ASSERT_OK(driver_.Serve());
    client_ = std::make_unique<BreakingClient>(NewGrpcCoordinatorClient(
        {.address = driver_.address(), .now = SteadyWallClock()}));
  }
  // Joins, and begins with the run's parameters or with a checkpoint of them.
  void Begin(std::optional<v1::IslandCheckpoint> checkpoint = std::nullopt) {
    OuterLoop::Options options{.resume = std::move(checkpoint)};
    options.join.set_island_id("a");
    options.join.set_instance_id(1);
    loop_ = std::make_unique<SharedOuterLoop>(options, SteadyWallClock());
    session_ = std::make_unique<SessionActor>(
        client_.get(), loop_.get(), [] { return v1::IslandProgress(); });
    Next<action::Begin>();
    const v1::JoinResponse joined =
        loop_->Read([](const OuterLoop& core, absl::Time) {
          return *core.membership().joined();
        });
    if (anchor_.empty()) {
      ASSERT_OK_AND_ASSIGN(anchor_, driver_.Fetch(joined.identity(), 0, 0));
    }
    ASSERT_GT(anchor_.size(), 4 * kStripValues);
    ASSERT_OK_AND_ASSIGN(
        const FragmentMap map,
        FragmentMap::Create(MakeModelLayout(joined.config().model()),
                            joined.plan()));
    parameters_ = anchor_;
    const ReplicaOptions replica =
        MakeReplicaOptions(joined.config().synchronization());
    ASSERT_OK_AND_ASSIGN(
        replica_,
        HostReplica::Create(map, replica, absl::MakeSpan(parameters_)));
    fragment_ = std::move(replica_->Fragments()[0]);
    loop_->Tell([](OuterLoop& core, absl::Time) { core.Begun(); });
    actor_ = std::make_unique<FragmentActor>(
        FragmentActor::Options{.uplink = replica.uplink,
                               .downlink = replica.downlink},
        fragment_.get(), client_.get(), loop_.get());
  }
  void TearDown() override {
    loop_->Tell([](OuterLoop& core, absl::Time) { core.RequestStop(); });
    client_->Shutdown();
    actor_.reset();
    session_.reset();
    driver_.StopServing();
  }

  // Returns the trainer's next action other than training, and expects it to be
  // of this kind.
  template <typename Action>
  Action Next() {
    while (true) {
      const TrainerAction next = loop_->AwaitTrainerAction();
      if (std::holds_alternative<action::Train>(next)) {
        loop_->Tell([](OuterLoop& core, absl::Time) { core.Stepped(10); });
      } else if (const auto* fetch =
                     std::get_if<action::FetchParameters>(&next)) {
        // Version 0 is made from the seed.
        v1::FragmentHead head;
        head.set_fragment(fetch->request.fragment());
        loop_->Tell([&](OuterLoop& core, absl::Time now) {
          core.ParametersAnswered(head, now);
        });
      } else if (const auto* action = std::get_if<Action>(&next)) {
        return *action;
      } else {
        ADD_FAILURE() << "action " << next.index();
        return {};
      }
    }
  }

  // Removes all updates, which are in memory until they are in files.
  void RemoveUpdates(const v1::IslandIdentity& reader) {
    v1::FetchUpdateRequest request;
    *request.mutable_identity() = reader;
    const auto are_gone = [&] {
      for (const auto& file : std::filesystem::directory_iterator(
               absl::StrCat(driver_.state_dir(), "/updates"))) {
        std::filesystem::remove(file);
      }
      for (uint64_t from = 0; from < driver_.Head(0).version(); ++from) {
        request.set_from_version(from);
        const auto opened = driver_.engine().OpenUpdate(request);
        if (!opened.ok() || opened->response.has_object()) return false;
      }
      return true;
    };
    ASSERT_TRUE(driver_.Await(are_gone));
  }

  // Trains a round that changes every parameter, and hands it over.
  void Send() {
    // The parameters must not move.
    const std::vector<float> trained = Shifted(anchor_, 0.05f);
    std::copy(trained.begin(), trained.end(), parameters_.begin());
    Next<action::TakeSnapshot>();
    ASSERT_OK(fragment_->TakeSnapshot());
    loop_->Tell([](OuterLoop& core, absl::Time) { core.SnapshotTaken(); });
  }

  // Applies the resulting update, and compares it with the coordinator's
  // values.
  void ExpectMixed() {
    const action::Apply apply = Next<action::Apply>();
    EXPECT_TRUE(apply.includes_island);
    EXPECT_OK(fragment_->Apply(apply.includes_island));
    loop_->Tell([](OuterLoop& core, absl::Time) { core.Applied(); });
    std::vector<float> moved(anchor_.size());
    EXPECT_OK(fragment_->ReadAnchor(absl::MakeSpan(moved)));
    EXPECT_EQ(Digest128(absl::MakeConstSpan(moved)), driver_.Head(0).digest());
    EXPECT_NE(moved, anchor_);
    // Nothing was trained since, so the parameters are the coordinator's.
    EXPECT_EQ(parameters_, moved);
  }

  // More of the run's configuration.
  std::string more_;
  ServedEngine driver_;
  std::unique_ptr<BreakingClient> client_;
  std::unique_ptr<SharedOuterLoop> loop_;
  std::unique_ptr<SessionActor> session_;
  std::vector<float> anchor_;
  std::vector<float> parameters_;
  std::unique_ptr<HostReplica> replica_;
  std::unique_ptr<FragmentReplica> fragment_;
  std::unique_ptr<FragmentActor> actor_;
};

TEST_F(FragmentActorTest, SendsWhileItEncodesAndMixesWhatComesBack) {
  Begin();
  Send();
  ExpectMixed();
  EXPECT_EQ(client_->complete_offers, std::vector<bool>({false}));
  EXPECT_EQ(client_->bytes_up(), anchor_.size() * sizeof(float));
  EXPECT_EQ(client_->parameter_fetches, 0);
}

TEST_F(FragmentActorTest, TheMemoryOfASnapshotIsUsedForTheNext) {
  Begin();
  LargeVector<float> memory(anchor_.size());
  const float* const place = memory.data();
  replica_->snapshots().Return(std::move(memory));
  Send();
  // The snapshot took the pool's memory.
  const size_t size = anchor_.size();
  EXPECT_NE(replica_->snapshots().Take(size).data(), place);
  ExpectMixed();
  // Then the snapshot gave it back, and the update the old anchor's.
  const LargeVector<float> first = replica_->snapshots().Take(size);
  const LargeVector<float> second = replica_->snapshots().Take(size);
  EXPECT_TRUE(first.data() == place || second.data() == place);
}

TEST_F(FragmentActorTest, AnUploadThatBrokeWhileItWasEncodedIsOfferedWhole) {
  client_->break_contribute = true;
  Begin();
  Send();
  ExpectMixed();
  EXPECT_EQ(client_->complete_offers, std::vector<bool>({false, true}));
  // The call waits for the update by the digest of the whole encoding.
  EXPECT_THAT(client_->updates_asked_for,
              ElementsAre(Pair(true, SizeIs(kDigestBytes))));
}

TEST_F(FragmentActorTest, NothingIsOfferedOnTheViewOfAFencedOffIsland) {
  client_->fenced_views = 3;
  Begin();
  Send();
  ExpectMixed();
  EXPECT_EQ(client_->fenced_views, 0);
  EXPECT_THAT(client_->complete_offers, SizeIs(1));
}

TEST_F(FragmentActorTest, AnUpdateThatBrokeIsDecodedFromWhereItWas) {
  client_->break_update = true;
  Begin();
  Send();
  ExpectMixed();
  EXPECT_THAT(client_->updates_asked_for,
              ElementsAre(Pair(true, _), Pair(false, _)));
  EXPECT_EQ(client_->bytes_down(), anchor_.size() * sizeof(float));
}

TEST_F(FragmentActorTest, AfterAWaitInVainTheSessionTellsOfTheUpdate) {
  client_->lose_waits = true;
  Begin();
  Send();
  ExpectMixed();
  EXPECT_THAT(client_->updates_asked_for,
              ElementsAre(Pair(true, _), Pair(false, SizeIs(kDigestBytes))));
}

TEST_F(FragmentActorTest, AContributionWhoseVerdictIsLostCountsOnce) {
  client_->lose_verdict = true;
  Begin();
  Send();
  ExpectMixed();
  EXPECT_EQ(client_->bytes_up(), anchor_.size() * sizeof(float));
}

TEST_F(FragmentActorTest, AnAnchorThatDiffersIsFetched) {
  client_->damage_head = true;
  Begin();
  Send();
  ExpectMixed();
  EXPECT_EQ(client_->parameter_fetches, 1);
}

TEST_F(FragmentActorTest, ParametersAreFetchedAnewEveryTime) {
  Begin();
  for (const int round : {1, 2}) {
    client_->damage_head = true;
    Send();
    ExpectMixed();
    EXPECT_EQ(client_->parameter_fetches, round);
    anchor_ = parameters_;
  }
}

TEST_F(FragmentActorTest, ParametersThatBreakOffAreFetchedAgain) {
  client_->damage_head = true;
  client_->break_parameters = true;
  Begin();
  Send();
  ExpectMixed();
  EXPECT_EQ(client_->parameter_fetches, 2);
}

TEST_F(FragmentActorTest, ParametersMustHaveTheSizeOfTheFragment) {
  client_->damage_head = true;
  client_->omit_parameters = true;
  Begin();
  Send();
  EXPECT_THAT(Next<action::End>().status,
              IsFailedPrecondition("but the coordinator sent 0 bytes"));
}

TEST_F(FragmentActorTest, EveryUpdateMustHaveTheFormatOfTheRun) {
  Begin();
  Send();
  ExpectMixed();
  anchor_ = parameters_;
  client_->misdescribe = true;
  Send();
  EXPECT_THAT(Next<action::End>().status, IsFailedPrecondition());
}

TEST_F(FragmentActorTest, TheMergeIsKnownWhenTheUpdateIsNoLongerKept) {
  client_->lose_waits = true;
  client_->before_update = [&](const v1::FetchUpdateRequest& request) {
    RemoveUpdates(request.identity());
  };
  Begin();
  Send();
  ExpectMixed();
  EXPECT_EQ(client_->parameter_fetches, 1);
}

// A run whose parameters hardly move: equal training is encoded to the same
// bytes, unless the error of an earlier contribution is added.
class FragmentActorErrorTest : public FragmentActorTest {
 protected:
  FragmentActorErrorTest() {
    more_ = R"pb(
      synchronization { uplink_format: E3M0 error_feedback: 1 }
      outer_optimizer { algorithm: SGD learning_rate: 1e-30 }
    )pb";
  }
};

TEST_F(FragmentActorErrorTest, OnlyAMergedContributionLeavesItsErrorToTheNext) {
  std::vector<std::string> sent;
  v1::IslandIdentity other;
  client_->before_contribute = [&](const std::string& digest) {
    sent.push_back(digest);
    if (sent.size() == 1) {
      ASSERT_OK_AND_ASSIGN(other, driver_.Join("other"));
    } else if (sent.size() == 2) {
      // The actor's contribution comes too late.
      ASSERT_OK(driver_.Contribute(driver_.MakeContribution(
          other, 0, 1, anchor_, Shifted(anchor_, 0.05f))));
      ASSERT_TRUE(driver_.AwaitVersion(0, 2));
    }
  };
  Begin();
  for (const bool merged : {true, false, true}) {
    Send();
    EXPECT_EQ(Next<action::Apply>().includes_island, merged);
    ASSERT_OK(fragment_->Apply(merged));
    loop_->Tell([](OuterLoop& core, absl::Time) { core.Applied(); });
  }
  ASSERT_THAT(sent, SizeIs(3));
  EXPECT_NE(sent[1], sent[0]);
  EXPECT_EQ(sent[2], sent[1]);
}

// An earlier process of the island has handed in 1000 tokens for each of two
// updates, which the coordinator no longer keeps.
TEST_F(FragmentActorTest, WhatWasMergedIntoUpdatesThatAreSkippedIsAskedFor) {
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity dead, driver_.Join("a", 7));
  v1::IslandCheckpoint checkpoint;
  checkpoint.set_run_id(dead.run_id());
  checkpoint.set_island_id("a");
  v1::IslandCheckpoint::Fragment& saved = *checkpoint.add_fragments();
  *saved.mutable_anchor() = driver_.Head(0);
  saved.set_tokens(2500);
  saved.set_inner_steps(25);
  ASSERT_OK_AND_ASSIGN(anchor_, driver_.Fetch(dead, 0, 0));
  for (uint64_t version = 0; version < 2; ++version) {
    ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                         driver_.Fetch(dead, 0, version));
    ASSERT_OK(driver_.Contribute(driver_.MakeContribution(
        dead, 0, version, anchor, Shifted(anchor, 0.01f))));
    ASSERT_TRUE(driver_.AwaitVersion(0, version + 1));
  }
  RemoveUpdates(dead);
  ASSERT_OK(driver_.Leave(dead));
  Begin(checkpoint);
  const action::Apply apply = Next<action::Apply>();
  EXPECT_TRUE(apply.includes_island);
  loop_->Read([](const OuterLoop& core, absl::Time) {
    // The rest is lost, because the checkpoint has no snapshot.
    EXPECT_EQ(core.window(0).training().restored_tokens, 0);
    EXPECT_EQ(core.exchange(0).update().head.version(), 2);
  });
  // The calls ask for the updates to version 1 and to version 2.
  EXPECT_THAT(client_->updates_asked_for, SizeIs(2));
}

}  // namespace
}  // namespace causeway
