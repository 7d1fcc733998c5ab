// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares each reference backward pass with finite differences of its forward
// pass, in double.
#include "worker/model/testing/ops_reference.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "worker/model/ops.h"

namespace causeway {
namespace {

using Array = std::vector<double>;

Array Random(int64_t size, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  Array values(static_cast<size_t>(size));
  for (double& value : values) value = normal(generator);
  return values;
}

double Dot(const Array& a, const Array& b) {
  return reference::Dot(a.data(), b.data(), static_cast<int64_t>(a.size()));
}

// Checks that `gradient` is the gradient of loss() with respect to `input`,
// value by value, by central differences, whose error is of the order h^2.
void ExpectGradient(const std::function<double()>& loss, Array& input,
                    const Array& gradient) {
  ASSERT_EQ(input.size(), gradient.size());
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < input.size(); ++i) {
    const double value = input[i];
    input[i] = value + kStep;
    const double above = loss();
    input[i] = value - kStep;
    const double below = loss();
    input[i] = value;
    const double want = (above - below) / (2 * kStep);
    ASSERT_NEAR(gradient[i], want, 1e-7 * (1 + std::abs(want))) << "at " << i;
  }
}

TEST(OpsReferenceTest, EmbeddingGradient) {
  const std::vector<int32_t> tokens = {3, 0, 3, 1};
  Array table = Random(5 * 3, 1);
  const Array d_output = Random(4 * 3, 2);
  Array d_table(table.size());
  reference::EmbeddingBackward(tokens.data(), d_output.data(), 4, 3,
                               d_table.data());
  Array output(d_output.size());
  ExpectGradient(
      [&] {
        reference::Embedding(tokens.data(), table.data(), 4, 3, output.data());
        return Dot(output, d_output);
      },
      table, d_table);
}

TEST(OpsReferenceTest, RmsNormGradient) {
  constexpr int64_t kRows = 3;
  constexpr int64_t kWidth = 5;
  Array x = Random(kRows * kWidth, 1);
  Array gain = Random(kWidth, 2);
  const Array d_output = Random(kRows * kWidth, 3);
  Array inverse_rms(kRows);
  Array output(x.size());
  const auto loss = [&] {
    reference::RmsNorm<double>(x.data(), nullptr, gain.data(), kRows, kWidth,
                               0.3, nullptr, inverse_rms.data(), output.data());
    return Dot(output, d_output);
  };
  loss();
  const Array forward_output = output;
  Array d_x(x.size());
  Array d_gain(gain.size());
  reference::RmsNormBackward(d_output.data(), x.data(), inverse_rms.data(),
                             gain.data(), kRows, kWidth, false, d_x.data(),
                             d_gain.data(), output.data());
  EXPECT_EQ(output, forward_output);
  ExpectGradient(loss, x, d_x);
  ExpectGradient(loss, gain, d_gain);
}

TEST(OpsReferenceTest, LinearGradient) {
  const LinearShape shape = {.rows = 3, .in = 4, .out = 5};
  Array input = Random(3 * 4, 1);
  Array weight = Random(5 * 4, 2);
  const Array d_output = Random(3 * 5, 3);
  Array d_input(input.size());
  Array d_weight(weight.size());
  reference::LinearInputGradient(d_output.data(), weight.data(), shape,
                                 d_input.data());
  reference::LinearWeightGradient(d_output.data(), input.data(), shape,
                                  d_weight.data());
  Array output(d_output.size());
  const auto loss = [&] {
    reference::Linear(input.data(), weight.data(), shape, output.data());
    return Dot(output, d_output);
  };
  ExpectGradient(loss, input, d_input);
  ExpectGradient(loss, weight, d_weight);
}

TEST(OpsReferenceTest, BiasGradient) {
  Array bias = Random(5, 1);
  const Array values = Random(3 * 5, 2);
  const Array d_output = Random(3 * 5, 3);
  Array d_bias(bias.size());
  reference::AddBiasBackward(d_output.data(), 3, 5, d_bias.data());
  ExpectGradient(
      [&] {
        Array output = values;
        reference::AddBias(bias.data(), 3, 5, output.data());
        return Dot(output, d_output);
      },
      bias, d_bias);
}

void ExpectQkNormGradient(const QkNormShape& shape) {
  Array qkv = Random(shape.rows * shape.row_width, 1);
  Array gains = Random(shape.gains(), 2);
  const Array d_output = Random(static_cast<int64_t>(qkv.size()), 3);
  Array raw(shape.rows * shape.qk_width);
  Array inverse_rms(shape.rows * shape.groups());
  const auto loss = [&] {
    Array output = qkv;
    reference::QkNorm(shape, gains.data(), 0.3, output.data(), raw.data(),
                      inverse_rms.data());
    return Dot(output, d_output);
  };
  loss();
  Array d_qkv = d_output;
  Array d_gains(gains.size());
  reference::QkNormBackward(shape, raw.data(), inverse_rms.data(), gains.data(),
                            d_qkv.data(), d_gains.data());
  ExpectGradient(loss, qkv, d_qkv);
  ExpectGradient(loss, gains, d_gains);
}

TEST(OpsReferenceTest, QkNormGradient) {
  const AttentionShape shape = {
      .batch = 2, .length = 2, .heads = 4, .kv_heads = 2, .head_dim = 6};
  ExpectQkNormGradient({shape, /*across_heads=*/false});
  ExpectQkNormGradient({shape, /*across_heads=*/true});
}

TEST(OpsReferenceTest, RopeGradientAndLength) {
  const AttentionShape shape = {
      .batch = 2, .length = 3, .heads = 2, .kv_heads = 1, .head_dim = 4};
  Array cosine;
  Array sine;
  for (int i = 0; i < 3 * 2; ++i) {
    cosine.push_back(std::cos(0.7 * i));
    sine.push_back(std::sin(0.7 * i));
  }
  Array qkv = Random(shape.rows() * shape.qkv_width(), 1);
  const Array d_output = Random(static_cast<int64_t>(qkv.size()), 2);
  const auto rotate = [&](Array values, RopeDirection direction) {
    reference::Rope(shape, cosine.data(), sine.data(), direction,
                    values.data());
    return values;
  };
  const Array d_qkv = rotate(d_output, RopeDirection::kBackward);
  ExpectGradient(
      [&] { return Dot(rotate(qkv, RopeDirection::kForward), d_output); }, qkv,
      d_qkv);
  const Array rotated = rotate(qkv, RopeDirection::kForward);
  EXPECT_NEAR(Dot(rotated, rotated), Dot(qkv, qkv), 1e-12);
}

TEST(OpsReferenceTest, AttentionGradient) {
  for (const int64_t kv_heads : {1, 2, 4}) {
    const AttentionShape shape = {.batch = 2,
                                  .length = 5,
                                  .heads = 4,
                                  .kv_heads = kv_heads,
                                  .head_dim = 2};
    Array qkv = Random(shape.rows() * shape.qkv_width(), 1);
    const Array d_output = Random(shape.rows() * shape.query_width(), 2);
    Array output(d_output.size());
    Array log_sum_exp(static_cast<size_t>(shape.rows() * shape.heads));
    const auto loss = [&] {
      reference::Attention(shape, qkv.data(), output.data(),
                           log_sum_exp.data());
      return Dot(output, d_output);
    };
    loss();
    Array d_qkv(qkv.size());
    reference::AttentionBackward(shape, qkv.data(), output.data(),
                                 log_sum_exp.data(), d_output.data(),
                                 d_qkv.data());
    ExpectGradient(loss, qkv, d_qkv);
  }
}

TEST(OpsReferenceTest, AttentionOfEqualKeysIsTheRunningMeanOfTheValues) {
  const AttentionShape shape = {
      .batch = 1, .length = 4, .heads = 1, .kv_heads = 1, .head_dim = 2};
  Array qkv;
  for (int r = 0; r < 4; ++r) {
    qkv.insert(qkv.end(), {1.0 + r, 2.0, 0.5, 0.5, 1.0 * r, 10.0 * r});
  }
  Array output(8);
  Array log_sum_exp(4);
  reference::Attention(shape, qkv.data(), output.data(), log_sum_exp.data());
  for (int r = 0; r < 4; ++r) {
    EXPECT_NEAR(output[2 * r], 0.5 * r, 1e-12);
    EXPECT_NEAR(output[2 * r + 1], 5.0 * r, 1e-12);
  }
}

TEST(OpsReferenceTest, SwiGluGradient) {
  Array gate_up = Random(2 * 2 * 3, 1);
  const Array d_output = Random(2 * 3, 2);
  Array output(d_output.size());
  const auto loss = [&] {
    reference::SwiGlu(gate_up.data(), 2, 3, output.data());
    return Dot(output, d_output);
  };
  loss();
  const Array forward_output = output;
  Array d_gate_up(gate_up.size());
  reference::SwiGluBackward(gate_up.data(), d_output.data(), 2, 3,
                            d_gate_up.data(), output.data());
  for (size_t i = 0; i < output.size(); ++i) {
    EXPECT_NEAR(output[i], forward_output[i], 1e-15);
  }
  ExpectGradient(loss, gate_up, d_gate_up);
}

TEST(OpsReferenceTest, CrossEntropyGradient) {
  const std::vector<int32_t> targets = {2, 0, 4};
  Array logits = Random(3 * 5, 1);
  Array losses(3);
  constexpr double kScale = 0.7;
  Array d_logits = logits;
  reference::CrossEntropyWithGradient(targets.data(), 3, 5, kScale,
                                      d_logits.data(), losses.data());
  ExpectGradient(
      [&] {
        Array copy = logits;
        reference::CrossEntropyWithGradient(targets.data(), 3, 5, kScale,
                                            copy.data(), losses.data());
        return kScale * (losses[0] + losses[1] + losses[2]);
      },
      logits, d_logits);
}

TEST(OpsReferenceTest, CrossEntropyOfEqualLogitsIsTheLogarithmOfTheirNumber) {
  const int32_t target = 1;
  Array logits(7, 3.25);
  double loss = 0;
  reference::CrossEntropyWithGradient<double>(&target, 1, 7, 1, logits.data(),
                                              &loss);
  EXPECT_NEAR(loss, std::log(7.0), 1e-15);
}

}  // namespace
}  // namespace causeway
