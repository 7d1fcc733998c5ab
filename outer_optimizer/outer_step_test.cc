// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/outer_step.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/checksum.h"
#include "common/os/thread_pool.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/aligned_allocator.h"
#include "outer_optimizer/mixing.h"
#include "outer_optimizer/testing/values.h"
#include "outer_optimizer/testing/whole_step.h"
#include "quantization/testing/whole_vectors.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Outer = v1::OuterOptimizerConfig;

constexpr CodecSpec kFp32 = {.format = v1::FP32};
constexpr CodecSpec kBf16 = {.format = v1::BF16};
constexpr OuterStepOptions kNesterov = {.algorithm = Outer::NESTEROV,
                                        .learning_rate = 0.7f,
                                        .momentum = 0.9f,
                                        .downlink = kFp32};

std::string EncodeOrDie(const CodecSpec& spec, absl::Span<const float> values) {
  return Encode(spec, values).value();
}

// Compares bits, to distinguish 0 from -0.
void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(Digest128(a), Digest128(b));
}

void ExpectSameBits(const OuterStepResult& a, const OuterStepResult& b) {
  ExpectSameBits(a.state.theta, b.state.theta);
  ExpectSameBits(a.state.momentum, b.state.momentum);
  ExpectSameBits(a.state.residual, b.state.residual);
  ExpectSameBits(a.state.gradient_sum, b.state.gradient_sum);
  EXPECT_EQ(a.update, b.update);
  EXPECT_EQ(a.gradient_norm, b.gradient_norm);
}

// Applies `gradients`, one per step, to theta = 0. Returns how far each step
// moved theta.
std::vector<float> StepsOf(const OuterStepOptions& options,
                           const std::vector<float>& gradients) {
  OuterState state = InitialOuterState(options, {0.0f});
  std::vector<float> steps;
  for (const float gradient : gradients) {
    const std::string encoded = EncodeOrDie(kFp32, {gradient});
    OuterStepResult result =
        RunOuterStep(options, state, {{kFp32, encoded, 1.0f}}).value();
    steps.push_back(state.theta[0] - result.state.theta[0]);
    state = std::move(result.state);
  }
  return steps;
}

// A published example of outer Nesterov: learning rate 0.1, momentum 0.7.
TEST(OuterStepGoldenTest, Nesterov) {
  const OuterStepOptions options = {.algorithm = Outer::NESTEROV,
                                    .learning_rate = 0.1f,
                                    .momentum = 0.7f,
                                    .downlink = kFp32};
  const float gradients[] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f};
  const float steps[] = {0.0415f, 0.0585f, 0.0755f, 0.0925f, 0.1095f};
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(StepsOf(options, {0.5f, gradients[i]}),
                ElementsAre(testing::FloatNear(0.085f, 1e-7f),
                            testing::FloatNear(steps[i], 1e-7f)));
  }
}

// torch.optim.SGD(lr=0.5, momentum=0.5), by hand; every number is a short
// binary fraction, so equality is exact.
//   buf: 1, 0.5 - 1 = -0.5, -0.25 + 2 = 1.75
TEST(OuterStepGoldenTest, TorchSgd) {
  const std::vector<float> gradients = {1.0f, -1.0f, 2.0f};
  OuterStepOptions options = {.algorithm = Outer::NESTEROV,
                              .learning_rate = 0.5f,
                              .momentum = 0.5f,
                              .downlink = kFp32};
  // nesterov=True: lr (g + mu buf).
  EXPECT_THAT(StepsOf(options, gradients),
              ElementsAre(0.75f, -0.625f, 1.4375f));
  // nesterov=False: lr buf.
  options.algorithm = Outer::HEAVY_BALL;
  EXPECT_THAT(StepsOf(options, gradients), ElementsAre(0.5f, -0.25f, 0.875f));
  // momentum=0: lr g.
  options.algorithm = Outer::SGD;
  EXPECT_THAT(StepsOf(options, gradients), ElementsAre(0.5f, -0.5f, 1.0f));
}

TEST(OuterStepTest, SgdWithRate1AndEqualSharesAveragesParameters) {
  // Short binary fractions, so equality is exact.
  const OuterState state = {.theta = {1.0f, -2.0f, 0.5f}};
  const std::vector<float> islands[] = {{2.0f, -1.0f, 0.0f},
                                        {0.5f, -4.0f, 0.25f}};
  std::string encoded[2];
  std::vector<MergeInput> inputs;
  for (int i = 0; i < 2; ++i) {
    std::vector<float> delta(3);
    PseudoGradient(state.theta, islands[i], absl::MakeSpan(delta));
    encoded[i] = EncodeOrDie(kFp32, delta);
    inputs.push_back({kFp32, encoded[i], 0.5f});
  }
  ASSERT_OK_AND_ASSIGN(
      const OuterStepResult result,
      RunOuterStep({.algorithm = Outer::SGD, .learning_rate = 1}, state,
                   inputs));
  EXPECT_THAT(result.state.theta, ElementsAre(1.25f, -2.5f, 0.125f));
  EXPECT_THAT(result.state.momentum, IsEmpty());
}

TEST(OuterStepTest, OneIslandWithRate1AndNoMomentumIsTheIdentity) {
  const OuterState state = {.theta = {1.0f, -2.0f, 0.5f},
                            .momentum = {0, 0, 0}};
  const std::vector<float> island = {1.125f, -2.5f, 0.75f};
  std::vector<float> delta(3);
  PseudoGradient(state.theta, island, absl::MakeSpan(delta));
  const std::string encoded = EncodeOrDie(kFp32, delta);
  ASSERT_OK_AND_ASSIGN(
      const OuterStepResult result,
      RunOuterStep({.algorithm = Outer::NESTEROV, .learning_rate = 1}, state,
                   {{kFp32, encoded, 1.0f}}));
  EXPECT_EQ(result.state.theta, island);
}

TEST(OuterStepTest, NormIsOfTheMergedGradient) {
  const OuterState state = InitialOuterState(kNesterov, {0, 0});
  const std::string a = EncodeOrDie(kFp32, {6, 0});
  const std::string b = EncodeOrDie(kFp32, {0, 8});
  ASSERT_OK_AND_ASSIGN(
      const OuterStepResult result,
      RunOuterStep(kNesterov, state, {{kFp32, a, 0.5f}, {kFp32, b, 0.5f}}));
  EXPECT_EQ(result.gradient_norm, 5);
}

TEST(OuterStepTest, AnEmptyFragmentIsFine) {
  ASSERT_OK_AND_ASSIGN(const OuterStepResult result,
                       RunOuterStep(kNesterov, InitialOuterState(kNesterov, {}),
                                    {{kFp32, "", 1.0f}}));
  EXPECT_EQ(result.update, "");
  EXPECT_EQ(result.gradient_norm, 0);
}

// A fragment of several strips with contributions in both formats.
class OuterStepTilesTest : public testing::TestWithParam<CodecSpec> {
 protected:
  static constexpr size_t kSize = 2 * kStripValues + 5 * 2048 + 123;

  void SetUp() override {
    options_.downlink = GetParam();
    state_ = InitialOuterState(options_, Values(kSize, 1));
    state_.momentum = Values(kSize, 2, 1e-3f);
    if (!state_.residual.empty()) state_.residual = Values(kSize, 3, 1e-6f);
    for (uint32_t i = 0; i < 3; ++i) {
      const CodecSpec& spec = i == 1 ? kBf16 : kFp32;
      encoded_.push_back(EncodeOrDie(spec, Values(kSize, 10 + i, 1e-3f)));
      inputs_.push_back({spec, "", shares_[i]});
    }
    for (uint32_t i = 0; i < 3; ++i) inputs_[i].encoded = encoded_[i];
  }

  const std::vector<float> shares_ = {0.2f, 0.3f, 0.5f};
  OuterStepOptions options_ = kNesterov;
  OuterState state_;
  std::vector<std::string> encoded_;
  std::vector<MergeInput> inputs_;
};

INSTANTIATE_TEST_SUITE_P(
    Downlinks, OuterStepTilesTest,
    testing::Values(kFp32, kBf16, CodecSpec{.format = v1::INT8},
                    CodecSpec{.format = v1::E3M0},
                    CodecSpec{.format = v1::E3M0, .entropy_coded = true}),
    [](const testing::TestParamInfo<CodecSpec>& info) {
      return v1::Format_Name(info.param.format) +
             (info.param.entropy_coded ? "_coded" : "");
    });

// Computes the header's equations, one whole vector after the other.
TEST_P(OuterStepTilesTest, EqualsTheEquationsBitForBit) {
  std::vector<float> gradient(kSize);
  for (const MergeInput& input : inputs_) {
    ASSERT_OK(DecodeAccumulate(input.spec, input.encoded, input.share,
                               absl::MakeSpan(gradient)));
  }
  OuterStepResult want;
  want.state = state_;
  std::vector<float> change(kSize);
  for (size_t i = 0; i < kSize; ++i) {
    float& m = want.state.momentum[i];
    m = 0.9f * m;
    m += gradient[i];
    const float ahead = 0.9f * m;
    change[i] = -0.7f * (gradient[i] + ahead);
    if (!state_.residual.empty()) change[i] += state_.residual[i];
  }
  want.update = EncodeOrDie(options_.downlink, change);
  std::vector<float> decoded(kSize);
  ASSERT_OK(Decode(options_.downlink, want.update, absl::MakeSpan(decoded)));
  for (size_t i = 0; i < kSize; ++i) {
    want.state.theta[i] += decoded[i];
    if (!state_.residual.empty()) {
      want.state.residual[i] = change[i] - decoded[i];
    }
  }
  double sum = 0;
  for (const float g : gradient) sum += double{g} * double{g};

  ASSERT_OK_AND_ASSIGN(OuterStepResult got,
                       RunOuterStep(options_, state_, inputs_));
  EXPECT_NEAR(got.gradient_norm, std::sqrt(sum), 1e-12);
  want.gradient_norm = got.gradient_norm;
  ExpectSameBits(got, want);
}

TEST_P(OuterStepTilesTest, IslandsThatAddTheUpdateHoldTheSameBits) {
  ASSERT_OK_AND_ASSIGN(const OuterStepResult result,
                       RunOuterStep(options_, state_, inputs_));
  std::vector<float> decoded(kSize);
  ASSERT_OK(Decode(options_.downlink, result.update, absl::MakeSpan(decoded)));
  std::vector<float> anchor(kSize);
  NextAnchor(state_.theta, absl::MakeSpan(decoded), absl::MakeSpan(anchor));
  const std::vector<float> snapshot = Values(kSize, 20);
  std::vector<float> parameters = snapshot;
  Mix(anchor, snapshot, absl::MakeSpan(parameters));
  ExpectSameBits(anchor, result.state.theta);
  ExpectSameBits(parameters, result.state.theta);
}

TEST_P(OuterStepTilesTest, BitsDoNotDependOnThreadsOrMemory) {
  ASSERT_OK_AND_ASSIGN(OuterStepResult want,
                       RunOuterStep(options_, state_, inputs_));
  for (int threads = 1; threads <= 5; ++threads) {
    // The memory was used before, and is aligned for streaming or not.
    const size_t shift = threads % 2;
    const auto memory = hwy::AllocateAligned<float>(4 * (kSize + 16));
    std::fill_n(memory.get(), 4 * (kSize + 16), NAN);
    const auto part = [&](size_t i, const std::vector<float>& like) {
      // kSize, rounded up to the alignment.
      float* const begin = memory.get() + i * ((kSize + 15) / 16 * 16) + shift;
      return absl::Span<float>(begin, like.size());
    };
    std::string update(MaxEncodedBytes(options_.downlink, kSize), '?');
    const OuterStepOutput output = {
        .theta = part(0, state_.theta),
        .momentum = part(1, state_.momentum),
        .residual = part(2, state_.residual),
        .gradient_sum = part(3, state_.gradient_sum),
        .update = absl::MakeSpan(update)};
    ThreadPool pool(threads);
    ASSERT_OK_AND_ASSIGN(const OuterStepSummary summary,
                         RunOuterStep(options_, state_, inputs_, output, pool));
    const auto copy = [](absl::Span<const float> values) {
      return std::vector<float>(values.begin(), values.end());
    };
    const OuterStepResult got = {
        .state = {.theta = copy(output.theta),
                  .momentum = copy(output.momentum),
                  .residual = copy(output.residual),
                  .gradient_sum = copy(output.gradient_sum)},
        .update = update.substr(0, summary.update_bytes),
        .gradient_norm = summary.gradient_norm};
    ExpectSameBits(got, want);
  }
}

// Without the residual, a coarse format would lose small changes.
TEST_P(OuterStepTilesTest, WhatTheEncodingLosesComesWithLaterUpdates) {
  OuterStepOptions exact_options = kNesterov;
  OuterState exact = InitialOuterState(exact_options, state_.theta);
  OuterState state = InitialOuterState(options_, state_.theta);
  std::vector<float> last_update(kSize);
  for (int round = 0; round < 20; ++round) {
    ASSERT_OK_AND_ASSIGN(OuterStepResult result,
                         RunOuterStep(options_, state, inputs_));
    state = std::move(result.state);
    ASSERT_OK(
        Decode(options_.downlink, result.update, absl::MakeSpan(last_update)));
    ASSERT_OK_AND_ASSIGN(result, RunOuterStep(exact_options, exact, inputs_));
    exact = std::move(result.state);
  }
  ExpectSameBits(state.momentum, exact.momentum);
  double worst = 0;
  double worst_residual = 0;
  for (size_t i = 0; i < kSize; ++i) {
    const double residual = state.residual.empty() ? 0 : state.residual[i];
    worst = std::max(worst, std::abs(double{state.theta[i]} + residual -
                                     double{exact.theta[i]}));
    worst_residual = std::max(worst_residual, std::abs(residual));
  }
  // The bound is 20 rounded additions to values below 2.
  EXPECT_LE(worst, 40 * 0x1p-24);
  // The residual has the error of one rounding, not of twenty.
  double largest = 0;
  for (const float change : last_update) {
    largest = std::max(largest, std::abs(double{change}));
  }
  const std::map<v1::Format, double> largest_rounding = {
      {v1::FP32, 0},
      {v1::BF16, 0x1p-8},
      {v1::INT8, 0.51 / 127},
      // 0.75 becomes 1, minus the rounding of the scale.
      {v1::E3M0, 0.26}};
  EXPECT_LE(worst_residual, largest * largest_rounding.at(GetParam().format));
}

TEST_P(OuterStepTilesTest, RefusesNonFiniteContributionsByName) {
  const OuterState before = state_;
  std::vector<float> values = Values(kSize, 11);
  values[4000] = NAN;
  const std::string bad = EncodeOrDie(kBf16, values);
  inputs_[1].encoded = bad;
  EXPECT_THAT(RunOuterStep(options_, state_, inputs_),
              IsInvalidArgument("contribution 1: value 4000 of"));
  ExpectSameBits(state_.theta, before.theta);
  ExpectSameBits(state_.momentum, before.momentum);
}

TEST_P(OuterStepTilesTest, RefusesAResultThatIsNotFinite) {
  state_.theta[70000] = -3e38f;
  state_.momentum[70000] = 3e38f;
  EXPECT_THAT(RunOuterStep(options_, state_, inputs_),
              IsOutOfRange("among values 65536 to 131071"));
  options_.learning_rate = INFINITY;
  EXPECT_THAT(RunOuterStep(options_, state_, inputs_),
              IsOutOfRange("among values 0 to 65535"));
}

TEST_P(OuterStepTilesTest, RefusesWhatDoesNotFit) {
  const auto expect_refused = [&](const char* why) {
    EXPECT_THAT(RunOuterStep(options_, state_, inputs_),
                IsInvalidArgument(why));
  };
  EXPECT_THAT(RunOuterStep(options_, state_, {}).status(),
              IsInvalidArgument("needs a contribution"));
  inputs_[2].share = 1.5f;
  expect_refused("contribution 2: its share is 1.5");
  inputs_[2].share = 0.5f;
  inputs_[1].encoded.remove_suffix(2);
  expect_refused("contribution 1: BF16 encoding");
  inputs_[1].encoded = encoded_[1];
  state_.momentum.pop_back();
  expect_refused("does not have the parts");
  state_.momentum.push_back(0);
  state_.residual.push_back(0);
  expect_refused("does not have the parts");
  state_.residual.pop_back();
  EXPECT_OK(RunOuterStep(options_, state_, inputs_));
  options_.algorithm = Outer::DELAYED_NESTEROV;
  expect_refused("does not have the parts");
  state_.gradient_sum.resize(kSize);
  options_.momentum_delay = 0;
  expect_refused("momentum_delay is 0");
}

// The paper writes the steps with a buffer of gradients and a momentum that
// moves every N-th step.
TEST(DelayedNesterovTest, EqualsItsAlgorithm) {
  const OuterStepOptions options = {.algorithm = Outer::DELAYED_NESTEROV,
                                    .learning_rate = 0.5f,
                                    .momentum = 0.5f,
                                    .momentum_delay = 4,
                                    .downlink = kFp32};
  // Short binary fractions throughout, so equality is exact.
  const std::vector<float> gradients = {1, -2, 4, 5, -3, 2, 1, 8, 1};
  std::vector<float> want;
  float m = 0;
  float buffer = 0;
  for (size_t t = 1; t <= gradients.size(); ++t) {
    const float g = gradients[t - 1];
    buffer += g;
    if (t % 4 == 0) {
      m = 0.5f * m + buffer / 4;
      want.push_back(0.5f * (0.5f * m + g / 4));
      buffer = 0;
    } else {
      want.push_back(0.5f * g / 4);
    }
  }
  const std::vector<float> got = StepsOf(options, gradients);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    // These are differences of parameters, which are rounded.
    EXPECT_NEAR(got[i], want[i], 1e-6f) << i;
  }
}

TEST(DelayedNesterovTest, BetweenTwoMomentaIsGradientDescent) {
  const OuterStepOptions options = {.algorithm = Outer::DELAYED_NESTEROV,
                                    .learning_rate = 0.5f,
                                    .momentum = 0.5f,
                                    .momentum_delay = 2,
                                    .downlink = kFp32};
  // lr g / N; then with m = (1 + 3) / 2: lr (mu m + g / N).
  EXPECT_THAT(StepsOf(options, {1.0f, 3.0f}), ElementsAre(0.25f, 1.25f));
}

TEST_P(OuterStepTilesTest, DelayedNesterovWithoutDelayIsNesterov) {
  OuterStepOptions delayed = options_;
  delayed.algorithm = Outer::DELAYED_NESTEROV;
  OuterState want = state_;
  OuterState got = state_;
  got.gradient_sum.resize(kSize);
  for (int round = 0; round < 2; ++round) {
    ASSERT_OK_AND_ASSIGN(OuterStepResult nesterov,
                         RunOuterStep(options_, want, inputs_));
    ASSERT_OK_AND_ASSIGN(OuterStepResult result,
                         RunOuterStep(delayed, got, inputs_));
    want = std::move(nesterov.state);
    got = std::move(result.state);
    EXPECT_EQ(result.update, nesterov.update);
  }
  EXPECT_EQ(got.version, 2u);
  ExpectSameBits(got.theta, want.theta);
  ExpectSameBits(got.momentum, want.momentum);
  EXPECT_EQ(got.gradient_sum, std::vector<float>(kSize));
}

// Two contributions at a right angle in the tensor of the first two values.
TEST(RadialStepTest, KeepsLengthInTensorsAndTakesTheMeanElsewhere) {
  OuterStepOptions options = {
      .algorithm = Outer::SGD, .learning_rate = 1, .downlink = kFp32};
  const OuterState state = {.theta = {0, 0, 0}};
  const std::string a = EncodeOrDie(kFp32, {3, 0, 8});
  const std::string b = EncodeOrDie(kFp32, {0, 4, -4});
  options.tensor_merge = {.tensors = {{0, 2}}, .radial = {true}};
  ASSERT_OK_AND_ASSIGN(
      const OuterStepResult result,
      RunOuterStep(options, state, {{kFp32, a, 0.5f}, {kFp32, b, 0.5f}}));
  // (3 + 4) / 2 along (1, 1).
  const float each = 3.5f / std::sqrt(2.0f);
  EXPECT_THAT(result.state.theta, ElementsAre(testing::FloatEq(-each),
                                              testing::FloatEq(-each), -2.0f));
  EXPECT_NEAR(result.gradient_norm, std::sqrt(3.5 * 3.5 + 4), 1e-6);
}

TEST(OuterStepOptionsTest, ComeFromTheConfig) {
  v1::RunConfig config;
  v1::OuterOptimizerConfig& outer = *config.mutable_outer_optimizer();
  outer.set_algorithm(Outer::DELAYED_NESTEROV);
  outer.set_learning_rate(0.25);
  outer.set_momentum(0.5);
  outer.set_momentum_delay(4);
  config.mutable_synchronization()->set_downlink_format(v1::BF16);
  config.mutable_synchronization()->set_block_size(64);
  v1::Fragment fragment;
  v1::TensorPlacement& tensor = *fragment.add_tensors();
  tensor.set_name("model.layers.0.mlp.up_proj.weight");
  tensor.add_shape(3);
  tensor.add_shape(5);
  tensor.set_offset(7);
  OuterStepOptions options = MakeOuterStepOptions(config, fragment);
  EXPECT_EQ(options.algorithm, Outer::DELAYED_NESTEROV);
  EXPECT_EQ(options.learning_rate, 0.25f);
  EXPECT_EQ(options.momentum, 0.5f);
  EXPECT_EQ(options.momentum_delay, 4u);
  EXPECT_EQ(options.downlink,
            (CodecSpec{.format = v1::BF16, .block_size = 64}));
  EXPECT_THAT(options.tensor_merge.tensors, IsEmpty());
  outer.set_merge(Outer::RADIAL_DIRECTIONAL);
  options = MakeOuterStepOptions(config, fragment);
  EXPECT_THAT(options.tensor_merge.tensors, ElementsAre(ValueRange{7, 22}));
}

}  // namespace
}  // namespace causeway
