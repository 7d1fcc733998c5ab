// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares with the coordinator's outer step: wherever the island can know it,
// the expected update must be the real one.
#include "outer_optimizer/eager_update.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/outer_step.h"
#include "quantization/codec.h"

namespace causeway {
namespace {

using Outer = v1::OuterOptimizerConfig;
using testing::Each;
using testing::FloatNear;
using testing::Pointwise;

constexpr size_t kSize = 7;
// The fragment's two pieces lie in reverse order in the model, which has one
// more value.
constexpr FragmentMap::Segment kSegments[] = {
    {.model_offset = 4, .fragment_offset = 0, .size = 4},
    {.model_offset = 0, .fragment_offset = 4, .size = 3}};
constexpr size_t kModelSize = 9;

std::vector<float> Wave(size_t size, double phase) {
  std::vector<float> values;
  for (size_t i = 0; i < size; ++i) {
    values.push_back(static_cast<float>(std::sin(phase + double(i))));
  }
  return values;
}

std::vector<float> Sum(const std::vector<float>& a, const std::vector<float>& b,
                       float scale = 1) {
  std::vector<float> sum = a;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += scale * b[i];
  return sum;
}

// The fragment's part of a model, and a model with that part.
std::vector<float> Gathered(const std::vector<float>& model) {
  std::vector<float> values(kSize);
  for (const FragmentMap::Segment& s : kSegments) {
    for (size_t i = 0; i < s.size; ++i) {
      values[s.fragment_offset + i] = model[s.model_offset + i];
    }
  }
  return values;
}
std::vector<float> Scattered(const std::vector<float>& values) {
  std::vector<float> model(kModelSize, 123);
  for (const FragmentMap::Segment& s : kSegments) {
    for (size_t i = 0; i < s.size; ++i) {
      model[s.model_offset + i] = values[s.fragment_offset + i];
    }
  }
  return model;
}

// Plays the coordinator of one fragment.
class EagerUpdateTest : public testing::TestWithParam<Outer::Algorithm> {
 protected:
  EagerUpdateTest() {
    outer_.set_algorithm(GetParam());
    outer_.set_learning_rate(0.6);
    outer_.set_momentum(0.8);
    v1::RunConfig config;
    *config.mutable_outer_optimizer() = outer_;
    config.mutable_synchronization()->set_downlink_format(v1::FP32);
    options_ = MakeOuterStepOptions(config, v1::Fragment());
    state_ = InitialFragmentState(options_, Wave(kSize, 0.5));
  }

  // Merges pseudo-gradients with these shares; returns the update.
  std::vector<float> Merge(const std::vector<std::vector<float>>& values,
                           const std::vector<float>& shares) {
    const CodecSpec spec{.format = v1::FP32};
    std::vector<std::string> encoded;
    for (const std::vector<float>& value : values) {
      encoded.push_back(Encode(spec, value).value());
    }
    std::vector<MergeInput> inputs;
    for (size_t i = 0; i < values.size(); ++i) {
      inputs.push_back({spec, encoded[i], shares[i]});
    }
    OuterStepResult result = RunOuterStep(options_, state_, inputs).value();
    state_ = std::move(result.state);
    std::vector<float> update(kSize);
    EXPECT_TRUE(Decode(spec, result.update, absl::MakeSpan(update)).ok());
    return update;
  }

  Outer outer_;
  OuterStepOptions options_;
  FragmentState state_;
};

TEST_P(EagerUpdateTest, OneIslandExpectsExactlyWhatComes) {
  EagerUpdate eager(outer_, 0, kSize);
  for (int round = 0; round < 4; ++round) {
    const std::vector<float> own = Wave(kSize, round);
    const std::vector<float> anchor = state_.theta;
    std::vector<float> model = Scattered(Sum(anchor, own, -1));
    eager.Begin(anchor, kSegments, absl::MakeSpan(model));
    const std::vector<float> update = Merge({own}, {1});
    EXPECT_THAT(Gathered(model), Pointwise(FloatNear(1e-5f), state_.theta));
    eager.Correct(update, 1, kSegments, absl::MakeSpan(model));
    eager.Observe(update, 1);
  }
}

TEST_P(EagerUpdateTest, OthersWhoDoNotChangeAreExpectedFromTheSecondRoundOn) {
  EagerUpdate eager(outer_, 0, kSize);
  const std::vector<float> other = Wave(kSize, 3);
  for (int round = 0; round < 4; ++round) {
    const std::vector<float> own = Wave(kSize, 10 + round);
    const std::vector<float> anchor = state_.theta;
    std::vector<float> model = Scattered(Sum(anchor, own, -1));
    eager.Begin(anchor, kSegments, absl::MakeSpan(model));
    const std::vector<float> update = Merge({own, other}, {0.25, 0.75});
    const auto near_theta = Pointwise(FloatNear(1e-5f), state_.theta);
    if (round == 0) {
      EXPECT_THAT(Gathered(model), testing::Not(near_theta));
    } else {
      EXPECT_THAT(Gathered(model), near_theta);
    }
    eager.Correct(update, 0.25, kSegments, absl::MakeSpan(model));
    eager.Observe(update, 0.25);
    EXPECT_THAT(Gathered(model), near_theta);
    EXPECT_EQ(model[3], 123);
    EXPECT_EQ(model[8], 123);
  }
}

TEST_P(EagerUpdateTest, WhatWasTrainedMeanwhileStays) {
  for (const float mixing : {0.0f, 0.5f, 1.0f}) {
    EagerUpdate eager(outer_, mixing, kSize);
    const std::vector<float> own = Wave(kSize, 1);
    const std::vector<float> trained = Wave(kSize, 2);
    const std::vector<float> anchor = state_.theta;
    const std::vector<float> sent = Sum(anchor, own, -1);
    std::vector<float> model = Scattered(sent);
    eager.Begin(anchor, kSegments, absl::MakeSpan(model));
    model = Scattered(Sum(Gathered(model), trained));
    const std::vector<float> update = Merge({own, trained}, {0.5, 0.5});
    eager.Correct(update, 0.5, kSegments, absl::MakeSpan(model));
    std::vector<float> expected = trained;
    for (size_t i = 0; i < kSize; ++i) {
      expected[i] += mixing * sent[i] + (1 - mixing) * state_.theta[i];
    }
    EXPECT_THAT(Gathered(model), Pointwise(FloatNear(1e-5f), expected));
  }
}

TEST_P(EagerUpdateTest, AMergeWithoutTheIslandIsARebase) {
  for (const float mixing : {0.0f, 0.5f, 1.0f}) {
    EagerUpdate eager(outer_, mixing, kSize);
    const std::vector<float> anchor = state_.theta;
    const std::vector<float> sent = Sum(anchor, Wave(kSize, 1), -1);
    std::vector<float> model = Scattered(sent);
    eager.Begin(anchor, kSegments, absl::MakeSpan(model));
    const std::vector<float> update = Merge({Wave(kSize, 2)}, {1});
    eager.Correct(update, 0, kSegments, absl::MakeSpan(model));
    EXPECT_THAT(Gathered(model),
                Pointwise(FloatNear(1e-5f), Sum(sent, update)));
    EXPECT_FALSE(eager.under_way());
  }
}

// A merge without the island consists of the others' part only, and the others
// have the rest of the weight in the next merge.
TEST_P(EagerUpdateTest, AfterAMergeWithoutTheIslandTheOthersHaveTheirShare) {
  EagerUpdate eager(outer_, 0, kSize);
  const std::vector<float> other = Wave(kSize, 3);
  for (const bool included : {true, false, false, true}) {
    const std::vector<float> anchor = state_.theta;
    const std::vector<float> own = Wave(kSize, 1);
    std::vector<float> model = Scattered(Sum(anchor, own, -1));
    eager.Begin(anchor, kSegments, absl::MakeSpan(model));
    const std::vector<float> update =
        included ? Merge({own, other}, {0.25, 0.75}) : Merge({other}, {1});
    const double share = included ? 0.25 : 0;
    eager.Correct(update, share, kSegments, absl::MakeSpan(model));
    eager.Observe(update, share);
  }
  eager.Observe(Merge({other}, {1}), 0);
  const std::vector<float> own = Wave(kSize, 5);
  const std::vector<float> anchor = state_.theta;
  std::vector<float> model = Scattered(Sum(anchor, own, -1));
  eager.Begin(anchor, kSegments, absl::MakeSpan(model));
  Merge({own, other}, {0.25, 0.75});
  EXPECT_THAT(Gathered(model), Pointwise(FloatNear(1e-5f), state_.theta));
}

// Follows the error of a late joiner's expectation, round after round.
TEST_P(EagerUpdateTest, AJoinerLearnsTheMomentum) {
  const std::vector<float> same = Wave(kSize, 1);
  for (int round = 0; round < 5; ++round) Merge({same, same}, {0.5, 0.5});
  EagerUpdate eager(outer_, 0, kSize);
  const double decay = GetParam() == Outer::NESTEROV ? 0.8 / 1.8 : 0;
  std::vector<float> error;
  for (int round = 0; round < 4; ++round) {
    const std::vector<float> anchor = state_.theta;
    std::vector<float> model = Scattered(Sum(anchor, same, -1));
    eager.Begin(anchor, kSegments, absl::MakeSpan(model));
    const std::vector<float> update = Merge({same, same}, {0.5, 0.5});
    const std::vector<float> now = Sum(Gathered(model), state_.theta, -1);
    eager.Correct(update, 0.5, kSegments, absl::MakeSpan(model));
    eager.Observe(update, 0.5);
    if (GetParam() == Outer::SGD) {
      EXPECT_THAT(now, Each(FloatNear(0, 1e-5f)));
    } else if (round >= 2) {
      // From here on the others' part follows from two estimates of the
      // momentum.
      EXPECT_THAT(
          now, Pointwise(FloatNear(1e-5f), Sum(std::vector<float>(kSize), error,
                                               static_cast<float>(decay))));
    }
    error = now;
  }
}

TEST_P(EagerUpdateTest, ForgettingStartsAfresh) {
  EagerUpdate eager(outer_, 0, kSize);
  eager.Observe(Merge({Wave(kSize, 1)}, {1}), 0.3);
  eager.Forget();
  EagerUpdate fresh(outer_, 0, kSize);
  std::vector<float> model = Scattered(Wave(kSize, 4));
  std::vector<float> expected = model;
  eager.Begin(state_.theta, kSegments, absl::MakeSpan(model));
  fresh.Begin(state_.theta, kSegments, absl::MakeSpan(expected));
  EXPECT_EQ(model, expected);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, EagerUpdateTest,
                         testing::Values(Outer::NESTEROV, Outer::HEAVY_BALL,
                                         Outer::SGD),
                         [](const auto& info) {
                           return Outer::Algorithm_Name(info.param);
                         });

}  // namespace
}  // namespace causeway
