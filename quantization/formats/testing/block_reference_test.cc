// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/testing/block_reference.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "quantization/formats/dense_reference.h"

namespace causeway {
namespace {

constexpr BlockFormat kAllFormats[] = {BlockFormat::kInt8, BlockFormat::kInt4,
                                       BlockFormat::kE3m0};

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

// block_golden.py computes the golden vectors in rational arithmetic.
const std::vector<float> kGoldenValues = {
    1.0f,    -0.5f,  0.75f, 0.74f,       0.02f, 0.0078125f, 0.007f,
    -0.001f, 0.0f,   -0.3f, 0.3f,        0.1f,  -0.1f,      -1.0f,
    0.6f,    -0.85f, 0.42f, -0.0234375f, 0.25f};

TEST(BlockGoldenTest, BytesOfEachFormat) {
  std::map<BlockFormat, std::string> got;
  for (const BlockFormat format : kAllFormats) {
    got[format] = Hex(EncodeBlocks(format, 128, kGoldenValues));
  }
  EXPECT_EQ(got[BlockFormat::kInt8],
            "013c7fc05f5e0301010000da260df3814c9435fd20");
  EXPECT_EQ(got[BlockFormat::kInt4],
            "123e370000000c00000025000000050000000000000000000000000000000000"
            "0000000000000e00000002000000010000000f00000009000000040000000a00"
            "0000");
  EXPECT_EQ(got[BlockFormat::kE3m0],
            "803f67000000ae00000057000000060000000100000001000000000000000000"
            "0000000000000d00000005000000040000000c0000000f000000060000000f00"
            "0000");
}

TEST(BlockLayoutTest, CodesOfAGroupLieInSixteenWords) {
  // 300 values in blocks of 128 have 3 scales and 3 groups. Codes differ by
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
}

TEST(ScaleTest, IsTheNearestBfloat16OfTheQuotient) {
  EXPECT_EQ(ScaleOfAbsmax(BlockFormat::kE3m0, 1.0f), kOne);
  EXPECT_EQ(ScaleOfAbsmax(BlockFormat::kInt8, 127.0f), kOne);
  EXPECT_EQ(ScaleOfAbsmax(BlockFormat::kInt4, 7.0f), kOne);
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
    EXPECT_EQ(ScaleOfAbsmax(format, LargestMagnitude({1, -INFINITY, 2})),
              kInfiniteScale);
    EXPECT_EQ(ScaleOfAbsmax(format, LargestMagnitude({1, -NAN, INFINITY})),
              kNanScale);
    EXPECT_EQ(ScaleOfAbsmax(format, LargestMagnitude({})), 0);
  }
}

// Returns the level of each code, as the header defines it, in double.
double ExactLevel(BlockFormat format, int code) {
  switch (format) {
    case BlockFormat::kInt8:
      return code < 128 ? code : code - 256;
    case BlockFormat::kInt4:
      return code < 8 ? code : code - 16;
    case BlockFormat::kE3m0:
      return ((code & 8) != 0 ? -1 : 1) *
             ((code & 7) == 0 ? 0 : std::exp2((code & 7) - 7));
  }
  return NAN;
}

// Returns the codes that encoders write.
std::vector<int> WrittenCodes(BlockFormat format) {
  std::vector<int> codes;
  for (int code = 0; code < 1 << CodeBits(format); ++code) {
    // The others are -128, -8 and the negative zero.
    if (code != 1 << (CodeBits(format) - 1)) codes.push_back(code);
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
  EXPECT_EQ(DecodeValue(BlockFormat::kE3m0, kOne, 8), 0);
}

// No other written code has a nearer level. Distances in double are exact
// enough to tell one part in 2^22 of a level from a tie.
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
    // These are all significands of two binades.
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
  // Ties go away from zero.
  EXPECT_EQ(code(BlockFormat::kE3m0, 0x1p-7f), 1);
  EXPECT_EQ(code(BlockFormat::kE3m0, -0x1p-7f), 9);
  EXPECT_EQ(code(BlockFormat::kE3m0, 0x1.fffffep-8f), 0);
  EXPECT_EQ(code(BlockFormat::kE3m0, 0.375f), 6);
  EXPECT_EQ(code(BlockFormat::kE3m0, std::nextafter(0.375f, 0.0f)), 5);
  // Ties go to the even level.
  EXPECT_EQ(code(BlockFormat::kInt8, 0.5f), 0);
  EXPECT_EQ(code(BlockFormat::kInt8, -1.5f), 0xfe);
  EXPECT_EQ(code(BlockFormat::kInt4, 2.5f), 2);
  EXPECT_EQ(code(BlockFormat::kInt4, -0.5f), 0);
}

TEST(SumOfBlockSquaresTest, AddsInTheDocumentedOrder) {
  // Every other order of adding these rounds differently.
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
  EXPECT_EQ(SumOfBlockSquares(block), want);
}

template <BlockFormat kFormat>
void ExpectScalesOfTheReference() {
  // These are all upper halves, with lower halves around a tie in rounding.
  for (uint32_t high = 0; high < 0x8000; ++high) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u}) {
      const float absmax = std::bit_cast<float>(high << 16 | low);
      ASSERT_EQ(BlockScale<kFormat>(absmax), ScaleOfAbsmax(kFormat, absmax))
          << absmax;
    }
  }
}

TEST(BlockScaleTest, IsTheReferencesAtAllMagnitudes) {
  ExpectScalesOfTheReference<BlockFormat::kInt8>();
  ExpectScalesOfTheReference<BlockFormat::kInt4>();
  ExpectScalesOfTheReference<BlockFormat::kE3m0>();
}

// ECQ uses such scales.
TEST(BlockScaleTest, IsRoundedUpOnRequestSoThatNothingSaturates) {
  const auto scale_of = BlockScale<BlockFormat::kInt8, /*kUp=*/true>;
  for (uint32_t bits = 0x3f800000; bits < 0x40800000; bits += 4099) {
    const float absmax = std::bit_cast<float>(bits);
    const uint16_t scale = scale_of(absmax);
    // The difference is the rounding of the division.
    EXPECT_GE(127.0 * FloatFromBf16(scale), absmax * (1 - 0x1p-23));
    EXPECT_LT(127.0 * FloatFromBf16(scale - 1), absmax);
  }
  EXPECT_EQ(scale_of(kLargest), LargestScale(BlockFormat::kInt8));
  EXPECT_EQ(scale_of(0), 0);
  EXPECT_EQ(scale_of(INFINITY), kInfiniteScale);
  EXPECT_EQ(scale_of(NAN), kNanScale);
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
