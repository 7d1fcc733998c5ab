// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/similarity.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/outer_step.h"
#include "outer_optimizer/testing/values.h"
#include "outer_optimizer/testing/whole_step.h"
#include "quantization/codec.h"
#include "quantization/testing/whole_vectors.h"

namespace causeway {
namespace {

using testing::DoubleNear;
using testing::Optional;
using Outer = v1::OuterOptimizerConfig;
using Vectors = std::vector<std::vector<float>>;

constexpr CodecSpec kFp32 = {.format = v1::FP32};

double Norm(absl::Span<const float> v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

// Returns the similarity of an outer step of `vectors`.
std::optional<double> StepSimilarity(const Vectors& vectors,
                                     absl::Span<const float> shares,
                                     std::vector<ValueRange> radial = {}) {
  std::vector<std::string> encoded;
  for (const std::vector<float>& v : vectors) {
    encoded.push_back(Encode(kFp32, v).value());
  }
  std::vector<MergeInput> inputs;
  for (size_t i = 0; i < vectors.size(); ++i) {
    inputs.push_back({.spec = kFp32,
                      .encoded = encoded[i],
                      .share = shares[i],
                      .norm = Norm(vectors[i])});
  }
  const OuterStepOptions options = {
      .algorithm = Outer::SGD,
      .learning_rate = 1,
      .tensor_merge = {.tensors = radial, .radial = {true, true}}};
  const OuterState state = {.theta = std::vector<float>(vectors[0].size())};
  return RunOuterStep(options, state, inputs).value().similarity;
}

// Returns the similarity by its definition, over all pairs of parts.
double PairSimilarity(const Vectors& parts) {
  double dots = 0;
  double lengths = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      for (size_t k = 0; k < parts[i].size(); ++k) {
        dots += double{parts[i][k]} * double{parts[j][k]};
      }
      lengths += Norm(parts[i]) * Norm(parts[j]);
    }
  }
  return dots / lengths;
}

TEST(SimilarityTest, TwoContributionsHaveTheirCosine) {
  const auto of = [](std::vector<float> a, std::vector<float> b) {
    return StepSimilarity({std::move(a), std::move(b)}, {0.25f, 0.75f});
  };
  EXPECT_THAT(of({3, 4}, {6, 8}), Optional(DoubleNear(1, 1e-6)));
  EXPECT_THAT(of({3, 4}, {-0.3f, -0.4f}), Optional(DoubleNear(-1, 1e-6)));
  EXPECT_THAT(of({3, 4}, {-40, 30}), Optional(DoubleNear(0, 1e-6)));
  EXPECT_THAT(of({2, 0}, {1, 1}), Optional(DoubleNear(std::sqrt(0.5), 1e-6)));
}

TEST(SimilarityTest, ThePairsOfManyWeighAsTheirLengths) {
  constexpr size_t kSize = 5000;
  const Vectors vectors = {Values(kSize, 1), Values(kSize, 1, 0.5f),
                           Values(kSize, 2, 3), Values(kSize, 1, -0.1f)};
  const std::vector<float> shares = {0.4f, 0.3f, 0.2f, 0.1f};
  Vectors parts = vectors;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (float& x : parts[i]) x *= shares[i];
  }
  const double want = PairSimilarity(parts);
  EXPECT_GT(want, 0.1);
  EXPECT_LT(want, 0.5);
  EXPECT_THAT(StepSimilarity(vectors, shares),
              Optional(DoubleNear(want, 1e-6)));
  // Three vectors of one length have at least this similarity.
  const float s = std::sqrt(0.75f);
  EXPECT_THAT(
      StepSimilarity({{1, 0}, {-0.5f, s}, {-0.5f, -s}}, {0.25f, 0.25f, 0.25f}),
      Optional(DoubleNear(-0.5, 1e-6)));
}

// One contribution has a large norm in one radial tensor, which changes its
// weight there; values at both ends are in no tensor.
TEST(SimilarityTest, RadialPartsAreAsTheyAreMerged) {
  constexpr size_t kSize = 9000;
  Vectors vectors = {Values(kSize, 1), Values(kSize, 1), Values(kSize, 3)};
  for (size_t k = 100; k < 1000; ++k) vectors[0][k] *= 50;
  for (size_t k = 0; k < kSize; ++k) vectors[1][k] += 0.5f * vectors[2][k];
  const std::vector<float> shares = {0.5f, 0.3f, 0.2f};
  const std::vector<ValueRange> tensors = {{100, 1000}, {1000, 8000}};
  Vectors parts = vectors;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (float& x : parts[i]) x *= shares[i];
    for (const ValueRange& tensor : tensors) {
      // A common factor of a tensor's parts, the length of its g over |u|.
      double length = 0;
      std::vector<float> u(tensor.end - tensor.begin);
      for (size_t j = 0; j < vectors.size(); ++j) {
        const double norm =
            Norm(absl::MakeSpan(vectors[j])
                     .subspan(tensor.begin, tensor.end - tensor.begin));
        length += shares[j] * norm;
        for (size_t k = 0; k < u.size(); ++k) {
          u[k] += static_cast<float>(shares[j] / norm *
                                     vectors[j][tensor.begin + k]);
        }
      }
      const double own =
          Norm(absl::MakeSpan(vectors[i])
                   .subspan(tensor.begin, tensor.end - tensor.begin));
      for (uint64_t k = tensor.begin; k < tensor.end; ++k) {
        parts[i][k] = static_cast<float>(shares[i] * vectors[i][k] / own *
                                         length / Norm(u));
      }
    }
  }
  EXPECT_THAT(StepSimilarity(vectors, shares, tensors),
              Optional(DoubleNear(PairSimilarity(parts), 1e-5)));
}

TEST(SimilarityTest, OnePartHasNone) {
  EXPECT_EQ(StepSimilarity({{1, 2}}, {1}), std::nullopt);
  EXPECT_EQ(StepSimilarity({{0.1f, 0.2f}, {0, 0}}, {0.3f, 0.7f}), std::nullopt);
  EXPECT_EQ(StepSimilarity({{0.1f, 0.2f}, {3, 4}}, {1, 0}), std::nullopt);
  EXPECT_EQ(StepSimilarity({{0, 0}, {0, 0}}, {0.5f, 0.5f}), std::nullopt);
}

TEST(SimilarityTest, UnknownNormsGiveNone) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const MergeWeights weights = {.shares = {0.5f, 0.5f}};
  EXPECT_EQ(Similarity(weights, {kNaN, 1}, 1), std::nullopt);
  EXPECT_EQ(Similarity(weights, {kInfinity, 1}, 1), std::nullopt);
  EXPECT_EQ(Similarity(weights, {1, 1}, kInfinity), std::nullopt);
  // Rounding may not leave [-1, 1].
  EXPECT_THAT(Similarity(weights, {1, 1}, 1.0000001), Optional(1));
}

}  // namespace
}  // namespace causeway
