// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/block_kernels_cpu.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "common/testing/highway_targets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "quantization/formats/dense_reference.h"
#include "quantization/formats/testing/block_reference.h"

namespace causeway {
namespace {

constexpr size_t kUnits = 20;
constexpr size_t kValues = kUnits * kBlockUnit;

const char* BlockFormatName(BlockFormat format) {
  switch (format) {
    case BlockFormat::kInt8:
      return "Int8";
    case BlockFormat::kInt4:
      return "Int4";
    case BlockFormat::kE3m0:
      return "E3m0";
  }
  return "";
}

// Returns the bits to compare: the payload of a NaN is not part of the
// contract.
std::vector<uint32_t> BitsOf(absl::Span<const float> values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) {
    bits.push_back(std::isnan(value) ? 0x7fc00000
                                     : std::bit_cast<uint32_t>(value));
  }
  return bits;
}

std::vector<float> Gaussian(uint32_t seed, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(kValues);
  for (float& value : values) value = normal(random);
  return values;
}

// Returns finite floats of any bits. One outlier of a block sets its scale, and
// most others are far below it.
std::vector<float> ValuesOfAnyBits() {
  std::mt19937 random(2);
  std::vector<float> values;
  while (values.size() < kValues) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(value)) values.push_back(value);
  }
  return values;
}

// Returns magnitudes from 0 to beyond the least block that is not flushed.
std::vector<float> DenormalValues() {
  std::mt19937 random(3);
  std::vector<float> values(kValues);
  for (size_t i = 0; i < kValues; ++i) {
    const float limit = i / 256 % 2 == 0 ? 0x1p-126f : 0x1p-91f;
    values[i] = std::ldexp(limit, -static_cast<int>(random() % 24)) *
                (random() % 2 == 0 ? 1.0f : -1.0f);
  }
  return values;
}

// Returns small values and, here and there, the largest floats.
std::vector<float> ValuesWithOutliers() {
  std::vector<float> values = Gaussian(4, 1e-3f);
  const float largest = std::numeric_limits<float>::max();
  for (size_t i = 7; i < kValues; i += 200) {
    values[i] = i % 3 == 0 ? largest : i % 3 == 1 ? -3.3e38f : 1e10f;
  }
  return values;
}

// Returns values half-way between two levels of `format` under scales of eight
// significant bits, where half-ways are exact, and the floats around them.
std::vector<float> ValuesBetweenLevels(BlockFormat format, uint32_t block_size,
                                       uint32_t seed) {
  std::mt19937 random(seed);
  const uint32_t codes = 1u << CodeBits(format);
  const auto random_level = [&] {
    return DecodeValue(format, Bf16FromFloat(1),
                       static_cast<uint8_t>(random() % codes));
  };
  std::vector<float> values(kValues);
  float scale = 1;
  for (size_t i = 0; i < kValues; ++i) {
    if (i % block_size == 0) {
      scale = std::ldexp(static_cast<float>(128 + random() % 128),
                         static_cast<int>(random() % 20) - 10);
      values[i] = TopLevel(format) * scale;
      continue;
    }
    float value = (random_level() + random_level()) / 2 * scale;
    if (!(std::fabs(value) < TopLevel(format) * scale)) value = 0;
    const float toward = random() % 2 == 0 ? -INFINITY : INFINITY;
    for (uint64_t k = random() % 3; k > 0; --k) {
      value = std::nextafter(value, toward);
    }
    values[i] = value;
  }
  return values;
}

// Returns values in which every second block has only the value `bad`, and some
// of the other blocks have it once.
std::vector<float> ValuesWithBad(float bad, uint32_t block_size) {
  std::vector<float> values = Gaussian(6, 1.0f);
  for (size_t i = 0; i < kValues; ++i) {
    if (i / block_size % 2 == 0 || i % 1111 == 0) values[i] = bad;
  }
  return values;
}

// Runs every test for each instruction set that this machine has, each format
// and each block size.
class BlockKernelsTest : public testing::TestWithParam<
                             std::tuple<int64_t, BlockFormat, uint32_t>> {
 protected:
  const ScopedHighwayTarget target_{std::get<0>(GetParam())};

  size_t ScaleBytes() const { return ScalePlaneBytes(kValues, block_size_); }
  size_t CodeBytes() const { return CodePlaneBytes(format_, kValues); }

  // Returns random bytes; each of the 256 is among the codes.
  std::string RandomEncoding(std::mt19937& random) const {
    std::string encoded(ScaleBytes() + CodeBytes(), '\0');
    for (char& byte : encoded) byte = static_cast<char>(random());
    for (size_t i = 0; i < 256; ++i) {
      encoded[ScaleBytes() + i] = static_cast<char>(i);
    }
    return encoded;
  }

  // Expects the reference's bytes, and its decoded values from both the encoder
  // and the decoder.
  void ExpectAsReference(const std::vector<float>& values);

  const BlockFormat format_ = std::get<1>(GetParam());
  const uint32_t block_size_ = std::get<2>(GetParam());
  const BlockKernels* const kernels_ = &CpuBlockKernels(format_);
};

INSTANTIATE_TEST_SUITE_P(
    Targets, BlockKernelsTest,
    testing::Combine(testing::ValuesIn(HighwayTargets()),
                     testing::Values(BlockFormat::kInt8, BlockFormat::kInt4,
                                     BlockFormat::kE3m0),
                     testing::Values(64, 128, 256)),
    [](const auto& info) {
      return std::string(hwy::TargetName(std::get<0>(info.param))) + "_" +
             BlockFormatName(std::get<1>(info.param)) + "_" +
             std::to_string(std::get<2>(info.param));
    });

void BlockKernelsTest::ExpectAsReference(const std::vector<float>& values) {
  ASSERT_EQ(values.size(), kValues);
  const std::string want = EncodeBlocks(format_, block_size_, values);
  const std::vector<float> want_decoded =
      DecodeBlocks(format_, block_size_, want, kValues);
  // The arrays are unaligned, and have room to show writes beyond the end.
  std::string scales(ScaleBytes() + 2, 'x');
  std::string codes(CodeBytes() + 2, 'x');
  std::vector<float> decoded(kValues);
  kernels_->encode(block_size_, kUnits, values.data(), scales.data() + 1,
                   codes.data() + 1, decoded.data());
  EXPECT_EQ(scales, "x" + want.substr(0, ScaleBytes()) + "x");
  EXPECT_EQ(codes, "x" + want.substr(ScaleBytes()) + "x");
  EXPECT_EQ(BitsOf(decoded), BitsOf(want_decoded));

  std::string scales_only(ScaleBytes(), 'x');
  std::string codes_only(CodeBytes(), 'x');
  kernels_->encode(block_size_, kUnits, values.data(), scales_only.data(),
                   codes_only.data(), nullptr);
  EXPECT_EQ(scales_only + codes_only, want);

  std::vector<float> in_place = values;
  kernels_->encode(block_size_, kUnits, in_place.data(), scales.data(),
                   codes.data(), in_place.data());
  EXPECT_EQ(BitsOf(in_place), BitsOf(want_decoded));

  std::vector<float> separately(kValues);
  kernels_->decode(block_size_, kUnits, want.data(), want.data() + ScaleBytes(),
                   separately.data());
  EXPECT_EQ(BitsOf(separately), BitsOf(want_decoded));
}

TEST_P(BlockKernelsTest, EncodesGaussianValuesOfAnyMagnitude) {
  for (const float deviation : {1e-37f, 1e-30f, 3e-4f, 1.0f, 1e37f}) {
    ExpectAsReference(Gaussian(1, deviation));
  }
}

TEST_P(BlockKernelsTest, EncodesFiniteFloatsOfAnyBits) {
  ExpectAsReference(ValuesOfAnyBits());
}

TEST_P(BlockKernelsTest, EncodesDenormalsAndTheSmallestScales) {
  ExpectAsReference(DenormalValues());
}

TEST_P(BlockKernelsTest, EncodesHugeOutliersAndTheLargestFloats) {
  ExpectAsReference(ValuesWithOutliers());
}

TEST_P(BlockKernelsTest, RoundsValuesBetweenLevelsAsTheReference) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    ExpectAsReference(ValuesBetweenLevels(format_, block_size_, seed));
  }
}

TEST_P(BlockKernelsTest, BlocksWithoutAUsableScaleHaveNoCodes) {
  for (const float bad : {0.0f, -0.0f, 0x1p-149f, INFINITY, -INFINITY, NAN}) {
    ExpectAsReference(ValuesWithBad(bad, block_size_));
  }
  ExpectAsReference(std::vector<float>(kValues));
}

TEST_P(BlockKernelsTest, DecodesEveryCodeWithScalesOfAllKinds) {
  // All bytes occur in every position, and scales include those that no encoder
  // writes: denormal, negative, too large, and not finite.
  std::mt19937 random(7);
  for (int round = 0; round < 8; ++round) {
    const std::string encoded = RandomEncoding(random);
    const std::vector<float> want =
        DecodeBlocks(format_, block_size_, encoded, kValues);
    std::vector<float> got(kValues);
    kernels_->decode(block_size_, kUnits, encoded.data(),
                     encoded.data() + ScaleBytes(), got.data());
    ASSERT_EQ(BitsOf(got), BitsOf(want));
  }
}

// Sums have no term, one, or several with weights that are negative or make
// negative zeros.
TEST_P(BlockKernelsTest, SumsAsTheReference) {
  const float weights[] = {0.3f, -1.7f, -0.0f, 1e-3f, 0.25f};
  std::vector<std::string> encoded;
  std::vector<WeightedPart> terms;
  std::vector<float> want(kValues);
  for (size_t count = 0; count <= std::size(weights); ++count) {
    // The array is unaligned, and has room to show writes beyond the end.
    std::vector<float> got(kValues + 2, 77);
    kernels_->sum(block_size_, kUnits, terms.data(), count, got.data() + 1);
    EXPECT_EQ(got.front(), 77);
    EXPECT_EQ(got.back(), 77);
    ASSERT_EQ(BitsOf(absl::MakeConstSpan(got).subspan(1, kValues)),
              BitsOf(want))
        << count;
    if (count == std::size(weights)) break;
    const std::vector<float> values =
        Gaussian(10 + static_cast<uint32_t>(count), 0.01f);
    encoded.push_back("x" + EncodeBlocks(format_, block_size_, values));
    const std::vector<float> decoded =
        DecodeBlocks(format_, block_size_, encoded.back().substr(1), kValues);
    for (size_t i = 0; i < kValues; ++i) {
      want[i] = Accumulate(want[i], weights[count], decoded[i]);
    }
    terms.clear();
    for (size_t i = 0; i <= count; ++i) {
      const char* const scales = encoded[i].data() + 1;
      terms.push_back({{scales, scales + ScaleBytes()}, weights[i]});
    }
  }
}

// Tests every code where weight times scale is near the ends of the range that
// a kernel may treat as one factor, and beyond.
TEST_P(BlockKernelsTest, SumsProductsOfAnyMagnitude) {
  std::mt19937 random(12);
  std::string encoded = RandomEncoding(random);
  for (size_t i = 0; i < ScaleBytes(); i += 2) {
    // The scales are in [1, 2), or zero.
    const uint32_t scale = random() % 8 == 0 ? 0 : 0x3f80 + random() % 0x80;
    encoded[i] = static_cast<char>(scale);
    encoded[i + 1] = static_cast<char>(scale >> 8);
  }
  const char* const scales = encoded.data();
  const char* const codes = scales + ScaleBytes();
  const std::vector<float> values =
      DecodeBlocks(format_, block_size_, encoded, kValues);
  for (const int exponent :
       {-149, -127, -126, -121, -120, -119, -118, -100, 0, 5, 6, 7, 8, 100}) {
    const float weight =
        std::ldexp(static_cast<float>(128 + random() % 128), exponent - 7);
    std::vector<WeightedPart> terms;
    std::vector<float> want(kValues);
    for (const float term : {weight, 0.7f * weight, 0.3f}) {
      terms.push_back({{.scales = scales, .codes = codes}, term});
      std::vector<float> sum(kValues);
      kernels_->sum(block_size_, kUnits, terms.data(), terms.size(),
                    sum.data());
      for (size_t i = 0; i < kValues; ++i) {
        want[i] = Accumulate(want[i], term, values[i]);
      }
      ASSERT_EQ(BitsOf(sum), BitsOf(want)) << exponent << " " << terms.size();
    }
  }
}

// Tests every code under scales of any magnitude that a reader accepts.
TEST_P(BlockKernelsTest, SquaresAreSummedWithoutRounding) {
  std::mt19937 random(11);
  std::string encoded = RandomEncoding(random);
  for (size_t i = 0; i < ScaleBytes(); i += 2) {
    const uint32_t scale = random() % (LargestScale(format_) + 1u);
    encoded[i] = static_cast<char>(scale);
    encoded[i + 1] = static_cast<char>(scale >> 8);
  }
  // All codes have the largest level, whose squares have the largest sum.
  for (size_t i = 512; i < 1024; ++i) {
    encoded[ScaleBytes() + i] =
        static_cast<char>(format_ == BlockFormat::kInt4   ? 0x88
                          : format_ == BlockFormat::kInt8 ? 0x80
                                                          : 0x77);
  }
  const std::vector<float> values =
      DecodeBlocks(format_, block_size_, encoded, kValues);
  double want = 0;
  for (size_t at = 0; at < kValues; at += block_size_) {
    want +=
        SumOfBlockSquares(absl::MakeConstSpan(values).subspan(at, block_size_));
  }
  // This makes the encoding unaligned.
  encoded = "x" + encoded;
  const char* const scales = encoded.data() + 1;
  EXPECT_EQ(kernels_->sum_of_squares(block_size_, kUnits, scales,
                                     scales + ScaleBytes()),
            want);
}

TEST_P(BlockKernelsTest, NoUnitsTouchNoMemory) {
  kernels_->encode(block_size_, 0, nullptr, nullptr, nullptr, nullptr);
  kernels_->decode(block_size_, 0, nullptr, nullptr, nullptr);
  kernels_->sum(block_size_, 0, nullptr, 0, nullptr);
}

}  // namespace
}  // namespace causeway
