// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/engine.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"
#include "common/os/file.h"
#include "common/tensors/model_layout.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/fragment_plan.h"
#include "quantization/encoded_object.h"
#include "quantization/testing/whole_vectors.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

constexpr auto kAccepted = v1::ContributeResponse::ACCEPTED;
constexpr auto kLate = v1::ContributeResponse::LATE;
constexpr auto kUpload = v1::ContributeResponse::UPLOAD;

class EngineTest : public testing::Test {
 protected:
  // Has two islands contribute to the open round of a fragment.
  void ContributeBoth(const v1::IslandIdentity& a, const v1::IslandIdentity& b,
                      uint32_t fragment, uint64_t version) {
    ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                         run_.Fetch(a, fragment, version));
    for (const v1::IslandIdentity& island : {a, b}) {
      ASSERT_OK_AND_ASSIGN(
          const v1::ContributeResponse response,
          run_.Contribute(run_.MakeContribution(
              island, fragment, version, anchor,
              Shifted(anchor, island.island_id() == "a" ? 0.01f : -0.02f))));
      EXPECT_EQ(response.verdict(), kAccepted);
    }
  }

  EngineDriver run_;
};

TEST_F(EngineTest, ANewRunBeginsWithTheInitialParameters) {
  const v1::RunConfig config = TestRunConfig();
  ASSERT_OK(run_.Start(config));
  EXPECT_EQ(run_.engine().run_id(), "test-00000007");
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity a, run_.Join("a"));
  const ModelLayout layout = MakeModelLayout(config.model());
  const std::vector<float> model = InitialParameters(layout, config.seed());
  ASSERT_OK_AND_ASSIGN(const v1::FragmentPlan plan,
                       MakeFragmentPlan(layout, config));
  ASSERT_OK_AND_ASSIGN(const FragmentMap map,
                       FragmentMap::Create(layout, plan));
  for (uint32_t fragment = 0; fragment < 2; ++fragment) {
    std::vector<float> values(map.size(fragment));
    map.Gather(fragment, model, absl::MakeSpan(values));
    EXPECT_EQ(run_.Head(fragment).version(), 0);
    EXPECT_EQ(run_.Head(fragment).digest(), Digest128(values));
    EXPECT_THAT(run_.Fetch(a, fragment, 0), IsOkAndHolds(values));
  }
}

TEST_F(EngineTest, WhileAVersionWaitsForFollowersAnotherFragmentsIsMade) {
  ASSERT_OK(run_.Start(
      TestRunConfig("model { layers: 3 } synchronization { fragments: 4 } "
                    "storage { sync_replicas: 1 }")));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity a, run_.Join("a"));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity b, run_.Join("b"));
  const FollowedSource followed = run_.engine().followed();
  LogFeed& feed = *followed.feed;
  ASSERT_OK(feed.Join("f", "here", run_.engine().now()));
  feed.Acknowledge("f", feed.Newest().index());
  ContributeBoth(a, b, 0, 0);
  ContributeBoth(a, b, 1, 0);
  const auto are_committed = [&] {
    const auto heads = followed.state->log().Heads();
    return heads.ok() && heads->at(0).head.version() == 1 &&
           heads->at(1).head.version() == 1;
  };
  EXPECT_TRUE(run_.Await(are_committed));
  EXPECT_EQ(run_.Head(0).version(), 0);
  EXPECT_EQ(run_.Head(1).version(), 0);
  feed.Acknowledge("f", feed.Newest().index());
  EXPECT_TRUE(run_.AwaitVersion(0, 1));
  EXPECT_TRUE(run_.AwaitVersion(1, 1));
}

TEST_F(EngineTest, AnExitWhileAVersionWaitsForFollowersIsNoFailure) {
  const v1::RunConfig config = TestRunConfig("storage { sync_replicas: 1 }");
  ASSERT_OK(run_.Start(config));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity a, run_.Join("a"));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity b, run_.Join("b"));
  LogFeed& feed = *run_.engine().followed().feed;
  ASSERT_OK(feed.Join("f", "here", run_.engine().now()));
  feed.Acknowledge("f", feed.Newest().index());
  ContributeBoth(a, b, 0, 0);
  EXPECT_TRUE(run_.Await([&] {
    const auto heads = run_.engine().log().Heads();
    return heads.ok() && heads->at(0).head.version() == 1;
  }));
  EXPECT_EQ(run_.Head(0).version(), 0);
  ASSERT_OK(run_.Start(config));
  EXPECT_EQ(run_.Head(0).version(), 1);
  ASSERT_OK_AND_ASSIGN(const std::vector<v1::Event> events,
                       run_.engine().log().EventsAfter(0, 1000));
  for (const v1::Event& event : events) {
    EXPECT_NE(event.kind(), "run_suspended") << event.text();
  }
}

TEST_F(EngineTest, ADirectoryHasOneEngine) {
  ASSERT_OK(run_.Start(TestRunConfig()));
  EXPECT_THAT(run_.TryStart(TestRunConfig()).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       testing::HasSubstr("in use by another coordinator")));
  run_.Stop();
  EXPECT_OK(run_.TryStart(TestRunConfig()).status());
}

TEST_F(EngineTest, AnotherModelIsRefusedAndNothingIsChanged) {
  ASSERT_OK(run_.Start(TestRunConfig()));
  const std::string digest = run_.Head(0).digest();
  run_.Stop();
  v1::RunConfig other = TestRunConfig();
  other.set_seed(2);
  ASSERT_OK_AND_ASSIGN(const std::vector<std::string> files,
                       ListDirectory(run_.state_dir() + "/fragments"));
  EXPECT_THAT(run_.TryStart(other).status(),
              IsFailedPrecondition("test-00000007", "seed"));
  EXPECT_THAT(ListDirectory(run_.state_dir() + "/fragments"),
              IsOkAndHolds(files));
  ASSERT_OK(run_.Start(TestRunConfig()));
  EXPECT_EQ(run_.Head(0).digest(), digest);
}

// The log names a run before it has files, so a crash in between does not lose
// a run.
TEST_F(EngineTest, ARunThatACrashLeftWithoutParametersGetsThem) {
  {
    ASSERT_OK_AND_ASSIGN(
        const auto state,
        StateDirectory::Open(run_.state_dir(), {.create = true}));
    RunRecord run{.run_id = "test-1", .config = TestRunConfig()};
    ASSERT_OK_AND_ASSIGN(
        run.plan,
        MakeFragmentPlan(MakeModelLayout(run.config.model()), run.config));
    ASSERT_OK(state->log().CreateRun(run));
  }
  ASSERT_OK(run_.Start(TestRunConfig()));
  EXPECT_EQ(run_.engine().run_id(), "test-1");
  EXPECT_EQ(run_.Head(1).version(), 0);
}

TEST_F(EngineTest, ALostLogIsNoNewRun) {
  ASSERT_OK(run_.Start(TestRunConfig()));
  run_.Stop();
  ASSERT_OK(RemoveFile(run_.state_dir() + "/run.sqlite3"));
  EXPECT_THAT(run_.Start(TestRunConfig()),
              IsFailedPrecondition("Nothing was changed"));
}

TEST_F(EngineTest, UploadsOfAllIslandsToAllFragmentsFitAtOnce) {
  const v1::RunConfig config = TestRunConfig("membership { min_islands: 3 }");
  ASSERT_OK(run_.Start(config));
  std::vector<v1::IslandIdentity> islands;
  for (uint32_t i = 0; i < config.membership().max_islands(); ++i) {
    ASSERT_OK_AND_ASSIGN(islands.emplace_back(),
                         run_.Join(absl::StrCat("island-", i)));
  }
  for (const v1::IslandIdentity& island : islands) {
    for (uint32_t fragment = 0; fragment < 2; ++fragment) {
      ASSERT_OK_AND_ASSIGN(const std::vector<float> theta,
                           run_.Fetch(island, fragment, 0));
      ASSERT_OK_AND_ASSIGN(
          const v1::ContributeResponse response,
          run_.engine().Offer(run_.MakeContribution(island, fragment, 0, theta,
                                                    Shifted(theta, 0.01f))
                                  .header));
      EXPECT_EQ(response.verdict(), v1::ContributeResponse::UPLOAD);
    }
  }
}

// An update is the exact difference of two versions, in any format.
class EngineUpdateTest : public EngineTest,
                         public testing::WithParamInterface<const char*> {};

TEST_P(EngineUpdateTest, ARoundMakesAVersionThatItsUpdateLeadsTo) {
  const v1::RunConfig config = TestRunConfig(GetParam());
  ASSERT_OK(run_.Start(config));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity a, run_.Join("a"));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity b, run_.Join("b"));
  constexpr uint32_t kFragment = 1;
  ASSERT_OK_AND_ASSIGN(std::vector<float> theta, run_.Fetch(a, kFragment, 0));
  const TestContribution from_a =
      run_.MakeContribution(a, kFragment, 0, theta, Shifted(theta, 0.01f));
  // Two rounds, so that momentum and residual matter.
  for (uint64_t version = 0; version < 2; ++version) {
    ContributeBoth(a, b, kFragment, version);
    ASSERT_TRUE(run_.AwaitVersion(kFragment, version + 1));

    v1::FetchUpdateRequest request;
    *request.mutable_identity() = a;
    request.set_fragment(kFragment);
    request.set_from_version(version);
    ASSERT_OK_AND_ASSIGN(const OpenedUpdate update,
                         run_.engine().OpenUpdate(request));
    ASSERT_TRUE(update.response.has_object());
    ASSERT_OK(CheckArrival(update.response.object(), update.bytes.size(),
                           Digest128(update.bytes)));
    ASSERT_OK(DecodeAccumulate(SpecOf(update.response.object()), update.bytes,
                               1.0f, absl::MakeSpan(theta)));
    EXPECT_EQ(update.response.head().version(), version + 1);
    EXPECT_EQ(update.response.head().digest(), Digest128(theta));
    EXPECT_EQ(run_.Head(kFragment).digest(), Digest128(theta));
    EXPECT_THAT(run_.Fetch(a, kFragment, version + 1), IsOkAndHolds(theta));
  }
  EXPECT_EQ(run_.Head(0).version(), 0);

  // The digest of the contribution shows whose training is in the update.
  v1::FetchUpdateRequest request;
  *request.mutable_identity() = a;
  request.set_fragment(kFragment);
  const auto includes = [&](const std::string& digest) {
    request.set_contribution_digest(digest);
    const auto update = run_.engine().OpenUpdate(request);
    EXPECT_OK(update);
    if (!update.ok()) return false;
    return update->response.includes_island();
  };
  EXPECT_TRUE(includes(from_a.header.object().digest()));
  EXPECT_FALSE(includes(""));
  EXPECT_FALSE(includes(Digest128("other bytes")));
  *request.mutable_identity() = b;
  EXPECT_FALSE(includes(from_a.header.object().digest()));
}

INSTANTIATE_TEST_SUITE_P(
    Formats, EngineUpdateTest,
    testing::Values("",
                    "synchronization { uplink_format: BF16 "
                    "downlink_format: BF16 }",
                    "synchronization { uplink_format: E3M0 "
                    "downlink_format: E3M0 entropy_coding: true } "
                    "outer_optimizer { algorithm: DELAYED_NESTEROV "
                    "momentum_delay: 2 merge: RADIAL_DIRECTIONAL }"),
    [](const auto& info) {
      return info.index == 0   ? "Fp32"
             : info.index == 1 ? "Bf16"
                               : "E3m0DelayedRadial";
    });

TEST_F(EngineTest, PlainSgdWithUniformWeightsIsTheMeanOfTheIslands) {
  ASSERT_OK(run_.Start(TestRunConfig(
      "outer_optimizer { algorithm: SGD learning_rate: 1 weighting: UNIFORM "
      "}")));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity a, run_.Join("a"));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity b, run_.Join("b"));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor, run_.Fetch(a, 0, 0));
  const std::vector<float> of_a = Shifted(anchor, 0.03f);
  const std::vector<float> of_b = Shifted(anchor, -0.01f);
  // The tokens differ, but uniform weights ignore that.
  ASSERT_OK(run_.Contribute(
      run_.MakeContribution(a, 0, 0, anchor, of_a, /*tokens=*/1)));
  ASSERT_OK(run_.Contribute(
      run_.MakeContribution(b, 0, 0, anchor, of_b, /*tokens=*/1000)));
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> merged, run_.Fetch(a, 0, 1));
  for (size_t i = 0; i < merged.size(); ++i) {
    ASSERT_NEAR(merged[i], (double{of_a[i]} + of_b[i]) / 2, 1e-6) << i;
  }
}

TEST_F(EngineTest, ARestartContinuesFromTheLastVersion) {
  ASSERT_OK(run_.Start(TestRunConfig()));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity a, run_.Join("a"));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity b, run_.Join("b"));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> old, run_.Fetch(a, 0, 0));
  ContributeBoth(a, b, 0, 0);
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  ASSERT_OK(run_.Leave(b));
  const v1::FragmentHead head = run_.Head(0);

  ASSERT_OK(run_.Start(TestRunConfig()));
  EXPECT_EQ(run_.Head(0).version(), 1);
  EXPECT_EQ(run_.Head(0).digest(), head.digest());
  EXPECT_EQ(run_.Head(1).version(), 0);
  EXPECT_EQ(run_.engine().run_state(), v1::RUNNING);
  EXPECT_OK(run_.Heartbeat(a));
  EXPECT_THAT(run_.Heartbeat(b), IsAborted());
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity b2, run_.Join("b"));
  EXPECT_EQ(b2.incarnation(), 2);
  // Contributions that were merged before are not accepted again.
  ASSERT_OK_AND_ASSIGN(const v1::ContributeResponse again,
                       run_.Contribute(run_.MakeContribution(
                           a, 0, 0, old, Shifted(old, 0.01f))));
  EXPECT_EQ(again.verdict(), kLate);
}

TEST_F(EngineTest, ARestartInTheMiddleOfARoundLosesOnlyUploads) {
  ASSERT_OK(run_.Start(TestRunConfig()));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity a, run_.Join("a"));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity b, run_.Join("b"));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor, run_.Fetch(a, 0, 0));
  const TestContribution from_a =
      run_.MakeContribution(a, 0, 0, anchor, Shifted(anchor, 0.01f));
  ASSERT_OK(run_.Contribute(from_a));
  ASSERT_OK_AND_ASSIGN(v1::ContributeResponse offered,
                       run_.engine().Offer(from_a.header));
  EXPECT_EQ(offered.verdict(), kAccepted);

  ASSERT_OK(run_.Start(TestRunConfig()));
  ASSERT_OK_AND_ASSIGN(offered, run_.engine().Offer(from_a.header));
  EXPECT_EQ(offered.verdict(), kUpload);
  EXPECT_EQ(offered.next_offset(), 0);
  ContributeBoth(a, b, 0, 0);
  ASSERT_TRUE(run_.AwaitVersion(0, 1));
  // Each contribution was merged once.
  const v1::ListIslandsResponse islands = run_.engine().ListIslands(false);
  ASSERT_EQ(islands.islands_size(), 2);
  for (const v1::IslandStatus& island : islands.islands()) {
    EXPECT_EQ(island.contributions_merged(), 1) << island.island_id();
  }
}

TEST_F(EngineTest, AnUploadContinuesWhereItBrokeOff) {
  ASSERT_OK(run_.Start(TestRunConfig()));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity a, run_.Join("a"));
  ASSERT_OK(run_.Join("b"));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor, run_.Fetch(a, 0, 0));
  const TestContribution from_a =
      run_.MakeContribution(a, 0, 0, anchor, Shifted(anchor, 0.01f));
  ASSERT_OK(run_.engine().Offer(from_a.header));
  EXPECT_THAT(run_.engine().Append(KeyOf(from_a.header),
                                   CutChunk(from_a.bytes, 0, 1000)),
              IsOkAndHolds(false));
  ASSERT_OK_AND_ASSIGN(const v1::ContributeResponse offered,
                       run_.engine().Offer(from_a.header));
  EXPECT_EQ(offered.verdict(), kUpload);
  EXPECT_EQ(offered.next_offset(), 1000);
  ASSERT_OK_AND_ASSIGN(const v1::ContributeResponse done,
                       run_.Contribute(from_a));
  EXPECT_EQ(done.verdict(), kAccepted);
  EXPECT_EQ(run_.engine().GetRun().bytes_received(), from_a.bytes.size());
}

TEST_F(EngineTest, ListenersHearOfAClosedRoundBeforeItIsMerged) {
  ASSERT_OK(run_.Start(TestRunConfig()));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity a, run_.Join("a"));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity b, run_.Join("b"));
  ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor, run_.Fetch(a, 0, 0));
  ASSERT_OK(run_.Contribute(
      run_.MakeContribution(a, 0, 0, anchor, Shifted(anchor, 0.01f))));
  std::atomic<int> told = 0;
  const uint64_t listener =
      run_.engine().news().Add([&told, self = std::this_thread::get_id()] {
        if (std::this_thread::get_id() == self) ++told;
      });
  // The round has waited for b only.
  ASSERT_OK(run_.Leave(b));
  EXPECT_EQ(told, 1);
  run_.engine().news().Remove(listener);
  EXPECT_TRUE(run_.AwaitVersion(0, 1));
}

TEST_F(EngineTest, IslandsTrainAWholeRunAtTheSameTime) {
  const v1::RunConfig config =
      TestRunConfig("membership { min_islands: 3 quorum: 3 }");
  ASSERT_OK(run_.Start(config));
  std::vector<v1::IslandIdentity> identities;
  for (const std::string name : {"a", "b", "c"}) {
    ASSERT_OK_AND_ASSIGN(identities.emplace_back(), run_.Join(name));
  }
  // Every island contributes to both fragments, each on its own thread.
  std::vector<std::thread> threads;
  for (const v1::IslandIdentity& identity : identities) {
    for (uint32_t fragment = 0; fragment < 2; ++fragment) {
      threads.emplace_back([&, identity, fragment] {
        for (uint64_t version = 0; version < 3; ++version) {
          ASSERT_OK(run_.Heartbeat(identity));
          ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                               run_.Fetch(identity, fragment, version));
          ASSERT_OK(run_.Contribute(run_.MakeContribution(
              identity, fragment, version, anchor, Shifted(anchor, 0.01f))));
          ASSERT_TRUE(run_.AwaitVersion(fragment, version + 1));
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(run_.engine().run_state(), v1::FINISHED);
  EXPECT_EQ(run_.engine().GetRun().tokens_merged(), 3 * 3 * 1000);
}

}  // namespace
}  // namespace causeway
