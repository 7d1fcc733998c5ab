// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/outer_steps.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/fragment_heads.h"
#include "server/replication/log_feed.h"
#include "server/staging.h"
#include "server/storage/state_directory.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

// Outer steps on version 0 of two fragments. The test plays the rules.
class OuterStepsTest : public testing::Test {
 protected:
  void SetUp() override {
    EngineDriver run;
    ASSERT_OK(run.Start(TestRunConfig()));
    run.Stop();
    ASSERT_OK_AND_ASSIGN(state_, StateDirectory::Open(run.state_dir(), {}));
    ASSERT_OK_AND_ASSIGN(run_, state_->log().LoadRun());
    ASSERT_OK_AND_ASSIGN(heads_,
                         FragmentHeads::Restore(*state_, run_, 1, false));
    steps_.emplace(OuterSteps::Options{.config = run_.config,
                                       .plan = run_.plan,
                                       .now = [] { return absl::UnixEpoch(); }},
                   OuterSteps::Stores{*state_, *heads_, feed_, staging_});
    steps_->Start(
        {.begin_commit = [this](const ClosedRound&, const OuterStepOutcome&,
                                absl::Span<const float>, CommitRecord commit)
             -> absl::StatusOr<LogBatch> {
           if (!begun_.ok()) return begun_;
           LogBatch batch;
           batch.commits.push_back(std::move(commit));
           return batch;
         },
         .write =
             [this](const LogBatch& batch) {
               return state_->log().Apply(batch);
             },
         .await_outcome = [this](const ClosedRound&,
                                 const absl::Status&) { return found_; },
         .ended =
             [this](const ClosedRound&,
                    const absl::StatusOr<OuterStepOutcome>& outcome) {
               absl::MutexLock lock(&mu_);
               ended_ = outcome;
             }});
  }

  // Makes an outer step of the contribution of one island, which subtracts 1
  // from each value, and returns its result.
  absl::StatusOr<OuterStepOutcome> MakeStep(bool with_bytes = true) {
    ClosedRound closed{.norms = {1}};
    v1::ContributionHeader& header = closed.contributions.emplace_back();
    header.mutable_identity()->set_island_id("a");
    header.set_tokens(1000);
    header.set_inner_steps(10);
    const auto values = std::make_shared<const std::vector<float>>(
        heads_->Newest(0)->contents().theta.size(), 1.f);
    if (with_bytes) {
      staging_.Keep(KeyOf(header),
                    {.bytes = {reinterpret_cast<const char*>(values->data()),
                               values->size() * sizeof(float)},
                     .owner = values});
    }
    steps_->Add({closed});
    absl::MutexLock lock(&mu_);
    const auto has_ended = [this] { return ended_.has_value(); };
    mu_.Await(absl::Condition(&has_ended));
    return *ended_;
  }
  uint64_t version() { return heads_->Newest(0)->contents().head.version(); }

  std::unique_ptr<StateDirectory> state_;
  RunRecord run_;
  std::unique_ptr<FragmentHeads> heads_;
  LogFeed feed_;
  Staging staging_{0};
  absl::Status begun_;
  absl::Status found_;
  absl::Mutex mu_;
  std::optional<absl::StatusOr<OuterStepOutcome>> ended_;
  std::optional<OuterSteps> steps_;
};

TEST_F(OuterStepsTest, AVersionIsDurableBeforeItIsPublished) {
  const float before = heads_->Newest(0)->contents().theta[0];
  ASSERT_OK_AND_ASSIGN(const OuterStepOutcome outcome, MakeStep());
  EXPECT_EQ(outcome.head.version(), 1);
  const std::shared_ptr<const StoredFragment> after = heads_->Newest(0);
  EXPECT_EQ(after->contents().head.digest(), outcome.head.digest());
  EXPECT_LT(after->contents().theta[0], before);
  ASSERT_OK_AND_ASSIGN(const CommitRecord commit,
                       state_->log().FindCommit(0, 1));
  EXPECT_EQ(commit.head.digest(), outcome.head.digest());
  EXPECT_THAT(staging_.Get({.island_id = "a"}), IsUnavailable()) << "merged";
  v1::RunStatus status;
  steps_->Describe(status);
  EXPECT_EQ(status.bytes_data_parallel(),
            10 * 4 * after->contents().theta.size());
}

TEST_F(OuterStepsTest, AContributionThatIsGoneFailsTheStep) {
  EXPECT_THAT(MakeStep(/*with_bytes=*/false), IsUnavailable());
  EXPECT_EQ(version(), 0);
}

TEST_F(OuterStepsTest, AVersionThatTheRulesRefuseIsNotPublished) {
  begun_ = absl::UnavailableError("this coordinator was replaced");
  EXPECT_THAT(MakeStep(), IsUnavailable("was replaced"));
  EXPECT_EQ(version(), 0);
  EXPECT_OK(staging_.Get({.island_id = "a"})) << "the step may be tried again";
}

TEST_F(OuterStepsTest, AWriteInDoubtEndsAsItTurnsOut) {
  begun_ = absl::UnknownError("the disk failed");
  found_ = absl::UnavailableError("the commit was not written");
  EXPECT_THAT(MakeStep(), IsUnavailable("was not written"));
  EXPECT_EQ(version(), 0);
  ended_.reset();
  found_ = absl::OkStatus();
  EXPECT_OK(MakeStep());
  EXPECT_EQ(version(), 1);
}

}  // namespace
}  // namespace causeway
