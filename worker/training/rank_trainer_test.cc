// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares the trainers with the equations of rank_trainer.h over whole
// vectors: the bits must be equal for any number of ranks and micro-batches.
#include "worker/training/rank_trainer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <tuple>
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
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"
#include "worker/model/ops_cpu.h"
#include "worker/optimizer/learning_rate.h"
#include "worker/optimizer/muon.h"
#include "worker/optimizer/sharded_optimizer.h"
#include "worker/training/testing/train_ranks.h"

namespace {

// The bytes that all threads have allocated in large pieces.
std::atomic<int64_t> large_allocations = 0;
void Count(size_t bytes) {
  if (bytes >= 4096) large_allocations += static_cast<int64_t>(bytes);
}

}  // namespace

// Vectors of the program and the CPU's Ops allocate with this operator.
void* operator new(size_t bytes) {
  Count(bytes);
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) {
  Count(bytes);
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

namespace causeway {
namespace {

// ACCO's equations. Each rank has a vector of gradients, which are summed in
// order of rank.
class Equations {
 public:
  explicit Equations(const Scenario& scenario)
      : scenario_(scenario),
        layout_(MakeModelLayout(scenario.model)),
        theta_(InitialParameters(layout_, 1)),
        numbers_(scenario.ranks) {
    for (int rank = 0; rank < scenario.ranks; ++rank) numbers_[rank] = rank;
    optimizer_ = *ShardedOptimizer::Create(scenario.config, layout_,
                                           communicator_.get(), ops_.get());
  }

  std::vector<std::vector<float>> Run() {
    std::vector<std::vector<float>> parameters;
    Gradients pending = Make(theta_, scenario_.counts.second_half, Zero());
    for (int step = 1; step <= scenario_.steps; ++step) {
      if (scenario_.change) scenario_.change(step, absl::MakeSpan(theta_));
      rate_ = LearningRate(scenario_.config, step - 1);
      const std::vector<float> estimate = Estimate(pending);
      const Gradients all = Make(theta_, scenario_.counts.first_half, pending);
      pending = Make(estimate, scenario_.counts.second_half, Zero());
      Commit(all);
      parameters.push_back(theta_);
    }
    return parameters;
  }

 private:
  struct Gradients {
    std::vector<std::vector<float>> by_rank;
    int64_t count = 0;
  };
  Gradients Zero() const {
    return {.by_rank = std::vector<std::vector<float>>(
                scenario_.ranks, std::vector<float>(theta_.size()))};
  }
  Gradients Make(const std::vector<float>& at,
                 const std::vector<int64_t>& counts, Gradients sum) {
    for (int rank = 0; rank < scenario_.ranks; ++rank) {
      for (int64_t i = 0; i < counts[rank]; ++i) {
        Springs::Add(numbers_[rank], at.data(), layout_.size,
                     sum.by_rank[rank].data());
        numbers_[rank] += scenario_.ranks;
        ++sum.count;
      }
    }
    return sum;
  }
  std::vector<float> Sum(const Gradients& gradients) const {
    std::vector<float> sum = gradients.by_rank[0];
    for (int rank = 1; rank < scenario_.ranks; ++rank) {
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += gradients.by_rank[rank][i];
      }
    }
    return sum;
  }
  std::vector<float> Estimate(const Gradients& gradients) {
    std::vector<float> estimate(theta_.size());
    optimizer_->Estimate(rate_, {.micro_batches = gradients.count},
                         Sum(gradients), theta_.data(), estimate.data());
    return estimate;
  }
  void Commit(const Gradients& gradients) {
    optimizer_->Step(rate_, {.micro_batches = gradients.count}, Sum(gradients),
                     theta_.data());
  }

  const Scenario& scenario_;
  const ModelLayout layout_;
  std::vector<float> theta_;
  // The next micro-batch of each rank.
  std::vector<int64_t> numbers_;
  const std::unique_ptr<Ops> ops_ = MakeCpuOps(1);
  LocalRendezvous rendezvous_;
  const std::unique_ptr<Communicator> communicator_ = MakeMessageCommunicator(
      {.now = SteadyWallClock()}, std::move(MakeLocalTransports(1)[0]),
      &rendezvous_);
  std::unique_ptr<ShardedOptimizer> optimizer_;
  double rate_ = 0;
};

using Algorithm = std::tuple<v1::TrainingConfig::InnerAlgorithm,
                             v1::TrainingConfig::Optimizer>;

class AlgorithmTest : public testing::TestWithParam<Algorithm> {
 protected:
  static v1::TrainingConfig ParamConfig(int ranks) {
    v1::TrainingConfig config = Config(std::get<0>(GetParam()), ranks);
    config.set_optimizer(std::get<1>(GetParam()));
    return config;
  }
};

constexpr auto kAlgorithmName =
    [](const testing::TestParamInfo<Algorithm>& info) {
      return absl::StrCat(
          v1::TrainingConfig::InnerAlgorithm_Name(std::get<0>(info.param)), "_",
          v1::TrainingConfig::Optimizer_Name(std::get<1>(info.param)));
    };

const auto kOptimizers =
    testing::Values(v1::TrainingConfig::ADAMW, v1::TrainingConfig::MUON);

class OverlappedTrainerTest : public AlgorithmTest {};

INSTANTIATE_TEST_SUITE_P(
    , OverlappedTrainerTest,
    testing::Combine(testing::Values(v1::TrainingConfig::ACCO), kOptimizers),
    kAlgorithmName);

TEST_P(OverlappedTrainerTest, ComputesTheEquationsWithAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3}) {
    const Scenario scenario = {.config = ParamConfig(ranks),
                               .ranks = ranks,
                               .counts = SharesOf(ranks)};
    ASSERT_OK_AND_ASSIGN(const Outcome outcome, Train(scenario));
    EXPECT_EQ(outcome.parameters, Equations(scenario).Run());
  }
}

TEST_P(OverlappedTrainerTest, RanksThatMakeMoreMicroBatchesWeighMore) {
  const Scenario scenario = {
      .config = ParamConfig(3),
      .ranks = 3,
      .counts = {.first_half = {1, 7, 2}, .second_half = {4, 1, 3}}};
  ASSERT_OK_AND_ASSIGN(const Outcome outcome, Train(scenario));
  EXPECT_EQ(outcome.parameters, Equations(scenario).Run());
  for (const InnerStepResult& step : outcome.steps) {
    EXPECT_EQ(step.rank_micro_batches, std::vector<int64_t>({5, 8, 5}));
    EXPECT_EQ(step.tokens, 4 * 18);
  }
}

TEST_P(OverlappedTrainerTest, TheBitsDoNotDependOnLateRanks) {
  Scenario scenario = {
      .config = ParamConfig(2), .ranks = 2, .counts = SharesOf(2)};
  ASSERT_OK_AND_ASSIGN(const Outcome undisturbed, Train(scenario));
  for (int slow = 0; slow < 2; ++slow) {
    scenario.before = [slow](int rank, int64_t number) {
      if (rank == slow) absl::SleepFor(absl::Microseconds(number * 331 % 3000));
      return absl::OkStatus();
    };
    ASSERT_OK_AND_ASSIGN(const Outcome disturbed, Train(scenario));
    EXPECT_EQ(disturbed.parameters, undisturbed.parameters);
  }
}

TEST_P(OverlappedTrainerTest, KeepsGradientsWhenParametersChange) {
  const Scenario scenario = {.config = ParamConfig(2),
                             .ranks = 2,
                             .counts = SharesOf(2),
                             .change = [](int step, absl::Span<float> values) {
                               if (step != 3) return false;
                               for (float& value : values) value += 0.25f;
                               return true;
                             }};
  ASSERT_OK_AND_ASSIGN(const Outcome outcome, Train(scenario));
  EXPECT_EQ(outcome.parameters, Equations(scenario).Run());
}

// The state lacks accumulated gradients: the trainer computes them again, and
// skips none.
TEST_P(OverlappedTrainerTest, ARestartRecomputesAccumulatedGradients) {
  constexpr int kRanks = 2;
  std::vector<std::vector<int64_t>> made(kRanks);
  const Scenario scenario = {.config = ParamConfig(kRanks),
                             .ranks = kRanks,
                             .counts = SharesOf(kRanks),
                             .restart_after = 3,
                             .before = [&](int rank, int64_t number) {
                               made[rank].push_back(number);
                               return absl::OkStatus();
                             }};
  ASSERT_OK_AND_ASSIGN(const Outcome outcome, Train(scenario));
  int64_t committed = 0;
  for (int step = 0; step < scenario.restart_after; ++step) {
    committed += outcome.steps[step].rank_micro_batches[0];
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<int64_t> want;
    // The last one is computed, but not committed.
    for (int64_t i = 0; i < committed + 1; ++i) {
      want.push_back(kRanks * i + rank);
    }
    for (int64_t i = committed; want.size() < made[rank].size(); ++i) {
      want.push_back(kRanks * i + rank);
    }
    EXPECT_EQ(made[rank], want);
  }
}

TEST_P(OverlappedTrainerTest, ARankThatFailsEndsAllWithItsReason) {
  const Scenario scenario = {.config = ParamConfig(2),
                             .ranks = 2,
                             .counts = SharesOf(2),
                             .before = [](int rank, int64_t number) {
                               return rank == 1 && number > 6
                                          ? absl::DataLossError("bad sector")
                                          : absl::OkStatus();
                             }};
  EXPECT_THAT(Train(scenario), StatusIs(absl::StatusCode::kAborted,
                                        "rank 1 has given up: bad sector"));
}

class AuditTest : public AlgorithmTest {};

INSTANTIATE_TEST_SUITE_P(
    , AuditTest,
    testing::Combine(testing::Values(v1::TrainingConfig::ACCO,
                                     v1::TrainingConfig::DDP),
                     kOptimizers),
    kAlgorithmName);

TEST_P(AuditTest, ChangesNoBit) {
  Scenario scenario = {
      .config = ParamConfig(3), .ranks = 3, .counts = SharesOf(3)};
  ASSERT_OK_AND_ASSIGN(const Outcome plain, Train(scenario));
  scenario.config.set_audit_steps(2);
  ASSERT_OK_AND_ASSIGN(const Outcome audited, Train(scenario));
  EXPECT_EQ(audited.parameters, plain.parameters);
  for (size_t i = 0; i < plain.steps.size(); ++i) {
    EXPECT_EQ(audited.steps[i].loss, plain.steps[i].loss);
  }
}

TEST_P(AuditTest, NamesTheRankThatComputesWrongNumbers) {
  Scenario scenario = {.config = ParamConfig(3),
                       .ranks = 3,
                       .counts = SharesOf(3),
                       .corrupt_rank = 1};
  // Nothing else notices.
  EXPECT_OK(Train(scenario).status());
  scenario.config.set_audit_steps(4);
  EXPECT_THAT(Train(scenario), IsDataLoss("rank 1 computes wrong"));
}

// With beta1 = 0 and a huge epsilon AdamW is gradient descent. With a batch
// that never changes, each half has one gradient:
//   theta' = theta - eta / 2 (grad(theta) + grad(theta~))
//   theta~ = theta - eta grad(theta~ of the step before)
TEST(AccoTest, WithPlainGradientDescentFollowsTheClosedForm) {
  constexpr double kEta = 0.1;
  constexpr double kEpsilon = 1e6;
  v1::TrainingConfig config = Config(v1::TrainingConfig::ACCO, 1);
  config.set_batch_size(2);
  config.set_beta1(0);
  config.set_epsilon(kEpsilon);
  config.set_learning_rate(kEta * kEpsilon);
  config.set_weight_decay(0);
  config.set_warmup_steps(0);
  config.set_schedule(v1::TrainingConfig::CONSTANT);

  // Draws each parameter to 1.
  class OneSpring : public GradientSource {
   public:
    explicit OneSpring(int64_t size) : size_(size) {}
    absl::Status Accumulate(int64_t, const float* parameters,
                            float* gradients) override {
      for (int64_t i = 0; i < size_; ++i) gradients[i] += parameters[i] - 1;
      return absl::OkStatus();
    }
    absl::StatusOr<LossSum> TakeLoss() override { return LossSum(); }
    uint64_t tokens() const override { return 1; }

   private:
    const int64_t size_;
  };

  const ModelLayout layout = MakeModelLayout(SmallModel());
  LocalRendezvous rendezvous;
  const auto communicator = MakeMessageCommunicator(
      {.now = SteadyWallClock()}, std::move(MakeLocalTransports(1)[0]),
      &rendezvous);
  OneSpring source(layout.size);
  const std::unique_ptr<Ops> ops = MakeCpuOps(1);
  ASSERT_OK_AND_ASSIGN(
      const auto trainer,
      MakeRankTrainer({.training = config,
                       .layout = &layout,
                       .communicator = communicator.get(),
                       .gradients = &source,
                       .ops = ops.get(),
                       .communication_ops = ops.get(),
                       .accumulate = [](int64_t count, int64_t share,
                                        bool) { return count < share; },
                       .now = SteadyWallClock()}));
  double theta = 3;
  double pending = theta - 1;
  std::fill(trainer->parameters().begin(), trainer->parameters().end(),
            static_cast<float>(theta));
  trainer->ParametersWritten();
  for (int step = 1; step <= 20; ++step) {
    ASSERT_OK(trainer->Step(step));
    const double estimate = theta - kEta * pending;
    theta -= kEta / 2 * ((theta - 1) + pending);
    pending = estimate - 1;
    for (const float value : trainer->parameters()) {
      ASSERT_NEAR(value, theta, 1e-4) << "step " << step;
    }
  }
}

TEST(DdpTest, RanksTogetherAreOneRankWithAllMicroBatches) {
  v1::TrainingConfig config = Config(v1::TrainingConfig::DDP, 4);
  // The clip takes effect in every step.
  config.set_gradient_clip(0.5);
  ASSERT_OK_AND_ASSIGN(const Outcome one,
                       Train({.config = config, .ranks = 1}));
  for (const int ranks : {2, 4}) {
    ASSERT_OK_AND_ASSIGN(const Outcome several,
                         Train({.config = config, .ranks = ranks}));
    for (size_t step = 0; step < one.steps.size(); ++step) {
      EXPECT_GT(one.steps[step].gradient_norm, 0.5);
      EXPECT_NEAR(several.steps[step].gradient_norm,
                  one.steps[step].gradient_norm, 1e-5);
      EXPECT_NEAR(several.steps[step].loss, one.steps[step].loss, 1e-5);
      EXPECT_EQ(several.steps[step].tokens, one.steps[step].tokens);
      for (size_t i = 0; i < one.parameters[step].size(); ++i) {
        ASSERT_NEAR(several.parameters[step][i], one.parameters[step][i], 2e-6);
      }
    }
  }
}

TEST(RankTrainerTest, ABatchThatCannotBeDividedIsRefused) {
  v1::TrainingConfig config = Config(v1::TrainingConfig::DDP, 2);
  config.set_batch_size(7);
  EXPECT_THAT(Train({.config = config, .ranks = 2}),
              IsInvalidArgument("multiple of ranks * micro_batch_size = 2"));
}

// With more, the coordinator would refuse the island.
TEST(RankTrainerTest, ARankThatWaitsLongMakesNoMoreThanCount) {
  const Scenario scenario = {.config = Config(v1::TrainingConfig::ACCO, 2),
                             .ranks = 2,
                             .before = [](int rank, int64_t) {
                               if (rank == 1) {
                                 absl::SleepFor(absl::Milliseconds(20));
                               }
                               return absl::OkStatus();
                             }};
  ASSERT_OK_AND_ASSIGN(const Outcome outcome, Train(scenario));
  int64_t most = 0;
  for (const InnerStepResult& step : outcome.steps) {
    most = std::max(most, step.rank_micro_batches[0]);
  }
  EXPECT_EQ(most, kMostBatchesPerStep * kShare);
}

TEST(RankTrainerTest, EveryRankReportsDivergence) {
  for (const auto algorithm :
       {v1::TrainingConfig::DDP, v1::TrainingConfig::ACCO}) {
    const Scenario scenario = {
        .config = Config(algorithm, 2),
        .ranks = 2,
        .counts = SharesOf(2),
        .change = [](int step, absl::Span<float> parameters) {
          if (step == 2) parameters[5] = INFINITY;
          return step == 2;
        }};
    EXPECT_THAT(Train(scenario), IsOutOfRange("diverged"));
  }
}

class MemoryTest : public AlgorithmTest {
 protected:
  MemoryTest() { model_.set_vocab_size(40'000); }

  // Returns the bytes allocated, per parameter and rank.
  double BytesPerParameter(int ranks, int steps) {
    const int64_t begin = large_allocations;
    EXPECT_OK(Train({.config = ParamConfig(ranks),
                     .ranks = ranks,
                     .counts = SharesOf(ranks),
                     .steps = steps,
                     .model = model_}));
    return static_cast<double>(large_allocations - begin) / ranks /
           static_cast<double>(MakeModelLayout(model_).size);
  }

  v1::ModelConfig model_ = SmallModel();
};

INSTANTIATE_TEST_SUITE_P(
    , MemoryTest,
    testing::Combine(testing::Values(v1::TrainingConfig::DDP,
                                     v1::TrainingConfig::ACCO),
                     kOptimizers),
    kAlgorithmName);

TEST_P(MemoryTest, MatchesRankTrainerBytes) {
  const ModelLayout layout = MakeModelLayout(model_);
  for (const int ranks : {1, 4}) {
    const auto foretold = static_cast<double>(
        RankTrainerBytes(ParamConfig(ranks), layout, ranks));
    // Each rank of the test has its own vector of initial parameters.
    EXPECT_NEAR(BytesPerParameter(ranks, 0) - 4,
                foretold / static_cast<double>(layout.size), 0.05);
  }
}

TEST_P(MemoryTest, StepsTakeNoMore) {
  // The test itself keeps the parameters after each step.
  EXPECT_NEAR(BytesPerParameter(4, 5) - BytesPerParameter(4, 2), 3 * 4, 0.05);
}

// Each matrix has one moment less, and there is scratch space to orthogonalize
// one.
TEST(RankTrainerBytesTest, MuonHasMomentumOnlyInMatrices) {
  const ModelLayout layout = MakeModelLayout(SmallModel());
  v1::TrainingConfig config = Config(v1::TrainingConfig::DDP, 1);
  const int64_t adamw = RankTrainerBytes(config, layout, 1);
  config.set_optimizer(v1::TrainingConfig::MUON);
  int64_t matrices = 0;
  for (const TensorSpec& tensor : layout.tensors) {
    if (IsMuonMatrix(config, tensor)) matrices += tensor.size;
  }
  EXPECT_GT(matrices, 0);
  EXPECT_EQ(adamw - RankTrainerBytes(config, layout, 1),
            4 * (matrices - MuonScratchSize(config, layout.tensors)));
}

TEST(DeviceRanksTest, TrainersWorkAlikeOnTheCollectivesOfADevice) {
  for (const auto algorithm :
       {v1::TrainingConfig::DDP, v1::TrainingConfig::ACCO}) {
    for (const int ranks : {1, 2, 3}) {
      Scenario scenario = {.config = Config(algorithm, ranks),
                           .ranks = ranks,
                           .counts = SharesOf(ranks)};
      ASSERT_OK_AND_ASSIGN(const Outcome messages, Train(scenario));
      scenario.device = true;
      ASSERT_OK_AND_ASSIGN(const Outcome device, Train(scenario));
      // Both add in order of rank.
      EXPECT_EQ(device.parameters, messages.parameters);
    }
  }
}

// Operations take memory in the first step.
TEST(RankTrainerTest, NothingIsComputedWhileTheFirstStepCommunicates) {
  const ModelLayout layout = MakeModelLayout(SmallModel());
  LocalRendezvous rendezvous;
  const auto communicator = MakeMessageCommunicator(
      {.now = SteadyWallClock()}, std::move(MakeLocalTransports(1)[0]),
      &rendezvous);
  Springs source(layout.size, [](int64_t) { return absl::OkStatus(); });
  const std::unique_ptr<Ops> ops = MakeCpuOps(1);
  const std::unique_ptr<Ops> communication_ops = MakeCpuOps(1);
  bool overlaps = false;
  ASSERT_OK_AND_ASSIGN(
      const auto trainer,
      MakeRankTrainer({.training = Config(v1::TrainingConfig::ACCO, 1),
                       .layout = &layout,
                       .communicator = communicator.get(),
                       .gradients = &source,
                       .ops = ops.get(),
                       .communication_ops = communication_ops.get(),
                       .accumulate =
                           [&](int64_t count, int64_t share, bool busy) {
                             overlaps = overlaps || busy;
                             return count < share;
                           },
                       .now = SteadyWallClock()}));
  trainer->ParametersWritten();
  ASSERT_OK(trainer->Step(1));
  EXPECT_FALSE(overlaps);
}

}  // namespace
}  // namespace causeway
