// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/cuda/testing/block_kernels_suite.h"

#include <cmath>
#include <random>
#include <tuple>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "quantization/formats/testing/block_reference.h"
#include "quantization/formats/testing/block_values.h"
#include "quantization/strips/layout.h"

namespace causeway {
namespace {

// Whole units and a rest; together less than a strip.
constexpr uint64_t kValues = 20 * kLaneUnit + 77;
// The number of guard bytes and values behind arrays, which must not change.
constexpr size_t kGuardBytes = 64;
constexpr size_t kGuardValues = 16;
constexpr float kGuard = 12345;

// Lengths around units, groups of codes and strips.
constexpr uint64_t kLengths[] = {1,
                                 3,
                                 63,
                                 64,
                                 65,
                                 127,
                                 129,
                                 255,
                                 256,
                                 257,
                                 1000,
                                 1024,
                                 kStripValues - 1,
                                 kStripValues,
                                 kStripValues + 1,
                                 kStripValues + 300,
                                 2 * kStripValues + 64 * 13 + 5};

class BlockKernelsSuite
    : public testing::TestWithParam<std::tuple<BlockFormat, uint32_t>> {
 protected:
  void SetUp() override {
    kernels_ = NewBlockKernelsUnderTest();
    if (kernels_ == nullptr) GTEST_SKIP() << "cannot run here";
  }

  uint64_t StripBytes(uint64_t values) const {
    return ScalePlaneBytes(values, spec_.block_size) +
           CodePlaneBytes(spec_.format, values);
  }
  std::string ReferenceEncoding(absl::Span<const float> values) const {
    std::string encoded;
    for (uint64_t begin = 0; begin < values.size(); begin += kStripValues) {
      encoded += EncodeBlocks(spec_.format, spec_.block_size,
                              values.subspan(begin, kStripValues));
    }
    return encoded;
  }
  std::vector<float> ReferenceDecoding(absl::string_view encoded,
                                       uint64_t count) const {
    std::vector<float> values;
    for (uint64_t strip = 0; strip < StripCount(count); ++strip) {
      const uint64_t in_strip = ValuesOfStrip(strip, count);
      const std::vector<float> decoded =
          DecodeBlocks(spec_.format, spec_.block_size,
                       encoded.substr(strip * StripBytes(kStripValues),
                                      StripBytes(in_strip)),
                       in_strip);
      values.insert(values.end(), decoded.begin(), decoded.end());
    }
    return values;
  }

  // Expects the reference's bytes and values, and nothing written behind them.
  void ExpectEncodesAndDecodesAsReference(const std::vector<float>& values);
  void ExpectDecodesAsReference(const std::string& encoded, uint64_t count);

  const BlockSpec spec_ = {std::get<0>(GetParam()), std::get<1>(GetParam())};
  std::unique_ptr<BlockKernelsUnderTest> kernels_;
};

INSTANTIATE_TEST_SUITE_P(AllFormats, BlockKernelsSuite,
                         testing::Combine(testing::ValuesIn(kAllBlockFormats),
                                          testing::Values(64, 128, 256)),
                         [](const auto& info) {
                           return std::string(BlockFormatName(
                                      std::get<0>(info.param))) +
                                  std::to_string(std::get<1>(info.param));
                         });

void BlockKernelsSuite::ExpectDecodesAsReference(const std::string& encoded,
                                                 uint64_t count) {
  const std::vector<float> decoded = ReferenceDecoding(encoded, count);
  // Adds to zeros, and to values whose sums are rounded.
  for (const float deviation : {0.0f, 0.02f}) {
    std::vector<float> values = GaussianValues(count, 12, deviation);
    values.resize(count + kGuardValues, kGuard);
    std::vector<float> want = values;
    for (uint64_t i = 0; i < count; ++i) want[i] += decoded[i];
    kernels_->DecodeAdd(spec_, encoded, count, values);
    EXPECT_EQ(BitsOf(values), BitsOf(want)) << count << " values";
  }
}

void BlockKernelsSuite::ExpectEncodesAndDecodesAsReference(
    const std::vector<float>& values) {
  const std::string want = ReferenceEncoding(values);
  std::string encoded(want.size() + kGuardBytes, 'x');
  kernels_->EncodeDifference(spec_, values, std::vector<float>(values.size()),
                             values.size(), encoded);
  EXPECT_EQ(encoded, want + std::string(kGuardBytes, 'x'))
      << values.size() << " values";
  ExpectDecodesAsReference(want, values.size());
}

TEST_P(BlockKernelsSuite, LengthsAroundUnitsAndStrips) {
  for (const uint64_t count : kLengths) {
    ExpectEncodesAndDecodesAsReference(GaussianValues(count, 1, 3e-4f));
  }
}

TEST_P(BlockKernelsSuite, GaussianValuesOfAnyMagnitude) {
  for (const float deviation : {1e-37f, 1e-30f, 1.0f, 1e37f}) {
    ExpectEncodesAndDecodesAsReference(GaussianValues(kValues, 2, deviation));
  }
}

TEST_P(BlockKernelsSuite, FiniteFloatsOfAnyBits) {
  ExpectEncodesAndDecodesAsReference(ValuesOfAnyBits(kValues));
}

TEST_P(BlockKernelsSuite, DenormalsAndTheSmallestScales) {
  ExpectEncodesAndDecodesAsReference(DenormalValues(kValues));
}

TEST_P(BlockKernelsSuite, HugeOutliersAndTheLargestFloats) {
  ExpectEncodesAndDecodesAsReference(ValuesWithOutliers(kValues));
}

TEST_P(BlockKernelsSuite, ValuesAtHalfWaysBetweenLevels) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    ExpectEncodesAndDecodesAsReference(
        ValuesBetweenLevels(spec_.format, spec_.block_size, kValues, seed));
  }
}

TEST_P(BlockKernelsSuite, BlocksWithoutAUsableScale) {
  for (const float bad : {0.0f, -0.0f, 0x1p-149f, INFINITY, -INFINITY, NAN}) {
    ExpectEncodesAndDecodesAsReference(
        ValuesWithBad(bad, spec_.block_size, kValues));
  }
}

TEST_P(BlockKernelsSuite, DecodesEveryCodeWithScalesOfAllKinds) {
  // Scales include those that no encoder writes: denormal, negative, too large,
  // and not finite.
  std::mt19937 random(8);
  for (const uint64_t count : {kValues, kStripValues + 300}) {
    std::string encoded(ReferenceEncoding(std::vector<float>(count)).size(), 0);
    for (char& byte : encoded) byte = static_cast<char>(random());
    for (size_t i = 0; i < 256; ++i) {
      encoded[ScalePlaneBytes(count, 64) + i] = static_cast<char>(i);
    }
    ExpectDecodesAsReference(encoded, count);
  }
}

TEST_P(BlockKernelsSuite, EncodesDifferences) {
  for (const uint64_t count :
       {uint64_t{5}, uint64_t{1024}, kStripValues + 300}) {
    const std::vector<float> anchor = GaussianValues(count, 9, 0.02f);
    const std::vector<float> parameters = GaussianValues(count, 10, 0.02f);
    std::vector<float> difference(count);
    for (uint64_t i = 0; i < count; ++i) {
      difference[i] = anchor[i] - parameters[i];
    }
    const std::string want = ReferenceEncoding(difference);
    std::string encoded(want.size() + kGuardBytes, 'x');
    kernels_->EncodeDifference(spec_, anchor, parameters, count, encoded);
    EXPECT_EQ(encoded, want + std::string(kGuardBytes, 'x')) << count;
  }
}

TEST_P(BlockKernelsSuite, NoValuesTouchNoMemory) {
  std::string encoded(kGuardBytes, 'x');
  std::vector<float> values(kGuardValues, kGuard);
  kernels_->EncodeDifference(spec_, values, values, 0, encoded);
  kernels_->DecodeAdd(spec_, encoded, 0, values);
  EXPECT_EQ(encoded, std::string(kGuardBytes, 'x'));
  EXPECT_EQ(values, std::vector<float>(kGuardValues, kGuard));
}

}  // namespace
}  // namespace causeway
