// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/island_ranks.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/config/run_config.h"
#include "common/tensors/model_layout.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/fragment_plan.h"
#include "quantization/codec.h"
#include "quantization/codec_config.h"
#include "worker/collective/collective_diagnosis.h"
#include "worker/collective/rank_stamps.h"
#include "worker/collective/rendezvous.h"
#include "worker/data/dataset.h"
#include "worker/data/held_out_loss.h"
#include "worker/data/sampler.h"
#include "worker/data/testing/files.h"
#include "worker/model/ops_cpu.h"
#include "worker/model/transformer.h"
#include "worker/replica/fragment_replica.h"

namespace causeway {
namespace {

using testing::FloatNear;
using testing::HasSubstr;

// Loses the answer to process 1 once that has opened its data.
class LossyRendezvous : public LocalRendezvous {
 public:
  absl::Status Put(absl::string_view key, absl::string_view value) override {
    RETURN_IF_ERROR(LocalRendezvous::Put(key, value));
    return key == "data of process 1" ? absl::UnavailableError("lost")
                                      : absl::OkStatus();
  }
};

class IslandRanksTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 3000; ++i) {
      absl::StrAppend(&text, "line ", i * i % 97, " of ", i % 31, "\n");
    }
    options_.data = {WriteTestFile("text.txt", text)};
    options_.now = SteadyWallClock();
    ASSERT_OK_AND_ASSIGN(
        config_, ParseRunConfig(
                     R"pb(
                       name: "ranks"
                       model {
                         layers: 1
                         hidden_size: 16
                         intermediate_size: 24
                         heads: 2
                         sequence_length: 16
                       }
                       training {
                         total_steps: 10
                         batch_size: 8
                         micro_batch_size: 1
                         warmup_steps: 2
                         gradient_clip: 0.1
                       }
                       synchronization { inner_steps_per_round: 5 fragments: 2 }
                     )pb",
                     "test"));
  }

  std::vector<float> Start() const {
    return InitialParameters(MakeModelLayout(config_.model()), 1);
  }

  // Returns an island with ranks on threads.
  absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeRanks(int ranks) {
    return MakeThreadedIsland(config_, options_, ranks, Start());
  }

  static std::vector<float> Parameters(InnerTrainer& trainer) {
    TrainerState state;
    EXPECT_OK(trainer.Save(state));
    return state.parameters;
  }

  // Returns the encoded contribution of the present parameters.
  std::string Contribution(FragmentReplica& fragment) {
    EXPECT_OK(fragment.TakeSnapshot());
    EXPECT_OK(fragment.BeginContribution(0));
    const CodecSpec spec = UplinkSpec(config_.synchronization());
    std::string bytes(MaxEncodedBytes(spec, fragment.size()), 0);
    const auto encoded =
        fragment.Encode(bytes.size(), absl::MakeSpan(&bytes[0], bytes.size()));
    EXPECT_OK(encoded);
    if (encoded.ok()) bytes.resize(encoded->ready);
    EXPECT_OK(fragment.EndContribution(false));
    return bytes;
  }

  // Returns the coordinator's answer to a join.
  v1::JoinResponse Joined() const {
    v1::JoinResponse joined;
    *joined.mutable_config() = config_;
    const auto plan =
        MakeFragmentPlan(MakeModelLayout(config_.model()), config_);
    EXPECT_OK(plan);
    if (plan.ok()) *joined.mutable_plan() = *plan;
    return joined;
  }

  // The options of one of two processes with one rank each.
  static ProcessRankOptions OneOfTwo(int rank, Rendezvous* rendezvous) {
    return {
        .rank = rank, .size = 2, .host = "127.0.0.1", .rendezvous = rendezvous};
  }
  absl::StatusOr<std::unique_ptr<InnerTrainer>> Lead(Rendezvous& rendezvous) {
    return MakeLeadingRank(config_, options_, OneOfTwo(0, &rendezvous),
                           Start());
  }

  // Compares an island of two processes with one of two threads.
  void ExpectProcessesAreThreads() {
    // Two terms can only be added in one order, so the bits are the same.
    ASSERT_OK_AND_ASSIGN(const auto threads, MakeRanks(2));
    LossyRendezvous rendezvous;
    IslandRanksOptions of_follower = options_;
    of_follower.shard = 0;
    of_follower.data_order = 0;
    std::thread follower([&] {
      // The time to connect begins once both processes have their data.
      EXPECT_OK(rendezvous.Get("run", absl::Minutes(1)));
      EXPECT_THAT(rendezvous.Get("tcp/orders/0", absl::Milliseconds(300)),
                  IsDeadlineExceeded());
      EXPECT_OK(RunFollowingRank(of_follower, OneOfTwo(1, &rendezvous)));
    });
    {
      ASSERT_OK_AND_ASSIGN(const auto leader, Lead(rendezvous));
      ASSERT_OK_AND_ASSIGN(const auto theirs, leader->MakeReplica(Joined()));
      ASSERT_OK_AND_ASSIGN(const auto ours, threads->MakeReplica(Joined()));
      for (int step = 1; step <= 3; ++step) {
        ASSERT_OK(leader->Step(step));
        ASSERT_OK(threads->Step(step));
        EXPECT_EQ(Parameters(*leader), Parameters(*threads));
        for (size_t fragment = 0; fragment < ours.size(); ++fragment) {
          EXPECT_EQ(Contribution(*theirs[fragment]),
                    Contribution(*ours[fragment]));
        }
      }
    }
    follower.join();
  }

  void ExpectTwoRanksLearn() {
    ASSERT_OK_AND_ASSIGN(const auto trainer, MakeRanks(2));
    double first = 0;
    double last = 0;
    for (int step = 1; step <= 10; ++step) {
      ASSERT_OK_AND_ASSIGN(const InnerStepResult result, trainer->Step(step));
      (step == 1 ? first : last) = result.loss;
      EXPECT_GE(result.tokens, 8 * 16);
    }
    EXPECT_LT(last, first - 0.5);
  }

  v1::RunConfig config_;
  IslandRanksOptions options_;
};

TEST_F(IslandRanksTest, RanksTrainTheModelThatOneRankTrains) {
  ASSERT_OK_AND_ASSIGN(const auto one, MakeRanks(1));
  ASSERT_OK_AND_ASSIGN(const auto four, MakeRanks(4));
  for (int step = 1; step <= 5; ++step) {
    ASSERT_OK_AND_ASSIGN(const InnerStepResult alone, one->Step(step));
    ASSERT_OK_AND_ASSIGN(const InnerStepResult together, four->Step(step));
    EXPECT_NEAR(together.loss, alone.loss, 1e-5);
    EXPECT_NEAR(together.gradient_norm, alone.gradient_norm, 1e-5);
    EXPECT_EQ(together.tokens, 8 * 16);
    EXPECT_EQ(together.rank_micro_batches, std::vector<int64_t>(4, 2));
    // AdamW's first updates have the sign of the gradient; rounding decides it
    // for gradients near 0.
    EXPECT_THAT(Parameters(*four),
                testing::Pointwise(FloatNear(2e-5f), Parameters(*one)));
  }
}

TEST_F(IslandRanksTest, RanksStampTheStepsThatTheyComplete) {
  ASSERT_OK_AND_ASSIGN(const auto page, RankStampPage::Create());
  ASSERT_EQ(setenv(kRankStampsVariable, page->path().c_str(), 1), 0);
  ASSERT_OK(OpenRankStamps(SteadyWallClock()));
  ASSERT_OK_AND_ASSIGN(const auto sound, MakeRanks(2));
  ASSERT_OK(sound->Step(5));
  // All ranks have ended the step before they save.
  Parameters(*sound);
  const std::vector<float> no_numbers(Start().size(), std::nanf(""));
  ASSERT_OK_AND_ASSIGN(const auto spoiled,
                       MakeThreadedIsland(config_, options_, 2, no_numbers));
  EXPECT_FALSE(spoiled->Step(6).ok());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(page->rank(rank).step, 5) << rank;
  }
}

TEST_F(IslandRanksTest, EveryAlgorithmLearnsWithEveryOptimizer) {
  v1::TrainingConfig& training = *config_.mutable_training();
  training.set_learning_rate(0.01);
  for (const auto algorithm :
       {v1::TrainingConfig::DDP, v1::TrainingConfig::ACCO}) {
    training.set_inner_algorithm(algorithm);
    for (const auto optimizer :
         {v1::TrainingConfig::ADAMW, v1::TrainingConfig::MUON}) {
      training.set_optimizer(optimizer);
      SCOPED_TRACE(training.ShortDebugString());
      ExpectTwoRanksLearn();
    }
  }
}

TEST_F(IslandRanksTest, TheLossDependsOnTheShardsText) {
  config_.mutable_data()->set_shards(2);
  std::vector<double> losses;
  const auto train = [&] {
    ASSERT_OK_AND_ASSIGN(const auto trainer, MakeRanks(2));
    ASSERT_OK_AND_ASSIGN(const InnerStepResult result, trainer->Step(1));
    losses.push_back(result.loss);
  };
  train();
  options_.shard = 1;
  train();
  options_.data = {WriteTestFile("other.txt", std::string(50'000, 'x'))};
  train();
  ASSERT_EQ(losses.size(), 3);
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NE(losses[1], losses[2]);
}

// To an untrained model all tokens are about equally likely.
TEST_F(IslandRanksTest, TheLossIsTheMeanOverUnmaskedTargets) {
  ASSERT_OK_AND_ASSIGN(const auto plain, MakeRanks(1));
  ASSERT_OK_AND_ASSIGN(const InnerStepResult all, plain->Step(1));
  config_.mutable_data()->set_loss_masks(true);
  std::ifstream text(options_.data[0], std::ios::ate);
  const auto bytes = static_cast<size_t>(text.tellg() + std::streamoff{7}) / 8;
  // The first quarter of the text has 3 of the batch's 8 sequences.
  std::string mask(bytes, '\x24');
  mask.replace(0, bytes / 4, bytes / 4, '\0');
  WriteTestFile("text.txt.mask", mask);
  std::vector<double> losses;
  for (const int ranks : {1, 8}) {
    ASSERT_OK_AND_ASSIGN(const auto masked, MakeRanks(ranks));
    ASSERT_OK_AND_ASSIGN(const InnerStepResult some, masked->Step(1));
    losses.push_back(some.loss);
  }
  EXPECT_NEAR(losses[0], all.loss, 0.05 * all.loss);
  EXPECT_NE(losses[0], all.loss);
  EXPECT_NEAR(losses[1], losses[0], 1e-5);
}

TEST_F(IslandRanksTest, MicroBatchesHideTheCommunication) {
  config_.mutable_training()->set_inner_algorithm(v1::TrainingConfig::ACCO);
  // Communication ends long before a rank has made eight of these batches.
  config_.mutable_training()->set_batch_size(512);
  ASSERT_OK_AND_ASSIGN(const auto trainer, MakeRanks(2));
  for (int step = 1; step <= 3; ++step) {
    ASSERT_OK_AND_ASSIGN(const InnerStepResult result, trainer->Step(step));
    EXPECT_GT(result.communication, absl::ZeroDuration());
    // A rank makes micro-batches until the communication has ended.
    EXPECT_EQ(result.exposed_communication, absl::ZeroDuration());
  }
}

TEST_F(IslandRanksTest, AllRanksContinueFromTheBatchOfACheckpoint) {
  config_.mutable_training()->set_inner_algorithm(v1::TrainingConfig::ACCO);
  config_.mutable_training()->set_fixed_micro_batches(true);
  for (const auto optimizer :
       {v1::TrainingConfig::ADAMW, v1::TrainingConfig::MUON}) {
    config_.mutable_training()->set_optimizer(optimizer);
    config_.mutable_training()->set_micro_batch_size(2);
    TrainerState state;
    {
      ASSERT_OK_AND_ASSIGN(const auto trainer, MakeRanks(2));
      for (int step = 1; step <= 3; ++step) ASSERT_OK(trainer->Step(step));
      ASSERT_OK(trainer->Save(state));
    }
    // One rank and two share the same batch, whatever its micro-batches.
    std::vector<double> losses;
    for (const auto& [ranks, micro_batch_size] :
         {std::pair{1, 2}, {2, 2}, {2, 1}}) {
      config_.mutable_training()->set_micro_batch_size(micro_batch_size);
      ASSERT_OK_AND_ASSIGN(const auto trainer, MakeRanks(ranks));
      ASSERT_OK(trainer->Restore(state));
      TrainerState again;
      ASSERT_OK(trainer->Save(again));
      EXPECT_EQ(again.parameters, state.parameters);
      EXPECT_EQ(again.optimizer.first_moment, state.optimizer.first_moment);
      EXPECT_EQ(again.optimizer.second_moment, state.optimizer.second_moment);
      ASSERT_OK_AND_ASSIGN(const InnerStepResult result, trainer->Step(4));
      losses.push_back(result.loss);
    }
    EXPECT_NEAR(losses[0], losses[1], 1e-5);
    EXPECT_NEAR(losses[0], losses[2], 1e-5);
  }
}

// An island that joins late saves its first checkpoint before its first step.
TEST_F(IslandRanksTest, TheBatchFollowsTheRunsStepAfterACheckpointOfNoStep) {
  config_.mutable_training()->set_inner_algorithm(v1::TrainingConfig::ACCO);
  config_.mutable_training()->set_fixed_micro_batches(true);
  ASSERT_OK_AND_ASSIGN(const auto trainer, MakeRanks(2));
  TrainerState state;
  ASSERT_OK(trainer->Save(state));
  ASSERT_OK_AND_ASSIGN(const InnerStepResult joined, trainer->Step(50));
  ASSERT_OK_AND_ASSIGN(const auto resumed, MakeRanks(2));
  ASSERT_OK(resumed->Restore(state));
  ASSERT_OK_AND_ASSIGN(const InnerStepResult again, resumed->Step(50));
  EXPECT_EQ(again.loss, joined.loss);
}

TEST_F(IslandRanksTest, AnchorsBeginWithTheRunsParameters) {
  ASSERT_OK_AND_ASSIGN(const auto trainer, MakeRanks(2));
  EXPECT_EQ(Parameters(*trainer), Start());
  ASSERT_OK_AND_ASSIGN(const auto replica, trainer->MakeReplica(Joined()));
  // A checkpoint leaves the anchors.
  TrainerState state;
  ASSERT_OK(trainer->Save(state));
  for (float& value : state.parameters) value += 1;
  ASSERT_OK(trainer->Restore(state));
  EXPECT_EQ(Parameters(*trainer), state.parameters);
  const FragmentMap map =
      *FragmentMap::Create(MakeModelLayout(config_.model()), Joined().plan());
  for (uint32_t id = 0; id < map.fragments(); ++id) {
    std::vector<float> anchor(replica[id]->size());
    ASSERT_OK(replica[id]->ReadAnchor(absl::MakeSpan(anchor)));
    std::vector<float> want(anchor.size());
    map.Gather(id, Start(), absl::MakeSpan(want));
    EXPECT_EQ(anchor, want);
  }
}

// With a learning rate near zero, ranks keep the parameters that they were
// given, so the loss shows whether all ranks have the change.
TEST_F(IslandRanksTest, EveryRankGetsChangedParameters) {
  config_.mutable_training()->set_learning_rate(1e-12);
  for (const auto algorithm :
       {v1::TrainingConfig::DDP, v1::TrainingConfig::ACCO}) {
    config_.mutable_training()->set_inner_algorithm(algorithm);
    ASSERT_OK_AND_ASSIGN(const auto trainer, MakeRanks(4));
    ASSERT_OK_AND_ASSIGN(const auto replica, trainer->MakeReplica(Joined()));
    ASSERT_OK(trainer->Step(1));
    // Without a snapshot the parameters become the new anchor.
    for (const auto& fragment : replica) {
      ASSERT_OK(
          fragment->ReplaceAnchor(std::vector<float>(fragment->size(), 0)));
      ASSERT_OK(fragment->Apply(/*includes_island=*/true));
    }
    ASSERT_OK_AND_ASSIGN(InnerStepResult result, trainer->Step(2));
    // Step 3 is the first one without gradients from before the change.
    if (algorithm == v1::TrainingConfig::ACCO) {
      ASSERT_OK_AND_ASSIGN(result, trainer->Step(3));
    }
    // Without weights all bytes are equally likely.
    EXPECT_NEAR(result.loss, std::log(258), 1e-4);
    EXPECT_THAT(Parameters(*trainer), testing::Each(FloatNear(0, 1e-6f)));
  }
}

TEST_F(IslandRanksTest, RanksWaitWhileTheOuterLoopTakesLongerThanTheLimit) {
  options_.timeout = absl::Milliseconds(500);
  ASSERT_OK_AND_ASSIGN(const auto trainer, MakeRanks(2));
  ASSERT_OK(trainer->Step(1));
  absl::SleepFor(3 * options_.timeout);
  EXPECT_OK(trainer->Step(2));
}

// The steps are shorter than the time between two diagnoses.
TEST_F(IslandRanksTest, SlownessIsFoundWhileTheIslandTrains) {
  LocalRendezvous rendezvous;
  IslandRanksOptions of_leader = options_;
  of_leader.now = [now = options_.now, start = options_.now()] {
    return start + 4 * (now() - start);
  };
  int diagnoses = 0;
  CollectiveDiagnosis last;
  of_leader.diagnosed = [&](const CollectiveDiagnosis& diagnosis) {
    ++diagnoses;
    last = diagnosis;
  };
  IslandRanksOptions of_follower = options_;
  of_follower.now = [now = of_leader.now] {
    absl::SleepFor(absl::Milliseconds(2));
    return now();
  };
  std::thread follower([&] {
    EXPECT_OK(RunFollowingRank(of_follower, OneOfTwo(1, &rendezvous)));
  });
  {
    ASSERT_OK_AND_ASSIGN(
        const auto leader,
        MakeLeadingRank(config_, of_leader, OneOfTwo(0, &rendezvous), Start()));
    v1::RankTrouble trouble;
    for (int step = 1; step <= 50 && trouble.text().empty(); ++step) {
      ASSERT_OK_AND_ASSIGN(const InnerStepResult result, leader->Step(step));
      trouble = result.trouble;
    }
    EXPECT_THAT(trouble.text(), HasSubstr("is slow"));
    EXPECT_GE(diagnoses, 1);
    EXPECT_EQ(ToRankTrouble(last).text(), trouble.text());
  }
  follower.join();
}

// Reading large data takes minutes.
TEST_F(IslandRanksTest, OtherRanksDoNotWaitForRank0ToReadItsData) {
  LocalRendezvous rendezvous;
  options_.data = {"missing"};
  EXPECT_THAT(Lead(rendezvous), IsNotFound());
  EXPECT_OK(rendezvous.Get("run", absl::ZeroDuration()));
}

TEST_F(IslandRanksTest, ALeaderThatMustEndWaitsForNoData) {
  LocalRendezvous rendezvous;
  ProcessRankOptions process = OneOfTwo(0, &rendezvous);
  process.pause = [] { return false; };
  EXPECT_THAT(MakeLeadingRank(config_, options_, process, Start()),
              IsCancelled("before the island's start"));
}

TEST_F(IslandRanksTest, ValidationChangesNothingOfTraining) {
  for (const auto algorithm :
       {v1::TrainingConfig::DDP, v1::TrainingConfig::ACCO}) {
    config_.mutable_training()->set_inner_algorithm(algorithm);
    config_.mutable_training()->set_fixed_micro_batches(true);
    std::vector<float> parameters[2];
    for (const bool validates : {false, true}) {
      ASSERT_OK_AND_ASSIGN(const auto trainer, MakeRanks(2));
      const auto validate = [&] {
        if (validates) EXPECT_OK(trainer->Validate(Start(), 0));
      };
      validate();
      for (int step = 1; step <= 4; ++step) {
        ASSERT_OK(trainer->Step(step));
        validate();
      }
      parameters[validates] = Parameters(*trainer);
    }
    EXPECT_EQ(parameters[0], parameters[1])
        << v1::TrainingConfig::InnerAlgorithm_Name(algorithm);
  }
}

TEST_F(IslandRanksTest, RanksMeasureTheGivenParametersTogether) {
  ASSERT_OK_AND_ASSIGN(const Dataset dataset,
                       OpenDataset(config_, options_.data));
  const ValidationSet validation(&dataset, 21);
  ASSERT_EQ(validation.size(), 21);
  const std::unique_ptr<Ops> ops = MakeCpuOps(1);
  ASSERT_OK_AND_ASSIGN(
      const auto model,
      Transformer::Create(config_.model(),
                          {.micro_batch = 21, .training = false}, ops.get()));
  const std::vector<float> measured = Start();
  ASSERT_OK_AND_ASSIGN(const HeldOutLoss want,
                       SumHeldOutLoss(validation, {.batch = 21},
                                      [&](absl::Span<const int32_t> tokens,
                                          absl::Span<const int32_t> targets) {
                                        return model->Loss(measured.data(),
                                                           tokens, targets);
                                      }));
  for (const int ranks : {1, 2, 4}) {
    ASSERT_OK_AND_ASSIGN(const auto trainer, MakeRanks(ranks));
    // The trainer's own parameters have changed by then.
    for (const int step : {1, 2}) ASSERT_OK(trainer->Step(step));
    ASSERT_OK_AND_ASSIGN(const ValidationLoss loss,
                         trainer->Validate(measured, 21));
    EXPECT_NEAR(loss.loss, want.sum / (21 * 16), 1e-5) << ranks;
    EXPECT_EQ(loss.tokens, 21 * 16) << ranks;
    EXPECT_EQ(trainer->DataDigest(), dataset.Digest());
  }
  config_.mutable_data()->set_validation_fraction(0);
  ASSERT_OK_AND_ASSIGN(const auto trainer, MakeRanks(2));
  ASSERT_OK_AND_ASSIGN(const ValidationLoss none,
                       trainer->Validate(measured, 0));
  EXPECT_EQ(none.tokens, 0) << "nothing is held out";
}

// The follower learns the shard and its order from rank 0.
TEST_F(IslandRanksTest, ProcessesComputeWhatThreadsCompute) {
  config_.mutable_data()->set_shards(2);
  options_.shard = 1;
  options_.data_order = 1;
  ExpectProcessesAreThreads();
}

TEST_F(IslandRanksTest, ProcessesReadTheSameData) {
  IslandRanksOptions other_file = options_;
  other_file.data = {WriteTestFile("other.txt", std::string(40000, 'x'))};
  IslandRanksOptions other_weights = options_;
  other_weights.data_weights = {2};
  for (const IslandRanksOptions& of_follower : {other_file, other_weights}) {
    LocalRendezvous rendezvous;
    absl::Status ended;
    std::thread follower([&] {
      ended = RunFollowingRank(of_follower, OneOfTwo(1, &rendezvous));
    });
    {
      ASSERT_OK_AND_ASSIGN(const auto leader, Lead(rendezvous));
      EXPECT_THAT(leader->MakeReplica(Joined()),
                  IsAborted("rank 1 reads other data than rank 0"));
    }
    follower.join();
    EXPECT_THAT(ended, IsFailedPrecondition("--data"));
  }
}

TEST_F(IslandRanksTest, ProcessesHaveTheSameKindOfDevice) {
  IslandRanksOptions on_gpu = options_;
  on_gpu.devices = {{.kind = Device::Kind::kCuda}};
  LocalRendezvous rendezvous;
  const auto unequal = IsFailedPrecondition(
      "rank 1 trains on a GPU, and rank 0 on the CPU: give all");
  std::thread follower([&] {
    EXPECT_THAT(RunFollowingRank(on_gpu, OneOfTwo(1, &rendezvous)), unequal);
  });
  EXPECT_THAT(Lead(rendezvous), unequal);
  follower.join();
}

// Two processes with two ranks each are an island of four.
TEST_F(IslandRanksTest, ProcessesMayHaveSeveralRanks) {
  ASSERT_OK_AND_ASSIGN(const auto threads, MakeRanks(4));
  LocalRendezvous rendezvous;
  const auto process = [&](int rank) {
    ProcessRankOptions options = OneOfTwo(rank, &rendezvous);
    options.threads = 2;
    return options;
  };
  std::thread follower(
      [&] { EXPECT_OK(RunFollowingRank(options_, process(1))); });
  {
    ASSERT_OK_AND_ASSIGN(
        const auto leader,
        MakeLeadingRank(config_, options_, process(0), Start()));
    for (int step = 1; step <= 3; ++step) {
      ASSERT_OK_AND_ASSIGN(const InnerStepResult result, leader->Step(step));
      EXPECT_EQ(result.rank_micro_batches, std::vector<int64_t>(4, 2));
      ASSERT_OK(threads->Step(step));
      EXPECT_EQ(Parameters(*leader), Parameters(*threads));
    }
  }
  follower.join();
}

// An unusable device makes the island fail with the reason.
TEST_F(IslandRanksTest, ARankWithoutItsDeviceEndsTheOthers) {
  config_.mutable_model()->set_hidden_size(32);
  options_.devices = {Device{}, {.kind = Device::Kind::kCuda, .index = 1000}};
  const absl::StatusOr<std::unique_ptr<InnerTrainer>> trainer = MakeRanks(2);
  const absl::Status status =
      trainer.ok() ? (*trainer)->Step(1).status() : trainer.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(status.message(),
              testing::AnyOf(HasSubstr("built without CUDA"),
                             HasSubstr("looking for CUDA devices"),
                             HasSubstr("no device cuda:1000")));
}

TEST_F(IslandRanksTest, RanksOfProcessesDoNotShareGpus) {
  options_.devices = {{.kind = Device::Kind::kCuda}};
  LocalRendezvous rendezvous;
  const ProcessRankOptions process = {
      .size = 2, .threads = 2, .rendezvous = &rendezvous};
  const auto refused = IsInvalidArgument("2 ranks have 1 GPUs");
  EXPECT_THAT(MakeLeadingRank(config_, options_, process, Start()), refused);
  EXPECT_THAT(RunFollowingRank(options_, process), refused);
  options_.devices.push_back({.kind = Device::Kind::kCuda, .index = 1});
  EXPECT_THAT(MakeRanks(4), IsInvalidArgument("4 ranks have 2 GPUs"));
}

TEST_F(IslandRanksTest, ErrorsAreReportedBeforeTraining) {
  EXPECT_THAT(MakeRanks(3), IsInvalidArgument("3 ranks needs a multiple of"));
  options_.data = {"/nowhere.txt"};
  EXPECT_THAT(MakeRanks(2), IsNotFound("nowhere"));
}

}  // namespace
}  // namespace causeway
