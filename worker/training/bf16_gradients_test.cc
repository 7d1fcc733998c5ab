// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Trainers whose gradients are summed in bf16, on an emulated device.
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/model_layout.h"
#include "common/status_macros.h"
#include "common/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/run_config.pb.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"
#include "worker/model/cuda/ops_emulated.h"
#include "worker/model/ops_cpu.h"
#include "worker/training/gradient_source.h"
#include "worker/training/rank_trainer.h"
#include "worker/training/train_ranks.h"

namespace causeway {
namespace {

constexpr int kSteps = 5;

float FromBits(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// Gradients of which a bf16 holds any sum that a step makes.
class Sixteenths : public GradientSource {
 public:
  explicit Sixteenths(int64_t size) : size_(size) {}

  absl::Status Accumulate(int64_t number, const float* /*parameters*/,
                          GradientSum gradients) override {
    for (int64_t i = 0; i < size_; ++i) {
      const int64_t sixteenths = (number * 7 + i * 3) % 32 - 16;
      const float gradient = 0.0625f * static_cast<float>(sixteenths);
      if (gradients.is_bf16()) {
        uint16_t& sum = static_cast<uint16_t*>(gradients.data())[i];
        const auto bits = std::bit_cast<uint32_t>(FromBits(sum) + gradient);
        EXPECT_EQ(bits & 0xffff, 0u);
        sum = static_cast<uint16_t>(bits >> 16);
      } else {
        gradients.fp32()[i] += gradient;
      }
    }
    was_bf16_ = gradients.is_bf16();
    return absl::OkStatus();
  }
  absl::StatusOr<double> TakeLoss() override { return 1.0; }
  uint64_t tokens() const override { return 1; }
  bool was_bf16() const { return was_bf16_; }

 private:
  const int64_t size_;
  bool was_bf16_ = false;
};

struct Trained {
  std::vector<float> parameters;
  bool in_bf16 = false;
};

absl::StatusOr<Trained> TrainOn(Ops* ops,
                                v1::TrainingConfig::InnerAlgorithm algorithm,
                                bool bf16_gradients) {
  const ModelLayout layout = MakeModelLayout(SmallModel());
  LocalRendezvous rendezvous;
  const auto communicator = MakeMessageCommunicator(
      {.now = SteadyWallClock()}, std::move(MakeLocalTransports(1)[0]),
      &rendezvous);
  Sixteenths source(layout.size);
  ASSIGN_OR_RETURN(const auto trainer,
                   MakeRankTrainer({.training = Config(algorithm, 1),
                                    .layout = &layout,
                                    .communicator = communicator.get(),
                                    .gradients = &source,
                                    .ops = ops,
                                    .communication_ops = ops,
                                    .accumulate = AccumulateShare,
                                    .bf16_gradients = bf16_gradients,
                                    .now = SteadyWallClock()}));
  const std::vector<float> start = InitialParameters(layout, 1);
  ops->CopyToDevice(start.data(), start.size() * sizeof(float),
                    trainer->parameters().data());
  trainer->ParametersWritten();
  for (int step = 1; step <= kSteps; ++step) {
    RETURN_IF_ERROR(trainer->Step(step).status());
  }
  return Trained{{trainer->parameters().begin(), trainer->parameters().end()},
                 source.was_bf16()};
}

class Bf16GradientsTest
    : public testing::TestWithParam<v1::TrainingConfig::InnerAlgorithm> {};

// Every sum can be held, so that nothing but the way of the sums is another.
TEST_P(Bf16GradientsTest, SumsArriveAtTheOptimizer) {
  const std::unique_ptr<Ops> ops = MakeEmulatedOps();
  ASSERT_OK_AND_ASSIGN(const Trained fp32,
                       TrainOn(ops.get(), GetParam(), false));
  ASSERT_OK_AND_ASSIGN(const Trained bf16,
                       TrainOn(ops.get(), GetParam(), true));
  EXPECT_FALSE(fp32.in_bf16);
  EXPECT_TRUE(bf16.in_bf16);
  EXPECT_EQ(bf16.parameters, fp32.parameters);
  EXPECT_NE(bf16.parameters,
            InitialParameters(MakeModelLayout(SmallModel()), 1));
}

TEST_P(Bf16GradientsTest, SumsAreFp32WhereActivationsAre) {
  const std::unique_ptr<Ops> ops = MakeCpuOps(1);
  ASSERT_OK_AND_ASSIGN(const Trained trained,
                       TrainOn(ops.get(), GetParam(), true));
  EXPECT_FALSE(trained.in_bf16);
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, Bf16GradientsTest,
    testing::Values(v1::TrainingConfig::DDP, v1::TrainingConfig::ACCO,
                    v1::TrainingConfig::DPU, v1::TrainingConfig::WP),
    [](const auto& info) {
      return v1::TrainingConfig::InnerAlgorithm_Name(info.param);
    });

// What a model of many values needs beside its parameters.
TEST(Bf16GradientsMemoryTest, TakesHalfOfThemWithOverlap) {
  constexpr int64_t kValues = 1 << 20;
  for (const auto algorithm :
       {v1::TrainingConfig::ACCO, v1::TrainingConfig::DPU,
        v1::TrainingConfig::WP}) {
    const v1::TrainingConfig config = Config(algorithm, 1);
    EXPECT_EQ(RankTrainerBytes(config, kValues, 1) -
                  RankTrainerBytes(config, kValues, 1, true),
              2 * kValues);
  }
  // What is reduced is a vector of its own then.
  const v1::TrainingConfig config = Config(v1::TrainingConfig::DDP, 1);
  EXPECT_EQ(RankTrainerBytes(config, kValues, 1, true) -
                RankTrainerBytes(config, kValues, 1),
            2 * kValues);
}

}  // namespace
}  // namespace causeway
