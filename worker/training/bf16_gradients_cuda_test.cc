// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests trainers that sum gradients in bf16 on a device. Skipped where there is
// none.
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "common/testing/cuda_device.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/run_config.pb.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"
#include "worker/model/cuda/ops_cuda.h"
#include "worker/model/ops_cpu.h"
#include "worker/training/gradient_source.h"
#include "worker/training/rank_trainer.h"
#include "worker/training/testing/train_ranks.h"

namespace causeway {
namespace {

constexpr int kSteps = 5;

// Gradients whose sums in a step are exact in bf16. They are added on the host.
class Sixteenths : public GradientSource {
 public:
  Sixteenths(int64_t size, Ops* ops) : size_(size), ops_(ops) {}

  absl::Status Accumulate(int64_t number, const float* /*parameters*/,
                          GradientSum gradients) override {
    was_bf16_ = gradients.is_bf16();
    if (was_bf16_) {
      Add<uint16_t>(number, gradients.data());
    } else {
      Add<uint32_t>(number, gradients.data());
    }
    return ops_->Synchronize();
  }
  absl::StatusOr<double> TakeLoss() override { return 1.0; }
  uint64_t tokens() const override { return 1; }
  bool was_bf16() const { return was_bf16_; }

 private:
  // `Bits` are the upper bits of an fp32.
  template <typename Bits>
  void Add(int64_t number, void* device_sums) {
    constexpr int kMissing = 32 - 8 * sizeof(Bits);
    std::vector<Bits> sums(static_cast<size_t>(size_));
    const size_t bytes = sums.size() * sizeof(Bits);
    ops_->CopyToHost(device_sums, bytes, sums.data());
    for (int64_t i = 0; i < size_; ++i) {
      const int64_t sixteenths = (number * 7 + i * 3) % 32 - 16;
      const float sum = std::bit_cast<float>(uint32_t{sums[i]} << kMissing) +
                        0.0625f * static_cast<float>(sixteenths);
      EXPECT_EQ(std::bit_cast<uint32_t>(sum) & 0xffff, 0u);
      sums[i] = static_cast<Bits>(std::bit_cast<uint32_t>(sum) >> kMissing);
    }
    ops_->CopyToDevice(sums.data(), bytes, device_sums);
  }

  const int64_t size_;
  Ops* const ops_;
  bool was_bf16_ = false;
};

struct Trained {
  std::vector<float> parameters;
  bool in_bf16 = false;
};

// Makes Ops, of which a rank's two threads need one each.
using NewOps = std::function<absl::StatusOr<std::unique_ptr<Ops>>()>;

absl::StatusOr<Trained> TrainOn(const NewOps& new_ops,
                                v1::TrainingConfig::InnerAlgorithm algorithm,
                                bool bf16_gradients) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Ops> ops, new_ops());
  ASSIGN_OR_RETURN(const std::unique_ptr<Ops> communication_ops, new_ops());
  const ModelLayout layout = MakeModelLayout(SmallModel());
  LocalRendezvous rendezvous;
  const auto communicator = MakeMessageCommunicator(
      {.now = SteadyWallClock()}, std::move(MakeLocalTransports(1)[0]),
      &rendezvous);
  Sixteenths source(layout.size, ops.get());
  ASSIGN_OR_RETURN(
      const auto trainer,
      MakeRankTrainer({.training = Config(algorithm, 1),
                       .layout = &layout,
                       .communicator = communicator.get(),
                       .gradients = &source,
                       .ops = ops.get(),
                       .communication_ops = communication_ops.get(),
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
  Trained trained = {.parameters = std::vector<float>(start.size()),
                     .in_bf16 = source.was_bf16()};
  ops->CopyToHost(trainer->parameters().data(), start.size() * sizeof(float),
                  trained.parameters.data());
  RETURN_IF_ERROR(ops->Synchronize());
  return trained;
}

class Bf16GradientsTest
    : public testing::TestWithParam<v1::TrainingConfig::InnerAlgorithm> {};

// All sums are exact, so only the path of the sums differs.
TEST_P(Bf16GradientsTest, SumsArriveAtTheOptimizer) {
  SKIP_WITHOUT_CUDA_DEVICE();
  const NewOps new_ops = [] { return MakeCudaOps(0); };
  ASSERT_OK_AND_ASSIGN(const Trained fp32, TrainOn(new_ops, GetParam(), false));
  ASSERT_OK_AND_ASSIGN(const Trained bf16, TrainOn(new_ops, GetParam(), true));
  EXPECT_FALSE(fp32.in_bf16);
  EXPECT_TRUE(bf16.in_bf16);
  EXPECT_EQ(bf16.parameters, fp32.parameters);
  EXPECT_NE(bf16.parameters,
            InitialParameters(MakeModelLayout(SmallModel()), 1));
}

TEST_P(Bf16GradientsTest, SumsAreFp32WhereActivationsAre) {
  ASSERT_OK_AND_ASSIGN(const Trained trained,
                       TrainOn([] { return MakeCpuOps(1); }, GetParam(), true));
  EXPECT_FALSE(trained.in_bf16);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Bf16GradientsTest,
                         testing::Values(v1::TrainingConfig::DDP,
                                         v1::TrainingConfig::ACCO),
                         [](const auto& info) {
                           return v1::TrainingConfig::InnerAlgorithm_Name(
                               info.param);
                         });

}  // namespace
}  // namespace causeway
