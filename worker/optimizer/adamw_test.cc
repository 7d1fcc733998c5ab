// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/adamw.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/model_layout.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/run_config.pb.h"
#include "worker/model/ops.h"
#include "worker/model/ops_cpu.h"
#include "worker/model/transformer.h"

namespace causeway {
namespace {

using testing::HasSubstr;

// The model of tests/reference/make_adamw_golden.py.
v1::ModelConfig GoldenModel() {
  v1::ModelConfig config;
  config.set_layers(1);
  config.set_hidden_size(6);
  config.set_intermediate_size(5);
  config.set_heads(3);
  config.set_kv_heads(3);
  config.set_vocab_size(7);
  config.set_sequence_length(4);
  config.set_init_stddev(0.5);
  return config;
}

std::vector<float> GoldenGradients(const ModelLayout& layout, int update) {
  std::vector<float> gradients =
      InitialParameters(layout, static_cast<uint64_t>(100 + update));
  for (float& value : gradients) value *= update % 2 == 1 ? 4.0f : 1.0f;
  return gradients;
}

class AdamWTest : public testing::Test {
 protected:
  std::unique_ptr<AdamW> Create(int64_t begin, int64_t end) {
    auto optimizer =
        AdamW::Create(v1::TrainingConfig(), layout_, begin, end, ops_.get());
    EXPECT_OK(optimizer.status());
    return *std::move(optimizer);
  }
  std::unique_ptr<AdamW> Create() { return Create(0, layout_.size); }

  const std::unique_ptr<Ops> ops_ = MakeCpuOps(2);
  const ModelLayout layout_ = MakeModelLayout(GoldenModel());
  std::vector<float> parameters_ = InitialParameters(layout_, 1);
};

TEST_F(AdamWTest, UpdatesAreThoseOfPyTorch) {
  std::ifstream file("tests/reference/adamw_golden.txt");
  const std::unique_ptr<AdamW> optimizer = Create();
  for (int update = 1; update <= 5; ++update) {
    std::string word;
    int number = 0;
    double want_norm = 0;
    file >> word >> number >> word >> want_norm;
    ASSERT_EQ(number, update);
    const std::vector<float> gradients = GoldenGradients(layout_, update);
    const double norm = std::sqrt(optimizer->SquaredNorm(gradients.data()));
    EXPECT_NEAR(norm, want_norm, 1e-6 * want_norm);
    ASSERT_OK(optimizer->Step(
        {.learning_rate = 0.01 * update, .gradient_scale = ClipScale(norm, 20)},
        gradients.data(), parameters_.data()));
    for (const float parameter : parameters_) {
      double want = 0;
      ASSERT_TRUE(file >> want);
      ASSERT_NEAR(parameter, want, 1e-6);
    }
  }
  EXPECT_EQ(optimizer->updates(), 5);
}

TEST_F(AdamWTest, ShardsTogetherMakeTheSameBitsAsTheWhole) {
  const std::unique_ptr<AdamW> whole = Create();
  std::vector<float> sharded = parameters_;
  // The boundaries are inside a matrix and inside a norm gain.
  const int64_t cuts[] = {0, 19, 45, 46, layout_.size};
  std::vector<std::unique_ptr<AdamW>> shards;
  for (int i = 0; i < 4; ++i) shards.push_back(Create(cuts[i], cuts[i + 1]));
  for (int update = 1; update <= 3; ++update) {
    const std::vector<float> gradients = GoldenGradients(layout_, update);
    const AdamW::StepOptions options = {.learning_rate = 0.1,
                                        .gradient_scale = 0.5};
    double squares = 0;
    for (int i = 0; i < 4; ++i) {
      squares += shards[i]->SquaredNorm(gradients.data() + cuts[i]);
      ASSERT_OK(shards[i]->Step(options, gradients.data() + cuts[i],
                                sharded.data() + cuts[i]));
    }
    EXPECT_NEAR(squares, whole->SquaredNorm(gradients.data()), 1e-9 * squares);
    ASSERT_OK(whole->Step(options, gradients.data(), parameters_.data()));
    EXPECT_EQ(sharded, parameters_);
  }
}

TEST_F(AdamWTest, AnEstimateIsTheStepButCommitsNothing) {
  const std::unique_ptr<AdamW> optimizer = Create();
  const AdamW::StepOptions options = {.learning_rate = 0.1};
  for (int update = 1; update <= 3; ++update) {
    const std::vector<float> before = parameters_;
    const std::vector<float> gradients = GoldenGradients(layout_, update);
    // ACCO estimates from half a batch.
    const std::vector<float> half = GoldenGradients(layout_, 10 + update);
    std::vector<float> estimate(parameters_.size());
    ASSERT_OK(optimizer->Estimate(options, half.data(), parameters_.data(),
                                  estimate.data()));
    EXPECT_NE(estimate, before);
    ASSERT_OK(optimizer->Estimate(options, gradients.data(), parameters_.data(),
                                  estimate.data()));
    EXPECT_EQ(parameters_, before);
    EXPECT_EQ(optimizer->updates(), update - 1);
    ASSERT_OK(optimizer->Step(options, gradients.data(), parameters_.data()));
    EXPECT_EQ(estimate, parameters_);
  }
}

TEST_F(AdamWTest, RestoredMomentsContinueBitForBit) {
  const std::unique_ptr<AdamW> optimizer = Create();
  const AdamW::StepOptions options = {.learning_rate = 0.1};
  const auto step = [&](AdamW& with, int update, std::vector<float>& to) {
    ASSERT_OK(
        with.Step(options, GoldenGradients(layout_, update).data(), to.data()));
  };
  step(*optimizer, 1, parameters_);
  step(*optimizer, 2, parameters_);
  const std::unique_ptr<AdamW> restored = Create();
  restored->Restore(optimizer->updates(), optimizer->first_moment(),
                    optimizer->second_moment());
  std::vector<float> copy = parameters_;
  step(*optimizer, 3, parameters_);
  step(*restored, 3, copy);
  EXPECT_EQ(copy, parameters_);
}

TEST_F(AdamWTest, ZeroGradientsOnlyDecayMatrices) {
  const std::unique_ptr<AdamW> optimizer = Create();
  const std::vector<float> before = parameters_;
  const std::vector<float> gradients(parameters_.size());
  ASSERT_OK(optimizer->Step({.learning_rate = 0.5}, gradients.data(),
                            parameters_.data()));
  for (const TensorSpec& tensor : layout_.tensors) {
    // The default weight decay is 0.1.
    const float decay = tensor.shape.size() > 1 ? 0.95f : 1.0f;
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      EXPECT_FLOAT_EQ(parameters_[i], decay * before[i]) << tensor.name;
    }
  }
}

TEST_F(AdamWTest, AGradientThatIsNotFiniteIsRefusedAndNothingChanges) {
  const std::unique_ptr<AdamW> optimizer = Create();
  const std::vector<float> before = parameters_;
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> gradients = GoldenGradients(layout_, 1);
    gradients[3] = bad;
    const double norm = std::sqrt(optimizer->SquaredNorm(gradients.data()));
    EXPECT_FALSE(std::isfinite(norm));
    EXPECT_THAT(optimizer->Step({.learning_rate = 0.1,
                                 .gradient_scale = ClipScale(norm, 1)},
                                gradients.data(), parameters_.data()),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("both must be finite")));
  }
  const std::vector<float> gradients = GoldenGradients(layout_, 1);
  EXPECT_THAT(
      optimizer->Step({.learning_rate = std::numeric_limits<double>::infinity(),
                       .gradient_scale = 1},
                      gradients.data(), parameters_.data()),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("update 1 has learning rate inf")));
  EXPECT_EQ(parameters_, before);
  EXPECT_EQ(optimizer->updates(), 0);
}

TEST(ClipScaleTest, OnlyLargeNormsAreScaled) {
  EXPECT_EQ(ClipScale(0, 1), 1);
  EXPECT_EQ(ClipScale(0.5, 1), 1);
  EXPECT_NEAR(ClipScale(4, 1), 0.25, 1e-6);
  EXPECT_EQ(ClipScale(1e9, 0), 1) << "0 turns clipping off";
  for (const double max_norm : {0, 1}) {
    EXPECT_TRUE(std::isnan(ClipScale(NAN, max_norm)));
    EXPECT_TRUE(std::isnan(ClipScale(HUGE_VAL, max_norm)));
  }
}

TEST(TrainingTest, OneBatchIsLearntByHeart) {
  v1::ModelConfig config = GoldenModel();
  config.set_hidden_size(24);
  config.set_intermediate_size(48);
  config.set_vocab_size(32);
  config.set_sequence_length(16);
  config.set_init_stddev(0.1);
  const std::unique_ptr<Ops> ops = MakeCpuOps(2);
  ASSERT_OK_AND_ASSIGN(
      auto model, Transformer::Create(config, {.micro_batch = 2}, ops.get()));
  const ModelLayout& layout = model->layout();
  ASSERT_OK_AND_ASSIGN(
      auto optimizer,
      AdamW::Create(v1::TrainingConfig(), layout, 0, layout.size, ops.get()));
  std::vector<float> parameters = InitialParameters(layout, 1);
  std::vector<float> gradients(parameters.size());
  // Each token occurs once, so the model can learn exactly what follows it.
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  for (int i = 0; i < 32; ++i) {
    tokens.push_back(i);
    targets.push_back(i * 11 % 32);
  }
  double loss = 0;
  for (int step = 0; step < 100; ++step) {
    std::fill(gradients.begin(), gradients.end(), 0.0f);
    ASSERT_OK_AND_ASSIGN(
        loss, model->ForwardBackward(parameters.data(), tokens, targets, 1,
                                     gradients.data()));
    if (step == 0) {
      EXPECT_NEAR(loss, std::log(32.0), 0.5);
    }
    const double norm = std::sqrt(optimizer->SquaredNorm(gradients.data()));
    ASSERT_OK(optimizer->Step(
        {.learning_rate = 0.02, .gradient_scale = ClipScale(norm, 1)},
        gradients.data(), parameters.data()));
  }
  EXPECT_LT(loss, 0.01);
}

}  // namespace
}  // namespace causeway
