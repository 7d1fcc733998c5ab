// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/rules/contribution_norm.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::DoubleNear;

// 3, 4 and zeros over several tiles and a last piece that is no whole block.
std::vector<float> Values() {
  std::vector<float> values(10'001, 0);
  values[1] = 3;
  values[10'000] = -4;
  return values;
}

TEST(ContributionNorm, IsTheNormOfWhatIsDecoded) {
  const CodecSpec fp32{.format = v1::FP32};
  ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(fp32, Values()));
  EXPECT_THAT(EncodedNorm(fp32, encoded, Values().size()), IsOkAndHolds(5));

  // The scale is bf16.
  const CodecSpec int8{.format = v1::INT8, .entropy_coded = true};
  ASSERT_OK_AND_ASSIGN(const std::string coded, Encode(int8, Values()));
  EXPECT_THAT(EncodedNorm(int8, coded, Values().size()),
              IsOkAndHolds(DoubleNear(5, 0.05)));
}

TEST(ContributionNorm, DoesNotOverflowAndShowsWhatIsNotFinite) {
  const CodecSpec fp32{.format = v1::FP32};
  std::vector<float> values = Values();
  values[7] = std::numeric_limits<float>::max();
  ASSERT_OK_AND_ASSIGN(const std::string large, Encode(fp32, values));
  ASSERT_OK_AND_ASSIGN(const double norm,
                       EncodedNorm(fp32, large, values.size()));
  EXPECT_EQ(norm, static_cast<double>(std::numeric_limits<float>::max()));

  std::string poisoned = large;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  poisoned.replace(7 * sizeof(nan), sizeof(nan),
                   std::string(reinterpret_cast<const char*>(&nan), 4));
  ASSERT_OK_AND_ASSIGN(const double unknown,
                       EncodedNorm(fp32, poisoned, values.size()));
  EXPECT_FALSE(std::isfinite(unknown));
}

TEST(ContributionNorm, RefusesBytesOfAnotherLength) {
  EXPECT_THAT(EncodedNorm({.format = v1::FP32}, "abc", 1),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace causeway
