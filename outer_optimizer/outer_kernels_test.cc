// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/outer_kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/testing/highway_targets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/aligned_allocator.h"
#include "hwy/highway.h"
#include "outer_optimizer/testing/values.h"

namespace causeway {
namespace {

constexpr StepCoefficients kCoefficients = {.learning_rate = 0.7f,
                                            .momentum_decay = 0.9f,
                                            .intake = 0.25f,
                                            .gradient_share = 0.5f,
                                            .momentum_share = 0.8f};
// Covers whole vectors and every length of the rest, from any start.
constexpr size_t kMost = 67;

// Runs every test once for each instruction set that this machine has.
class OuterKernelsTest : public testing::TestWithParam<int64_t> {
 protected:
  const ScopedHighwayTarget target_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Targets, OuterKernelsTest,
                         testing::ValuesIn(HighwayTargets()),
                         [](const testing::TestParamInfo<int64_t>& info) {
                           return std::string(hwy::TargetName(info.param));
                         });

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), 4 * values.size());
  return bits;
}

// An array of `count` values at a multiple of kStreamAlignment, or one value
// after it.
class Array {
 public:
  Array(const std::vector<float>& values, bool aligned)
      : memory_(hwy::AllocateAligned<float>(values.size() + 1)),
        values_(memory_.get() + (aligned ? 0 : 1), values.size()) {
    std::copy(values.begin(), values.end(), values_.begin());
  }

  float* data() { return values_.data(); }
  std::vector<uint32_t> bits() const {
    return Bits(std::vector<float>(values_.begin(), values_.end()));
  }

 private:
  const hwy::AlignedFreeUniquePtr<float[]> memory_;
  const absl::Span<float> values_;
};

// Tries each part of the state present and absent, streamed and not, in every
// length.
TEST_P(OuterKernelsTest, MakeChangeEqualsItsFormula) {
  const std::vector<float> g = Values(kMost, 3);
  const std::vector<float> m = Values(kMost, 4);
  const std::vector<float> d = Values(kMost, 5);
  const std::vector<float> r = Values(kMost, 6);
  for (size_t count = 0; count <= kMost; ++count) {
    for (int parts = 0; parts < 32; ++parts) {
      const bool has_momentum = parts & 1;
      const bool has_sum = has_momentum && (parts & 2);
      const bool has_residual = parts & 4;
      StepCoefficients by = kCoefficients;
      by.clears_sum = parts & 8;
      std::vector<float> gradient = g;
      Array momentum(std::vector<float>(kMost, 77), parts & 16);
      Array sum(std::vector<float>(kMost, 78), parts & 16);
      MakeChange(by,
                 {.gradient = gradient.data(),
                  .old_momentum = has_momentum ? m.data() : nullptr,
                  .new_momentum = has_momentum ? momentum.data() : nullptr,
                  .old_sum = has_sum ? d.data() : nullptr,
                  .new_sum = has_sum ? sum.data() : nullptr,
                  .residual = has_residual ? r.data() : nullptr},
                 count);
      FlushStreams();

      std::vector<float> want_change = g;
      std::vector<float> want_momentum(kMost, 77);
      std::vector<float> want_sum(kMost, 78);
      for (size_t i = 0; i < count; ++i) {
        float taken = g[i];
        if (has_sum) {
          taken = d[i] + g[i];
          want_sum[i] = by.clears_sum ? 0.0f : taken;
        }
        float direction = 0.5f * g[i];
        if (has_momentum) {
          const float decayed = 0.9f * m[i];
          const float added = 0.25f * taken;
          want_momentum[i] = decayed + added;
          const float ahead = 0.8f * want_momentum[i];
          direction = direction + ahead;
        }
        want_change[i] = -0.7f * direction;
        if (has_residual) want_change[i] += r[i];
      }
      ASSERT_EQ(Bits(gradient), Bits(want_change)) << count << " " << parts;
      ASSERT_EQ(momentum.bits(), Bits(want_momentum)) << count << " " << parts;
      ASSERT_EQ(sum.bits(), Bits(want_sum)) << count << " " << parts;
    }
  }
}

TEST_P(OuterKernelsTest, ApplyDecodedMovesThetaAndKeepsTheRest) {
  const std::vector<float> change = Values(kMost, 7);
  const std::vector<float> decoded = Values(kMost, 8);
  const std::vector<float> old_theta = Values(kMost, 9);
  for (size_t count = 0; count <= kMost; ++count) {
    Array theta(std::vector<float>(kMost, 77), count % 2 == 0);
    Array residual(std::vector<float>(kMost, 78), count % 2 == 0);
    EXPECT_TRUE(ApplyDecoded(change.data(), decoded.data(), old_theta.data(),
                             theta.data(), residual.data(), count));
    FlushStreams();
    std::vector<float> want_theta(kMost, 77);
    std::vector<float> want_residual(kMost, 78);
    for (size_t i = 0; i < count; ++i) {
      want_theta[i] = old_theta[i] + decoded[i];
      want_residual[i] = change[i] - decoded[i];
    }
    ASSERT_EQ(theta.bits(), Bits(want_theta)) << count;
    ASSERT_EQ(residual.bits(), Bits(want_residual)) << count;
    Array alone(std::vector<float>(kMost, 77), count % 2 == 0);
    EXPECT_TRUE(ApplyDecoded(change.data(), decoded.data(), old_theta.data(),
                             alone.data(), nullptr, count));
    FlushStreams();
    ASSERT_EQ(alone.bits(), Bits(want_theta)) << count;
  }
}

TEST_P(OuterKernelsTest, AnIslandsAnchorFollowsTheta) {
  const std::vector<float> change = Values(kMost, 7);
  const std::vector<float> anchor = Values(kMost, 9);
  for (size_t count = 0; count <= kMost; ++count) {
    std::vector<float> moved = change;
    Array next(std::vector<float>(kMost, 77), count % 2 == 0);
    AdvanceAnchor(anchor.data(), moved.data(), next.data(), count);
    FlushStreams();
    std::vector<float> want_moved = change;
    std::vector<float> want_next(kMost, 77);
    for (size_t i = 0; i < count; ++i) {
      want_moved[i] = want_next[i] = anchor[i] + change[i];
    }
    ASSERT_EQ(next.bits(), Bits(want_next)) << count;
    ASSERT_EQ(Bits(moved), Bits(want_moved)) << count;
  }
}

TEST_P(OuterKernelsTest, CopyStateCopiesNothingElse) {
  const std::vector<float> from = Values(kMost, 7);
  for (size_t count = 0; count <= kMost; ++count) {
    Array to(std::vector<float>(kMost, 77), count % 2 == 0);
    CopyState(from.data(), to.data(), count);
    FlushStreams();
    std::vector<float> want(kMost, 77);
    std::copy_n(from.begin(), count, want.begin());
    ASSERT_EQ(to.bits(), Bits(want)) << count;
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
      // The terms are finite, but their sum is not.
      bad[i] = 3e38f;
      ASSERT_FALSE(apply(zeros, bad, bad, count));
    }
  }
}

}  // namespace
}  // namespace causeway
