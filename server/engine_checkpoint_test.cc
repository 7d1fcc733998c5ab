// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests runs that begin with a checkpoint.
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/checkpoint/testing/checkpoint_writer.h"
#include "common/os/file.h"
#include "common/tensors/model_layout.h"
#include "common/tensors/safetensors.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/fragment_plan.h"
#include "server/engine.h"
#include "server/replay.h"
#include "server/storage/state_directory.h"
#include "server/testing/engine_driver.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class EngineCheckpointTest : public testing::Test {
 protected:
  EngineCheckpointTest() {
    for (float& value : parameters_) value += 1;
    Write(ModelTensors(layout_, parameters_));
  }

  void Write(Safetensors contents) {
    EXPECT_OK(WriteSafetensors(checkpoint_, std::move(contents)));
  }
  // Returns version 0 of the whole model.
  std::vector<float> VersionZero() {
    const v1::IslandIdentity a = run_.Join("a").value();
    const FragmentMap map = *FragmentMap::Create(
        layout_, StateDirectory::OpenReadOnly(run_.state_dir())
                     .value()
                     ->log()
                     .LoadRun()
                     ->plan);
    std::vector<float> model(map.model_size());
    for (uint32_t id = 0; id < map.fragments(); ++id) {
      map.Scatter(id, run_.Fetch(a, id, 0).value(), absl::MakeSpan(model));
    }
    return model;
  }

  const v1::RunConfig config_ = TestRunConfig("training { total_steps: 80 }");
  EngineDriver run_;
  const ModelLayout layout_ = MakeModelLayout(config_.model());
  std::vector<float> parameters_ = InitialParameters(layout_, 3);
  TemporaryDirectory directory_ = *TemporaryDirectory::Make("checkpoint");
  const std::string checkpoint_ =
      absl::StrCat(directory_.path(), "/model.safetensors");
};

TEST_F(EngineCheckpointTest, ARunBeginsWithACheckpointAndKeepsIt) {
  ASSERT_OK(run_.Start(config_, checkpoint_));
  EXPECT_EQ(VersionZero(), parameters_);
  ASSERT_OK_AND_ASSIGN(const std::vector<v1::Event> events,
                       run_.engine().log().EventsAfter(0, 1000));
  EXPECT_THAT(events.front().text(), HasSubstr(checkpoint_));
  // A restart needs no checkpoint, and does not read the given one.
  ASSERT_OK(run_.Start(config_));
  EXPECT_EQ(VersionZero(), parameters_);
  ASSERT_OK(RemoveFile(checkpoint_));
  ASSERT_OK(run_.Start(config_, checkpoint_));
  EXPECT_EQ(VersionZero(), parameters_);
  ASSERT_OK_AND_ASSIGN(
      const std::vector<v1::Event> later,
      run_.engine().log().EventsAfter(events.back().id(), 1000));
  EXPECT_THAT(later.back().text(), Not(HasSubstr(checkpoint_)));
}

TEST_F(EngineCheckpointTest, ACheckpointThatDoesNotFitLeavesNoRun) {
  parameters_.back() = std::numeric_limits<float>::quiet_NaN();
  Write(ModelTensors(layout_, parameters_));
  EXPECT_THAT(run_.TryStart(config_, checkpoint_).status(),
              IsInvalidArgument("lm_head.weight"));
  // Another run may have the directory.
  v1::RunConfig other = config_;
  other.set_name("other");
  EXPECT_OK(run_.Start(other));
}

TEST_F(EngineCheckpointTest, AStartThatWasCutOffMustBeRepeatedAlike) {
  for (const bool from_checkpoint : {false, true}) {
    std::filesystem::remove_all(run_.state_dir());
    {
      ASSERT_OK_AND_ASSIGN(
          const std::unique_ptr<StateDirectory> state,
          StateDirectory::Open(run_.state_dir(), {.create = true}));
      RunRecord record{.run_id = "test-1", .config = config_};
      ASSERT_OK_AND_ASSIGN(record.plan, MakeFragmentPlan(layout_, config_));
      record.plan.set_from_checkpoint(from_checkpoint);
      ASSERT_OK(state->log().CreateRun(record));
    }
    EXPECT_THAT(
        run_.TryStart(config_, from_checkpoint ? "" : checkpoint_).status(),
        IsFailedPrecondition(from_checkpoint ? "start with --initial_parameters"
                                             : "start without"));
    EXPECT_OK(run_.Start(config_, from_checkpoint ? checkpoint_ : ""));
    EXPECT_EQ(VersionZero() == parameters_, from_checkpoint);
    run_.Stop();
  }
}

// Returns the configuration of a run with the tensors of its checkpoint.
v1::RunConfig OfTensors(v1::RunConfig config) {
  config.mutable_tensors()->set_sequence_length(8);
  return config;
}

TEST_F(EngineCheckpointTest, ARunOfTensorsBeginsWithItsCheckpoint) {
  const v1::RunConfig config = OfTensors(config_);
  EXPECT_THAT(run_.TryStart(config).status(),
              IsInvalidArgument("begins with a checkpoint: name it with "
                                "--initial_parameters"));
  ASSERT_OK(run_.Start(config, checkpoint_));
  EXPECT_EQ(VersionZero(), parameters_);
  // The plan keeps the tensors, so a restart needs nothing else.
  ASSERT_OK(RemoveFile(checkpoint_));
  ASSERT_OK(run_.Start(config));
  EXPECT_EQ(VersionZero(), parameters_);
  run_.Stop();
  v1::RunConfig other = config;
  other.mutable_tensors()->add_exclude("lm_head.weight");
  EXPECT_THAT(run_.TryStart(other).status(),
              IsFailedPrecondition("tensors.exclude"));
  EXPECT_THAT(run_.TryStart(config_).status(),
              IsFailedPrecondition("differs from this configuration"));
  other = config;
  other.mutable_tensors()->add_mean_only("lm_head.weight");
  other.mutable_tensors()->set_sequence_length(16);
  EXPECT_OK(run_.Start(other));
}

TEST_F(EngineCheckpointTest, AStartThatWasCutOffNeedsTheSameTensors) {
  const v1::RunConfig config = OfTensors(config_);
  {
    ASSERT_OK_AND_ASSIGN(
        const std::unique_ptr<StateDirectory> state,
        StateDirectory::Open(run_.state_dir(), {.create = true}));
    RunRecord record{.run_id = "test-1", .config = config};
    ASSERT_OK_AND_ASSIGN(record.plan, MakeFragmentPlan(layout_, config));
    record.plan.set_from_checkpoint(true);
    ASSERT_OK(state->log().CreateRun(record));
  }
  const std::vector<float> values(layout_.size);
  Safetensors other = ModelTensors(layout_, values);
  other.tensors[0].shape = {other.tensors[0].shape[1],
                            other.tensors[0].shape[0]};
  Write(std::move(other));
  EXPECT_THAT(run_.TryStart(config, checkpoint_).status(),
              IsInvalidArgument("model.embed_tokens.weight has shape"));
  Write(ModelTensors(layout_, parameters_));
  ASSERT_OK(run_.Start(config, checkpoint_));
  EXPECT_EQ(VersionZero(), parameters_);
}

TEST_F(EngineCheckpointTest, AFragmentForEachBlockAndNoMore) {
  v1::RunConfig config = OfTensors(config_);
  config.mutable_synchronization()->set_fragments(3);
  EXPECT_THAT(run_.TryStart(config, checkpoint_).status(),
              IsInvalidArgument("a model of 1 blocks takes 1 to 2"));
  // Another run may have the directory.
  EXPECT_OK(run_.Start(config_));
}

// Version 0 cannot be made again, so its file must be there.
TEST_F(EngineCheckpointTest, AReplayNeedsTheFilesOfVersionZero) {
  v1::RunConfig config = config_;
  config.mutable_storage()->set_record_contributions(true);
  ASSERT_OK(run_.Start(config, checkpoint_));
  ASSERT_OK_AND_ASSIGN(const v1::IslandIdentity a, run_.Join("a"));
  ASSERT_OK(run_.Join("b"));
  const auto contribute = [&](uint64_t version) {
    ASSERT_OK_AND_ASSIGN(const std::vector<float> anchor,
                         run_.Fetch(a, 0, version));
    for (const char* island : {"a", "b"}) {
      ASSERT_OK(run_.Contribute(run_.MakeContribution(run_.Join(island).value(),
                                                      0, version, anchor,
                                                      Shifted(anchor, 0.01f))));
    }
    ASSERT_TRUE(run_.AwaitVersion(0, version + 1));
  };
  const auto replay = [&]() -> absl::StatusOr<std::vector<ReplayResult>> {
    ASSIGN_OR_RETURN(const std::unique_ptr<StateDirectory> state,
                     StateDirectory::OpenReadOnly(run_.state_dir()));
    std::vector<ReplayResult> replays;
    RETURN_IF_ERROR(ReplayRun(*state, [&](const ReplayResult& replay) {
      replays.push_back(replay);
    }));
    return replays;
  };
  contribute(0);
  ASSERT_OK_AND_ASSIGN(std::vector<ReplayResult> replays, replay());
  EXPECT_EQ(replays[0].first_version, 0);
  EXPECT_EQ(replays[0].last_version, 1);
  EXPECT_THAT(replays[0].difference, IsEmpty());
  // With the second snapshot after it, version 0 is no longer kept.
  for (const uint64_t version : {1, 2, 3}) {
    contribute(version);
    ASSERT_OK(run_.Start(config));
  }
  ASSERT_OK_AND_ASSIGN(replays, replay());
  EXPECT_GT(replays[0].first_version, 0);
  EXPECT_EQ(replays[0].last_version, 4);
  EXPECT_THAT(replays[0].difference, IsEmpty());
}

}  // namespace
}  // namespace causeway
