// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/outer_kernels.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"

namespace causeway {
namespace {

constexpr StepCoefficients kCoefficients = {.learning_rate = 0.7f,
                                            .momentum = 0.9f};
// Enough for whole vectors and every length of rest, with any start.
constexpr size_t kMost = 67;

// Runs every test once for each instruction set that this machine has.
class OuterKernelsTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, OuterKernelsTest,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const testing::TestParamInfo<int64_t>& info) {
                           return std::string(hwy::TargetName(info.param));
                         });

std::vector<float> Values(size_t count, uint32_t seed) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-33f;
  }
  return values;
}

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), 4 * values.size());
  return bits;
}

TEST_P(OuterKernelsTest, SumOfSquaresHasItsDefinedOrder) {
  const std::vector<float> values = Values(1000, 1);
  for (const size_t count : {0, 1, 15, 16, 17, 33, 64, 999, 1000}) {
    double sums[16] = {};
    for (size_t i = 0; i < count; ++i) {
      const double value = values[i];
      const double square = value * value;
      sums[i % 16] += square;
    }
    double want = 0;
    for (const double sum : sums) want += sum;
    EXPECT_EQ(SumOfSquares(values.data(), count), want) << count;
  }
}

TEST_P(OuterKernelsTest, SumOfSquaresCannotOverflow) {
  const std::vector<float> values(100, std::numeric_limits<float>::max());
  EXPECT_GT(SumOfSquares(values.data(), values.size()), 1e78);
  EXPECT_LT(SumOfSquares(values.data(), values.size()), 1e80);
}

TEST_P(OuterKernelsTest, SgdEqualsItsFormula) {
  for (size_t count = 0; count <= kMost; ++count) {
    std::vector<float> got = Values(kMost, 2);
    std::vector<float> want = got;
    SgdChange(kCoefficients, got.data(), count);
    for (size_t i = 0; i < count; ++i) want[i] = -0.7f * want[i];
    ASSERT_EQ(Bits(got), Bits(want)) << count;
  }
}

TEST_P(OuterKernelsTest, MomentumMethodsEqualTheirFormulas) {
  for (size_t count = 0; count <= kMost; ++count) {
    for (const bool nesterov : {false, true}) {
      std::vector<float> gradient = Values(kMost, 3);
      const std::vector<float> old_momentum = Values(kMost, 4);
      std::vector<float> momentum(kMost, 77);
      std::vector<float> want_change = gradient;
      std::vector<float> want_momentum = momentum;
      (nesterov ? NesterovChange : HeavyBallChange)(
          kCoefficients, gradient.data(), old_momentum.data(), momentum.data(),
          count);
      for (size_t i = 0; i < count; ++i) {
        const float decayed = 0.9f * old_momentum[i];
        const float m = decayed + want_change[i];
        want_momentum[i] = m;
        const float ahead = 0.9f * m;
        const float direction = nesterov ? want_change[i] + ahead : m;
        want_change[i] = -0.7f * direction;
      }
      ASSERT_EQ(Bits(gradient), Bits(want_change)) << count;
      ASSERT_EQ(Bits(momentum), Bits(want_momentum)) << count;
    }
  }
}

TEST_P(OuterKernelsTest, AddResidualAdds) {
  for (size_t count = 0; count <= kMost; ++count) {
    const std::vector<float> residual = Values(kMost, 5);
    std::vector<float> change = Values(kMost, 6);
    std::vector<float> want = change;
    AddResidual(residual.data(), change.data(), count);
    for (size_t i = 0; i < count; ++i) want[i] += residual[i];
    ASSERT_EQ(Bits(change), Bits(want)) << count;
  }
}

TEST_P(OuterKernelsTest, ApplyDecodedMovesThetaAndKeepsTheRest) {
  const std::vector<float> change = Values(kMost, 7);
  const std::vector<float> decoded = Values(kMost, 8);
  const std::vector<float> old_theta = Values(kMost, 9);
  for (size_t count = 0; count <= kMost; ++count) {
    std::vector<float> theta(kMost, 77);
    std::vector<float> residual(kMost, 78);
    EXPECT_TRUE(ApplyDecoded(change.data(), decoded.data(), old_theta.data(),
                             theta.data(), residual.data(), count));
    std::vector<float> want_theta(kMost, 77);
    std::vector<float> want_residual(kMost, 78);
    for (size_t i = 0; i < count; ++i) {
      want_theta[i] = old_theta[i] + decoded[i];
      want_residual[i] = change[i] - decoded[i];
    }
    ASSERT_EQ(Bits(theta), Bits(want_theta)) << count;
    ASSERT_EQ(Bits(residual), Bits(want_residual)) << count;
    std::vector<float> in_place = old_theta;
    EXPECT_TRUE(ApplyDecoded(change.data(), decoded.data(), in_place.data(),
                             in_place.data(), nullptr, count));
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(in_place[i], want_theta[i]);
  }
}

TEST_P(OuterKernelsTest, ApplyDecodedFindsOneNonFiniteValueAnywhere) {
  const std::vector<float> finite(kMost, 3e38f);
  const std::vector<float> zeros(kMost, 0.0f);
  std::vector<float> out(kMost);
  const auto apply = [&](const std::vector<float>& change,
                         const std::vector<float>& decoded,
                         const std::vector<float>& theta, size_t count) {
    return ApplyDecoded(change.data(), decoded.data(), theta.data(), out.data(),
                        nullptr, count);
  };
  for (size_t count = 1; count <= kMost; ++count) {
    ASSERT_TRUE(apply(finite, finite, zeros, count));
    for (size_t i = 0; i < count; ++i) {
      std::vector<float> bad = zeros;
      bad[i] = std::numeric_limits<float>::infinity();
      ASSERT_FALSE(apply(bad, zeros, zeros, count));
      ASSERT_FALSE(apply(zeros, bad, zeros, count));
      bad[i] = std::numeric_limits<float>::quiet_NaN();
      ASSERT_FALSE(apply(zeros, zeros, bad, count));
      // Finite terms whose sum is not.
      bad[i] = 3e38f;
      ASSERT_FALSE(apply(zeros, bad, bad, count));
    }
  }
}

}  // namespace
}  // namespace causeway
