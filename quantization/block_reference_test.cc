// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/block_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "quantization/encode_options.h"
#include "quantization/philox.h"
#include "quantization/reference.h"

namespace causeway {
namespace {

constexpr BlockFormat kAllFormats[] = {
    BlockFormat::kFp8E4m3, BlockFormat::kInt8, BlockFormat::kInt4,
    BlockFormat::kNf4,     BlockFormat::kE2m1, BlockFormat::kE3m0,
    BlockFormat::kInt2};

constexpr uint16_t kOne = 0x3f80;
constexpr float kLargest = std::numeric_limits<float>::max();

std::string Hex(const std::string& bytes) {
  std::string hex;
  for (const char byte : bytes) {
    hex += "0123456789abcdef"[static_cast<uint8_t>(byte) >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

// Golden vectors are made by block_golden.py in rational arithmetic.
const std::vector<float> kGoldenValues = {
    1.0f,    -0.5f,  0.75f, 0.74f,       0.02f, 0.0078125f, 0.007f,
    -0.001f, 0.0f,   -0.3f, 0.3f,        0.1f,  -0.1f,      -1.0f,
    0.6f,    -0.85f, 0.42f, -0.0234375f, 0.25f};

TEST(BlockGoldenTest, BytesOfStochasticRounding) {
  std::map<BlockFormat, std::string> got;
  for (const BlockFormat format : kAllFormats) {
    got[format] =
        Hex(EncodeBlocks(format, 128, kGoldenValues,
                         {.rounding = Rounding::kStochastic, .seed = 7}));
  }
  EXPECT_EQ(got[BlockFormat::kFp8E4m3],
            "133b7ef67a7a514645ae00f07163e3fd78fb74d36d");
  EXPECT_EQ(got[BlockFormat::kInt8],
            "023c7ec15f5d0301010000da260cf4824c9535fd20");
  EXPECT_EQ(
      got[BlockFormat::kInt4],
      "133e370000000d0000002600000005000000000000000000000000000000000000000000"
      "00000e00000002000000000000000f0000000a000000040000000b000000");
  EXPECT_EQ(
      got[BlockFormat::kNf4],
      "803f58000000fb0000004800000007000000000000000000000000000000000000000000"
      "00000d00000003000000010000000f00000009000000070000000a000000");
  EXPECT_EQ(
      got[BlockFormat::kE2m1],
      "2b3e570000000d0000003600000006000000000000000000000000000000000000000000"
      "00000c0000000400000001000000090000000e000000050000000e000000");
  EXPECT_EQ(
      got[BlockFormat::kE3m0],
      "803f67000000ae0000005600000006000000010000000100000000000000000000000000"
      "00000d00000005000000040000000b0000000f000000060000000e000000");
  EXPECT_EQ(
      got[BlockFormat::kInt2],
      "2a3f010000000f0000000100000001000000000000000000000003000000000000000000"
      "000003000000000000000300000000000000030000000100000003000000");
}

TEST(BlockGoldenTest, BytesOfEachFormat) {
  std::map<BlockFormat, std::string> got;
  for (const BlockFormat format : kAllFormats) {
    got[format] = Hex(EncodeBlocks(format, 128, kGoldenValues));
  }
  EXPECT_EQ(
      got[BlockFormat::kInt2],
      "023f010000000e0000000100000001000000000000000000000000000000030000000000"
      "000003000000000000000000000003000000020000000100000002000000");
  EXPECT_EQ(got[BlockFormat::kFp8E4m3],
            "123b7ef67b7a514645ae00f07063e3fe78fc74d36e");
  EXPECT_EQ(got[BlockFormat::kInt8],
            "013c7fc05f5e0301010000da260df3814c9435fd20");
  EXPECT_EQ(got[BlockFormat::kInt4],
            "123e370000000c00000025000000050000000000000000000000000000000000"
            "0000000000000e00000002000000010000000f00000009000000040000000a00"
            "0000");
  EXPECT_EQ(got[BlockFormat::kNf4],
            "803f580000000b00000037000000070000000000000000000000000000000000"
            "0000000000000d00000004000000010000000f00000009000000060000000900"
            "0000");
  EXPECT_EQ(got[BlockFormat::kE2m1],
            "2b3e570000000d00000036000000060000000000000000000000000000000000"
            "0000000000000c0000000400000001000000090000000f000000060000000f00"
            "0000");
  EXPECT_EQ(got[BlockFormat::kE3m0],
            "803f67000000ae00000057000000060000000100000001000000000000000000"
            "0000000000000d00000005000000040000000c0000000f000000060000000f00"
            "0000");
}

TEST(BlockLayoutTest, CodesOfAGroupLieInSixteenWords) {
  // 300 values of one block size 128: 3 scales, 3 groups. Codes differ by
  // place: value i of a group has level i % 15 - 7.
  std::vector<float> values(300);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(i % 128 % 15) - 7);
  }
  const std::string encoded = EncodeBlocks(BlockFormat::kInt4, 128, values);
  ASSERT_EQ(encoded.size(), 3 * 2 + 3 * 64);
  EXPECT_EQ(Hex(encoded.substr(0, 6)), "803f803f803f");
  for (size_t i = 0; i < 384; ++i) {
    const size_t byte = 6 + i / 128 * 64 + i % 16 * 4 + i % 128 / 16 / 2;
    const int code = (encoded[byte] >> (i / 16 % 2 * 4)) & 15;
    const int level = static_cast<int>(i % 128 % 15) - 7;
    ASSERT_EQ(code, i < 300 ? level & 15 : 0) << i;
  }
  EXPECT_EQ(DecodeBlocks(BlockFormat::kInt4, 128, encoded, 300), values);
}

TEST(BlockLayoutTest, TwoBitCodesOfAGroupLieInSixteenWords) {
  const auto code_of = [](size_t i) { return i % 256 * 7 / 5 % 4; };
  std::vector<float> values(300);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = kInt2Levels[code_of(i)];
  }
  const std::string encoded = EncodeBlocks(BlockFormat::kInt2, 256, values);
  ASSERT_EQ(encoded.size(), 2 * 2 + 2 * 64);
  for (size_t i = 0; i < 512; ++i) {
    const size_t byte = 4 + i / 256 * 64 + i % 16 * 4 + i % 256 / 16 / 4;
    const size_t code = (encoded[byte] >> (i / 16 % 4 * 2)) & 3;
    ASSERT_EQ(code, i < 300 ? code_of(i) : 0) << i;
  }
}

TEST(BlockLayoutTest, PlanesOfEachLength) {
  EXPECT_EQ(ScalePlaneBytes(0, 64), 0u);
  EXPECT_EQ(ScalePlaneBytes(1, 64), 2u);
  EXPECT_EQ(ScalePlaneBytes(64, 64), 2u);
  EXPECT_EQ(ScalePlaneBytes(65, 64), 4u);
  EXPECT_EQ(CodePlaneBytes(BlockFormat::kInt8, 65), 65u);
  EXPECT_EQ(CodePlaneBytes(BlockFormat::kE3m0, 0), 0u);
  EXPECT_EQ(CodePlaneBytes(BlockFormat::kE3m0, 1), 64u);
  EXPECT_EQ(CodePlaneBytes(BlockFormat::kE3m0, 128), 64u);
  EXPECT_EQ(CodePlaneBytes(BlockFormat::kE3m0, 129), 128u);
  EXPECT_EQ(CodePlaneBytes(BlockFormat::kInt2, 0), 0u);
  EXPECT_EQ(CodePlaneBytes(BlockFormat::kInt2, 256), 64u);
  EXPECT_EQ(CodePlaneBytes(BlockFormat::kInt2, 257), 128u);
}

TEST(ScaleTest, IsTheNearestBfloat16OfTheQuotient) {
  EXPECT_EQ(ScaleOfAbsmax(BlockFormat::kE3m0, 1.0f), kOne);
  EXPECT_EQ(ScaleOfAbsmax(BlockFormat::kInt8, 127.0f), kOne);
  EXPECT_EQ(ScaleOfAbsmax(BlockFormat::kInt4, 7.0f), kOne);
  EXPECT_EQ(ScaleOfAbsmax(BlockFormat::kNf4, 1.0f), kOne);
  EXPECT_EQ(ScaleOfAbsmax(BlockFormat::kE2m1, 6.0f), kOne);
  EXPECT_EQ(ScaleOfAbsmax(BlockFormat::kFp8E4m3, 448.0f), kOne);
  // 1 + 2^-8 is half-way between 1 and its successor; ties go to even.
  EXPECT_EQ(ScaleOfAbsmax(BlockFormat::kE3m0, 1.0f + 0x1p-8f), kOne);
  EXPECT_EQ(ScaleOfAbsmax(BlockFormat::kE3m0, 1.0f + 0x1.1p-8f), kOne + 1);
}

TEST(ScaleTest, NoScaleIsDenormalAndNoneOverflowsALevel) {
  for (const BlockFormat format : kAllFormats) {
    const float least = FloatFromBf16(kSmallestScale) * TopLevel(format);
    EXPECT_EQ(FloatFromBf16(kSmallestScale), 0x1p-100f);
    EXPECT_EQ(ScaleOfAbsmax(format, least), kSmallestScale);
    EXPECT_EQ(ScaleOfAbsmax(format, 0.99f * least), 0);
    EXPECT_EQ(ScaleOfAbsmax(format, 0), 0);
    EXPECT_LE(ScaleOfAbsmax(format, kLargest), LargestScale(format));
    EXPECT_TRUE(std::isfinite(LargestLevel(format) *
                              FloatFromBf16(LargestScale(format))));
    EXPECT_FALSE(std::isfinite(LargestLevel(format) *
                               FloatFromBf16(LargestScale(format) + 1)));
  }
}

TEST(ScaleTest, ANanOutweighsInfinityAndInfinityAllNumbers) {
  for (const BlockFormat format : kAllFormats) {
    EXPECT_EQ(ScaleOfBlock(format, {1, -INFINITY, 2}), kInfiniteScale);
    EXPECT_EQ(ScaleOfBlock(format, {1, -NAN, INFINITY}), kNanScale);
    EXPECT_EQ(ScaleOfBlock(format, {}), 0);
  }
}

// What the header says of each code, in double.
double ExactLevel(BlockFormat format, int code) {
  const int sign4 = (code & 8) != 0 ? -1 : 1;
  const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  switch (format) {
    case BlockFormat::kFp8E4m3: {
      const int exponent = (code >> 3) & 15;
      const double magnitude =
          exponent == 0 ? (code & 7) / 512.0
                        : std::exp2(exponent - 7) * (1 + (code & 7) / 8.0);
      return (code & 0x80) != 0 ? -magnitude : magnitude;
    }
    case BlockFormat::kInt8:
      return code < 128 ? code : code - 256;
    case BlockFormat::kInt4:
      return code < 8 ? code : code - 16;
    case BlockFormat::kNf4:
      return kNf4Levels[code];
    case BlockFormat::kE2m1:
      return sign4 * e2m1[code & 7];
    case BlockFormat::kE3m0:
      return sign4 * ((code & 7) == 0 ? 0 : std::exp2((code & 7) - 7));
    case BlockFormat::kInt2: {
      const double levels[] = {kInt2Low, kInt2Top, -kInt2Top, -kInt2Low};
      return levels[code];
    }
  }
  return NAN;
}

// Codes that encoders write.
std::vector<int> WrittenCodes(BlockFormat format) {
  std::vector<int> codes;
  for (int code = 0; code < 1 << CodeBits(format); ++code) {
    const bool sign_only = code == 1 << (CodeBits(format) - 1);
    if (sign_only && format != BlockFormat::kNf4 &&
        format != BlockFormat::kInt2) {
      continue;
    }
    if (format == BlockFormat::kFp8E4m3 && (code & 0x7f) == 0x7f) continue;
    codes.push_back(code);
  }
  return codes;
}

TEST(BlockCodesTest, EveryCodeDecodesToItsLevelAndComesBack) {
  for (const BlockFormat format : kAllFormats) {
    for (const uint16_t scale : {kOne, uint16_t{0x3fff}, uint16_t{0x1234},
                                 kSmallestScale, LargestScale(format)}) {
      for (const int code : WrittenCodes(format)) {
        const float value = DecodeValue(format, scale, code);
        EXPECT_EQ(value, static_cast<float>(ExactLevel(format, code) *
                                            FloatFromBf16(scale)));
        EXPECT_EQ(EncodeValue(format, scale, value), code)
            << static_cast<int>(format) << " " << scale;
      }
    }
  }
}

TEST(BlockCodesTest, CodesThatAreNeverWrittenAreReadAsDocumented) {
  EXPECT_EQ(DecodeValue(BlockFormat::kInt8, kOne, 0x80), -128);
  EXPECT_EQ(DecodeValue(BlockFormat::kInt4, kOne, 8), -8);
  EXPECT_EQ(DecodeValue(BlockFormat::kE2m1, kOne, 8), 0);
  EXPECT_EQ(DecodeValue(BlockFormat::kE3m0, kOne, 8), 0);
  EXPECT_EQ(DecodeValue(BlockFormat::kFp8E4m3, kOne, 0x80), 0);
  EXPECT_TRUE(std::isnan(DecodeValue(BlockFormat::kFp8E4m3, kOne, 0x7f)));
  EXPECT_TRUE(std::isnan(DecodeValue(BlockFormat::kFp8E4m3, kOne, 0xff)));
}

TEST(BlockCodesTest, Nf4IsTheInverseNormalOfEquallySpacedShares) {
  // The construction of the paper's appendix: quantiles of the normal
  // distribution from a share of 0.9677083 down to one half in 8 steps, the
  // negative ones in 7, divided by the largest.
  const auto quantile = [](double share) {
    double low = -10;
    double high = 10;
    for (int i = 0; i < 100; ++i) {
      const double middle = (low + high) / 2;
      (std::erfc(-middle / std::sqrt(2.0)) / 2 < share ? low : high) = middle;
    }
    return low;
  };
  const double top = 0.9677083;
  for (int i = 1; i <= 8; ++i) {
    EXPECT_NEAR(kNf4Levels[i],
                quantile(0.5 + (top - 0.5) * i / 8) / quantile(top), 1e-6);
  }
  for (int i = 1; i <= 7; ++i) {
    EXPECT_NEAR(kNf4Levels[16 - i],
                -quantile(0.5 + (top - 0.5) * i / 7) / quantile(top), 1e-6);
  }
}

// No written code's level is nearer; distances in double are exact enough to
// tell one part in 2^22 of a level from a tie.
TEST(BlockCodesTest, NoLevelIsNearerThanTheOneTaken) {
  std::mt19937 random(11);
  for (const BlockFormat format : kAllFormats) {
    for (int i = 0; i < 20000; ++i) {
      const float absmax =
          std::ldexp(1.0f + static_cast<float>(random() % 8388608) * 0x1p-23f,
                     static_cast<int>(random() % 100) - 50);
      const uint16_t scale = ScaleOfAbsmax(format, absmax);
      const float value =
          absmax * (static_cast<float>(random() % 2000001) * 1e-6f - 1);
      const int code = EncodeValue(format, scale, value);
      const double quotient = double{value} / FloatFromBf16(scale);
      const double taken = std::fabs(ExactLevel(format, code) - quotient);
      for (const int other : WrittenCodes(format)) {
        ASSERT_LE(taken, std::fabs(ExactLevel(format, other) - quotient) +
                             TopLevel(format) * 0x1p-22)
            << static_cast<int>(format) << " " << value << " " << scale;
      }
    }
  }
}

TEST(BlockCodesTest, TheLargestValueMapsToTheTopLevel) {
  for (const BlockFormat format : kAllFormats) {
    // All significands of two binades.
    for (uint32_t bits = 0x3f800000; bits < 0x40800000; bits += 101) {
      const float absmax = std::bit_cast<float>(bits);
      const uint16_t scale = ScaleOfAbsmax(format, absmax);
      const float decoded =
          DecodeValue(format, scale, EncodeValue(format, scale, -absmax));
      ASSERT_EQ(decoded, -TopLevel(format) * FloatFromBf16(scale)) << absmax;
    }
  }
}

TEST(BlockCodesTest, TiesGoWhereTheHeaderSays) {
  const auto code = [](BlockFormat format, float value) {
    return static_cast<int>(EncodeValue(format, kOne, value));
  };
  // Away from zero.
  EXPECT_EQ(code(BlockFormat::kE3m0, 0x1p-7f), 1);
  EXPECT_EQ(code(BlockFormat::kE3m0, -0x1p-7f), 9);
  EXPECT_EQ(code(BlockFormat::kE3m0, 0x1.fffffep-8f), 0);
  EXPECT_EQ(code(BlockFormat::kE3m0, 0.375f), 6);
  EXPECT_EQ(code(BlockFormat::kE3m0, std::nextafter(0.375f, 0.0f)), 5);
  // To even.
  EXPECT_EQ(code(BlockFormat::kInt8, 0.5f), 0);
  EXPECT_EQ(code(BlockFormat::kInt8, -1.5f), 0xfe);
  EXPECT_EQ(code(BlockFormat::kInt4, 2.5f), 2);
  EXPECT_EQ(code(BlockFormat::kInt4, -0.5f), 0);
  EXPECT_EQ(code(BlockFormat::kE2m1, 0.25f), 0);
  EXPECT_EQ(code(BlockFormat::kE2m1, 0.75f), 2);
  EXPECT_EQ(code(BlockFormat::kE2m1, 2.5f), 4);
  EXPECT_EQ(code(BlockFormat::kE2m1, -3.5f), 14);
  EXPECT_EQ(code(BlockFormat::kFp8E4m3, 0x1p-10f), 0);
  EXPECT_EQ(code(BlockFormat::kFp8E4m3, 17.0f), 0x58);
  EXPECT_EQ(code(BlockFormat::kFp8E4m3, 19.0f), 0x5a);
  // To the greater level.
  EXPECT_EQ(code(BlockFormat::kNf4, kNf4Levels[1] / 2), 1);
  EXPECT_EQ(code(BlockFormat::kNf4, kNf4Levels[15] / 2), 0);
}

// Lloyd's conditions, for the normal distribution: levels are the means of
// their cells, and cells are cut half-way between levels.
TEST(Int2Test, LevelsAreBestForTheNormalDistribution) {
  const auto density = [](double x) {
    return std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
  };
  const auto beyond = [](double x) { return std::erfc(x / std::sqrt(2)) / 2; };
  const double cut = (double{kInt2Low} + kInt2Top) / 2;
  EXPECT_NEAR(kInt2Low, (density(0) - density(cut)) / (0.5 - beyond(cut)),
              1e-7);
  EXPECT_NEAR(kInt2Top, density(cut) / beyond(cut), 2e-7);
}

TEST(Int2Test, TheScaleIsTheRootMeanSquareOfTheValuesThereAre) {
  EXPECT_EQ(ScaleOfBlock(BlockFormat::kInt2, {1.0f}), kOne);
  EXPECT_EQ(ScaleOfBlock(BlockFormat::kInt2, {-1.0f, 1.0f, 1.0f}), kOne);
  EXPECT_EQ(ScaleOfBlock(BlockFormat::kInt2, {0.0f, 2.0f, 0.0f, 0.0f}), kOne);
  EXPECT_EQ(ScaleOfBlock(BlockFormat::kInt2, {kLargest, kLargest}),
            LargestScale(BlockFormat::kInt2));
  EXPECT_EQ(ScaleOfBlock(BlockFormat::kInt2, {0x1p-149f, 0x1p-101f}), 0);
}

TEST(Int2Test, SumsOfSquaresAreInTheDocumentedOrder) {
  // Each order of adding these rounds differently.
  std::vector<float> block(33);
  for (size_t i = 0; i < block.size(); ++i) {
    block[i] = std::ldexp(1.0f + static_cast<float>(i) * 0x1p-20f,
                          static_cast<int>(i % 5) * 7);
  }
  double sums[16];
  for (int j = 0; j < 16; ++j) {
    sums[j] = double{block[j]} * block[j];
    sums[j] += double{block[16 + j]} * block[16 + j];
  }
  sums[0] += double{block[32]} * block[32];
  const double want = (((sums[0] + sums[8]) + (sums[4] + sums[12])) +
                       ((sums[2] + sums[10]) + (sums[6] + sums[14]))) +
                      (((sums[1] + sums[9]) + (sums[5] + sums[13])) +
                       ((sums[3] + sums[11]) + (sums[7] + sums[15])));
  EXPECT_EQ(SumOfSquares(block), want);
}

class StochasticRoundingTest : public testing::TestWithParam<BlockFormat> {
 protected:
  const BlockFormat format_ = GetParam();
};

INSTANTIATE_TEST_SUITE_P(Formats, StochasticRoundingTest,
                         testing::ValuesIn(kAllFormats));

TEST_P(StochasticRoundingTest, TakesTheLevelsAroundAValueWithItAsTheMean) {
  std::vector<float> levels;
  for (const int code : WrittenCodes(format_)) {
    levels.push_back(static_cast<float>(ExactLevel(format_, code)));
  }
  std::sort(levels.begin(), levels.end());
  std::mt19937 random(17);
  for (int round = 0; round < 40; ++round) {
    const float value = TopLevel(format_) *
                        std::ldexp(1.0f, -static_cast<int>(random() % 8)) *
                        (static_cast<float>(random() % 20001) * 1e-4f - 1);
    const auto high = std::upper_bound(levels.begin(), levels.end() - 1, value);
    const float low = *(high - 1);
    constexpr int kDraws = 4000;
    double sum = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      const float decoded =
          DecodeValue(format_, kOne,
                      EncodeValueStochastically(format_, kOne, value,
                                                RoundingRandom(round, draw)));
      ASSERT_TRUE(decoded == low || decoded == *high) << value;
      sum += decoded;
    }
    const double variance = (value - low) * (*high - value);
    EXPECT_NEAR(sum / kDraws, value,
                4.5 * std::sqrt(variance / kDraws) + 1e-6 * TopLevel(format_))
        << low << " " << *high;
  }
}

TEST_P(StochasticRoundingTest, LevelsStayWhatTheyAre) {
  for (const int code : WrittenCodes(format_)) {
    const float level = DecodeValue(format_, kOne, code);
    for (const uint32_t random : {0u, 0x7fffffffu, 0xffffffffu}) {
      EXPECT_EQ(EncodeValueStochastically(format_, kOne, level, random), code)
          << level << " " << random;
    }
  }
}

TEST_P(StochasticRoundingTest, TheScaleIsRoundedUpAndNothingSaturates) {
  for (uint32_t bits = 0x3f800000; bits < 0x40800000; bits += 4099) {
    const float absmax = std::bit_cast<float>(bits);
    const uint16_t scale =
        ScaleOfAbsmax(format_, absmax, Rounding::kStochastic);
    // But for the rounding of the division.
    EXPECT_GE(double{TopLevel(format_)} * FloatFromBf16(scale),
              absmax * (1 - 0x1p-23));
    EXPECT_LT(double{TopLevel(format_)} * FloatFromBf16(scale - 1), absmax);
  }
  EXPECT_EQ(ScaleOfAbsmax(format_, kLargest, Rounding::kStochastic),
            LargestScale(format_));
  EXPECT_EQ(ScaleOfAbsmax(format_, 0, Rounding::kStochastic), 0);
  EXPECT_EQ(ScaleOfAbsmax(format_, INFINITY, Rounding::kStochastic),
            kInfiniteScale);
  EXPECT_EQ(ScaleOfAbsmax(format_, NAN, Rounding::kStochastic), kNanScale);
}

TEST(BlockCodesTest, BlocksWithoutAUsableScale) {
  for (const BlockFormat format : kAllFormats) {
    for (const uint32_t size : {64, 128, 256}) {
      // Zeros of both signs decode to +0.
      const std::string zeros = EncodeBlocks(format, size, {0.0f, -0.0f});
      EXPECT_EQ(zeros, std::string(zeros.size(), '\0'));
      for (const float value : DecodeBlocks(format, size, zeros, 2)) {
        EXPECT_EQ(std::bit_cast<uint32_t>(value), 0u);
      }
      const std::string infinite =
          EncodeBlocks(format, size, {1.0f, -INFINITY});
      EXPECT_EQ(infinite, "\x80\x7f" + std::string(infinite.size() - 2, '\0'));
      for (const float value : DecodeBlocks(format, size, infinite, 2)) {
        EXPECT_FALSE(std::isfinite(value));
      }
    }
  }
}

}  // namespace
}  // namespace causeway
