// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests, with a real coordinator over gRPC, that an island continues from a
// checkpoint if the run still has the updates that follow it.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/edge/server.h"
#include "server/testing/engine_driver.h"
#include "worker/island.h"
#include "worker/sync/grpc_coordinator_client.h"

namespace causeway {
namespace {

constexpr uint64_t kHistory = 3;
constexpr float kOwnValue = 42;

class ResumeTest : public testing::Test {
 protected:
  // Fragment 0 is at version 5, fragment 1 at version 2.
  void SetUp() override {
    ASSERT_OK(run_.Start(TestRunConfig(absl::StrCat(
        "training { total_steps: 80 } storage { update_history: ", kHistory,
        " } membership { min_islands: 1 }"))));
    ASSERT_OK_AND_ASSIGN(
        server_,
        CoordinatorServer::Start(&run_.engine(), {.address = "127.0.0.1:0",
                                                  .now = SteadyWallClock()}));
    ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity other, run_.Join("other"));
    for (const uint32_t fragment : {0, 1}) {
      for (uint64_t version = 0; version < (fragment == 0 ? 5 : 2); ++version) {
        digests_[fragment].push_back(run_.Head(fragment).digest());
        ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                             run_.Fetch(other, fragment, version));
        ASSERT_OK(run_.Contribute(run_.MakeContribution(
            other, fragment, version, anchor, Shifted(anchor, 0.01f))));
        ASSERT_TRUE(run_.AwaitVersion(fragment, version + 1));
      }
      digests_[fragment].push_back(run_.Head(fragment).digest());
      values_ += run_.Fetch(other, fragment, run_.Head(fragment).version())
                     .value()
                     .size();
    }
  }
  void TearDown() override { server_.reset(); }

  // Returns a checkpoint with the anchors of the two fragments at these
  // versions.
  IslandState Checkpoint(uint64_t version_0, uint64_t version_1) {
    IslandState state;
    state.position.set_run_id(run_.engine().run_id());
    state.position.set_island_id("east");
    state.position.set_run_step(7);
    const uint64_t versions[] = {version_0, version_1};
    for (const uint32_t fragment : {0, 1}) {
      v1::FragmentHead& anchor =
          *state.position.add_fragments()->mutable_anchor();
      anchor.set_fragment(fragment);
      anchor.set_version(versions[fragment]);
      // The run does not know versions beyond its own.
      anchor.set_digest(versions[fragment] < digests_[fragment].size()
                            ? digests_[fragment][versions[fragment]]
                            : std::string(16, 'x'));
    }
    state.parameters.assign(values_, kOwnValue);
    state.anchors.assign(values_, kOwnValue);
    return state;
  }

  // Returns whether an island continues with the checkpoint's parameters.
  absl::StatusOr<bool> GoesOnFrom(IslandState checkpoint) {
    const auto client = NewGrpcCoordinatorClient(
        {.address = absl::StrCat("127.0.0.1:", server_->port()),
         .now = [] { return absl::Now(); }});
    std::vector<float> begun_with;
    Island::Options options{
        .make_trainer = [&](const v1::JoinResponse&,
                            std::vector<float> parameters)
            -> absl::StatusOr<std::unique_ptr<InnerTrainer>> {
          begun_with = std::move(parameters);
          return absl::CancelledError("seen enough");
        },
        .resume = std::make_shared<IslandState>(std::move(checkpoint)),
        .now = [] { return absl::Now(); }};
    options.join.set_island_id("east");
    options.join.set_instance_id(++instance_);
    Island island(std::move(options), client.get());
    const absl::Status status = island.Run();
    if (!absl::IsCancelled(status)) return status;
    EXPECT_EQ(begun_with.size(), values_);
    return begun_with.at(0) == kOwnValue;
  }

  EngineDriver run_;
  std::unique_ptr<CoordinatorServer> server_;
  // The digests by fragment and version.
  std::vector<std::string> digests_[2];
  uint64_t values_ = 0;
  uint64_t instance_ = 0;
};

TEST_F(ResumeTest, TheUpdatesThatAreKeptLeadOnFromACheckpoint) {
  EXPECT_THAT(GoesOnFrom(Checkpoint(5, 2)), IsOkAndHolds(true)) << "no update";
  EXPECT_THAT(GoesOnFrom(Checkpoint(5 - kHistory, 2)), IsOkAndHolds(true))
      << "all of the history";
  EXPECT_THAT(GoesOnFrom(Checkpoint(5 - kHistory - 1, 2)), IsOkAndHolds(false))
      << "one more than the history";
  EXPECT_THAT(GoesOnFrom(Checkpoint(4, 0)), IsOkAndHolds(true));
}

TEST_F(ResumeTest, AnAnchorOfAnotherHistoryIsOfNoUse) {
  IslandState other = Checkpoint(5, 2);
  other.position.mutable_fragments(1)->mutable_anchor()->set_digest(
      digests_[1][1]);
  EXPECT_THAT(GoesOnFrom(std::move(other)), IsOkAndHolds(false));
  EXPECT_THAT(GoesOnFrom(Checkpoint(6, 2)), IsOkAndHolds(false))
      << "newer than the run";
  EXPECT_THAT(GoesOnFrom(Checkpoint(5, 3)), IsOkAndHolds(false));
}

TEST_F(ResumeTest, ACheckpointOfAnotherIslandOrRunIsAnError) {
  IslandState of_west = Checkpoint(5, 2);
  of_west.position.set_island_id("west");
  EXPECT_THAT(GoesOnFrom(std::move(of_west)),
              IsFailedPrecondition("that of island west"));
  IslandState of_another = Checkpoint(5, 2);
  of_another.position.set_run_id("another");
  EXPECT_THAT(GoesOnFrom(std::move(of_another)),
              IsFailedPrecondition("of run another"));
}

}  // namespace
}  // namespace causeway
