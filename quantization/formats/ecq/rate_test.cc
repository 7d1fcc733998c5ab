// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures the size and the error of ECQ's encodings, from end to end, on
// values of several distributions.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/fragment.pb.h"
#include "quantization/codec.h"
#include "quantization/strips/layout.h"
#include "quantization/testing/whole_vectors.h"

namespace causeway {
namespace {

constexpr CodecSpec kEcq{.format = v1::ECQ, .entropy_coded = true};
constexpr size_t kValues = 4 * kStripValues;

enum class Shape { kGaussian, kLaplace, kStudentT4, kLoudAndQuiet };

std::vector<float> Values(Shape shape) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::exponential_distribution<float> exponential;
  std::student_t_distribution<float> student_t(4);
  std::vector<float> values(kValues);
  float deviation = 1;
  for (size_t i = 0; i < kValues; ++i) {
    switch (shape) {
      case Shape::kGaussian:
        values[i] = 3e-4f * normal(random);
        break;
      case Shape::kLaplace:
        values[i] = exponential(random) * (random() % 2 == 0 ? 1.0f : -1.0f);
        break;
      case Shape::kStudentT4:
        values[i] = 1e10f * student_t(random);
        break;
      case Shape::kLoudAndQuiet:
        if (i % 256 == 0) deviation = std::exp(normal(random));
        values[i] = deviation * normal(random);
        break;
    }
  }
  return values;
}

struct Outcome {
  double bits_per_value;
  double distortion;
};

Outcome Measure(absl::Span<const float> values, const EncodeOptions& options) {
  const std::string encoded = Encode(kEcq, values, options).value();
  std::vector<float> decoded(values.size());
  EXPECT_OK(Decode(kEcq, encoded, absl::MakeSpan(decoded)));
  double error = 0;
  double power = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += std::pow(double{values[i]} - decoded[i], 2);
    power += std::pow(double{values[i]}, 2);
  }
  return {8.0 * static_cast<double>(encoded.size()) /
              static_cast<double>(values.size()),
          error / power};
}

class EcqRateTest : public testing::TestWithParam<Shape> {};

INSTANTIATE_TEST_SUITE_P(Shapes, EcqRateTest,
                         testing::Values(Shape::kGaussian, Shape::kLaplace,
                                         Shape::kStudentT4,
                                         Shape::kLoudAndQuiet));

TEST_P(EcqRateTest, MeetsTheRate) {
  const std::vector<float> values = Values(GetParam());
  for (const double bits : {0.5, 1.0, 1.5, 2.0, 3.0, 4.5}) {
    EXPECT_NEAR(Measure(values, {.ecq_bits = bits}).bits_per_value / bits, 1,
                0.02)
        << bits;
  }
}

TEST_P(EcqRateTest, MeetsTheDistortion) {
  const std::vector<float> values = Values(GetParam());
  for (const double distortion : {0.003, 0.035, 0.1, 0.4}) {
    EXPECT_NEAR(
        Measure(values, {.ecq_distortion = distortion}).distortion / distortion,
        1, 0.03)
        << distortion;
  }
}

TEST_P(EcqRateTest, SparesBitsWhereThereIsStructure) {
  // The distortion is that of E3M0 on Gaussian values, which takes 4.06 bits.
  EXPECT_LT(
      Measure(Values(GetParam()), {.ecq_distortion = 0.037}).bits_per_value,
      2.75);
}

// No code for Gaussian values has a rate below log2(1 / distortion) / 2.
// Uniform quantizers need 0.255 bits more where steps are small, less where
// they are large.
TEST(EcqGaussianTest, IsAsNearToTheBoundAsUniformQuantizersGet) {
  const std::vector<float> values = Values(Shape::kGaussian);
  const double scales_and_overhead = 16.0 / 256 + 8.0 * 124 / kStripValues;
  for (const double distortion : {0.01, 0.1, 0.4}) {
    const double bound = -std::log2(distortion) / 2;
    const double excess =
        Measure(values, {.ecq_distortion = distortion}).bits_per_value -
        scales_and_overhead - bound;
    EXPECT_LT(excess, 0.265) << distortion;
    EXPECT_GT(excess, 0.1) << distortion;
  }
}

TEST(EcqDegenerateTest, ValuesThatAreAllAlike) {
  for (const float value : {0.0f, 1e-30f, -2.5f, 3e38f}) {
    const std::vector<float> values(1000, value);
    const std::string encoded = Encode(kEcq, values).value();
    std::vector<float> decoded(values.size());
    ASSERT_OK(Decode(kEcq, encoded, absl::MakeSpan(decoded)));
    for (const float got : decoded) EXPECT_EQ(got, decoded[0]);
    EXPECT_NEAR(decoded[0], value, 0.4 * std::fabs(value));
    // One symbol costs nothing.
    EXPECT_LT(encoded.size(), 160u);
  }
}

TEST(EcqDegenerateTest, OneHugeOutlierSparesTheOtherBlocks) {
  std::vector<float> values = Values(Shape::kGaussian);
  values[70000] = 1e30f;
  const std::string encoded =
      Encode(kEcq, values, {.ecq_distortion = 0.01}).value();
  std::vector<float> decoded(values.size());
  ASSERT_OK(Decode(kEcq, encoded, absl::MakeSpan(decoded)));
  // This value is nearly all of its strip's power.
  EXPECT_NEAR(decoded[70000] / 1e30, 1, 0.1);
  // The distortion allows that the other values of its strip are lost, but not
  // those of other strips.
  double error = 0;
  double power = 0;
  for (size_t i = 0; i < kStripValues; ++i) {
    error += std::pow(double{values[i]} - decoded[i], 2);
    power += std::pow(double{values[i]}, 2);
  }
  EXPECT_NEAR(error / power / 0.01, 1, 0.03);
}

TEST(EcqDegenerateTest, DenormalsBecomeZeros) {
  const std::vector<float> values(300, 0x1p-140f);
  std::vector<float> decoded(values.size(), 1.0f);
  ASSERT_OK(
      Decode(kEcq, Encode(kEcq, values).value(), absl::MakeSpan(decoded)));
  for (const float value : decoded) EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace causeway
