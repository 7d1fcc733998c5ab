// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/radial_merge.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr CodecSpec kFp32 = {.format = v1::FP32};

std::vector<float> Values(size_t count, uint32_t seed, float scale = 1) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525 + 1013904223;
    value = scale * static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
  }
  return values;
}

// Contributions with their encodings.
class Opened {
 public:
  explicit Opened(const std::vector<std::vector<float>>& vectors) {
    for (const std::vector<float>& vector : vectors) {
      encoded_.push_back(Encode(kFp32, vector).value());
    }
    for (size_t i = 0; i < vectors.size(); ++i) {
      contributions_.push_back(
          OpenDecoder(kFp32, encoded_[i], vectors[i].size()).value());
    }
  }

  MergeWeights Weights(std::vector<float> shares,
                       std::vector<ValueRange> tensors, uint64_t values,
                       int threads = 1) const {
    ThreadPool pool(threads);
    return RadialWeights(contributions_, std::move(shares), std::move(tensors),
                         values, pool);
  }

 private:
  std::vector<std::string> encoded_;
  Contributions contributions_;
};

double Norm(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

// Returns g by its definition, computed in double.
std::vector<double> PlainRadial(const std::vector<std::vector<float>>& vectors,
                                const std::vector<float>& shares,
                                const ValueRange& tensor) {
  const size_t size = tensor.end - tensor.begin;
  double length = 0;
  std::vector<double> direction(size);
  for (size_t i = 0; i < vectors.size(); ++i) {
    const std::vector<double> v(vectors[i].begin() + tensor.begin,
                                vectors[i].begin() + tensor.end);
    const double norm = Norm(v);
    length += shares[i] * norm;
    for (size_t j = 0; j < size; ++j) direction[j] += shares[i] * v[j] / norm;
  }
  const double norm = Norm(direction);
  for (double& x : direction) x *= length / norm;
  return direction;
}

// Tensors share tiles and strips, and one spans three strips.
TEST(RadialWeightsTest, GiveTheDefinition) {
  constexpr uint64_t kSize = 3 * kStripValues + 500;
  const std::vector<std::vector<float>> vectors = {
      Values(kSize, 1), Values(kSize, 2, 0.1f), Values(kSize, 3, 2.0f)};
  const std::vector<float> shares = {0.5f, 0.3f, 0.2f};
  const std::vector<ValueRange> tensors = {
      {3, 10}, {10, 2500}, {2600, 2 * kStripValues + 1}, {kSize - 7, kSize}};
  const MergeWeights weights = Opened(vectors).Weights(shares, tensors, kSize);
  EXPECT_EQ(weights.shares, shares);
  EXPECT_EQ(weights.tensors, tensors);
  ASSERT_EQ(weights.tensor_weights.size(), 12u);
  for (size_t t = 0; t < tensors.size(); ++t) {
    const std::vector<double> want = PlainRadial(vectors, shares, tensors[t]);
    const double tolerance = 1e-6 * Norm(want);
    for (size_t j = 0; j < want.size(); ++j) {
      double got = 0;
      for (size_t i = 0; i < 3; ++i) {
        got += double{weights.tensor_weights[3 * t + i]} *
               vectors[i][tensors[t].begin + j];
      }
      ASSERT_NEAR(got, want[j], tolerance) << t << " " << j;
    }
  }
}

TEST(RadialWeightsTest, HaveTheSameBitsForAnyNumberOfThreads) {
  constexpr uint64_t kSize = 5 * kStripValues + 500;
  const Opened opened({Values(kSize, 1), Values(kSize, 2, 0.1f)});
  const std::vector<ValueRange> tensors = {{3, 70000}, {70000, kSize}};
  const MergeWeights want = opened.Weights({0.25f, 0.75f}, tensors, kSize);
  for (int threads = 2; threads <= 5; ++threads) {
    EXPECT_EQ(
        opened.Weights({0.25f, 0.75f}, tensors, kSize, threads).tensor_weights,
        want.tensor_weights);
  }
}

TEST(RadialWeightsTest, OneContributionIsTakenAsItIs) {
  const MergeWeights weights = Opened({{3, 4}}).Weights({1.0f}, {{0, 2}}, 2);
  EXPECT_THAT(weights.shares, ElementsAre(1.0f));
  EXPECT_THAT(weights.tensors, IsEmpty());
}

TEST(RadialWeightsTest, EqualContributionsHaveTheirShares) {
  const MergeWeights weights =
      Opened({{3, 4}, {3, 4}}).Weights({0.25f, 0.75f}, {{0, 2}}, 2);
  EXPECT_THAT(weights.tensor_weights,
              ElementsAre(testing::FloatNear(0.25f, 1e-6f),
                          testing::FloatNear(0.75f, 1e-6f)));
}

TEST(RadialWeightsTest, ZerosHaveNoDirectionButAShareOfTheLength) {
  const MergeWeights weights =
      Opened({{0, 0}, {3, 4}}).Weights({0.5f, 0.5f}, {{0, 2}}, 2);
  EXPECT_THAT(weights.tensor_weights,
              ElementsAre(0.0f, testing::FloatNear(0.5f, 1e-6f)));
}

TEST(RadialWeightsTest, WithoutACommonDirectionNothingMoves) {
  // All zeros, and opposite directions of different length.
  EXPECT_THAT(Opened({{0, 0}, {0, 0}})
                  .Weights({0.5f, 0.5f}, {{0, 2}}, 2)
                  .tensor_weights,
              ElementsAre(0.0f, 0.0f));
  EXPECT_THAT(Opened({{1, 2, 3}, {-3, -6, -9}})
                  .Weights({0.5f, 0.5f}, {{0, 3}}, 3)
                  .tensor_weights,
              ElementsAre(0.0f, 0.0f));
}

TEST(RadialWeightsTest, LengthsBeyondFp32HaveNoEffectOnTheDirection) {
  const MergeWeights weights = Opened({{0x1p-120f, 0}, {0, 0x1p100f}})
                                   .Weights({0.5f, 0.5f}, {{0, 2}}, 2);
  // The first contribution counts as zero.
  EXPECT_THAT(weights.tensor_weights,
              ElementsAre(0.0f, testing::FloatNear(0.5f, 1e-6f)));
}

TEST(RadialWeightsTest, WhatIsNotFiniteStaysSo) {
  const MergeWeights weights =
      Opened({{NAN, 1}, {3, 4}}).Weights({0.5f, 0.5f}, {{0, 2}}, 2);
  EXPECT_TRUE(std::isnan(weights.tensor_weights[0]));
}

TEST(RadialTensorsTest, AreMatricesButNotThoseOfTokens) {
  v1::Fragment fragment;
  uint64_t offset = 0;
  const auto add = [&](const std::string& name,
                       const std::vector<uint64_t>& shape) {
    v1::TensorPlacement& tensor = *fragment.add_tensors();
    tensor.set_name(name);
    tensor.set_offset(offset);
    uint64_t size = 1;
    for (const uint64_t extent : shape) {
      tensor.add_shape(extent);
      size *= extent;
    }
    offset += size;
  };
  add("model.embed_tokens.weight", {10, 4});
  add("model.layers.0.input_layernorm.weight", {4});
  add("model.layers.0.self_attn.q_proj.weight", {4, 4});
  add("model.layers.0.mlp.up_proj.weight", {8, 4});
  add("model.norm.weight", {4});
  add("lm_head.weight", {10, 4});
  EXPECT_THAT(RadialTensors(v1::RunConfig(), fragment),
              ElementsAre(ValueRange{44, 60}, ValueRange{60, 92}));
  // A run of tensors says itself which are of tokens.
  v1::RunConfig config;
  config.mutable_tensors()->add_mean_only("model.layers.*.mlp.*");
  config.mutable_tensors()->add_mean_only("*embed*");
  EXPECT_THAT(RadialTensors(config, fragment),
              ElementsAre(ValueRange{44, 60}, ValueRange{96, 136}));
}

}  // namespace
}  // namespace causeway
