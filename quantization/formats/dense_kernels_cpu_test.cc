// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/dense_kernels_cpu.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/testing/highway_targets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "quantization/formats/dense_reference.h"

namespace causeway {
namespace {

// Runs every test for each instruction set that this machine has.
class KernelsTest : public testing::TestWithParam<int64_t> {
 protected:
  const ScopedHighwayTarget target_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Targets, KernelsTest,
                         testing::ValuesIn(HighwayTargets()),
                         [](const testing::TestParamInfo<int64_t>& info) {
                           return std::string(hwy::TargetName(info.param));
                         });

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), 4 * values.size());
  return bits;
}

std::string Bytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     4 * values.size());
}

// Returns all kinds of floats: every exponent, both signs, denormals,
// infinities, NaN.
std::vector<float> AnyFloats(size_t count) {
  std::vector<float> values(count);
  uint32_t state = 12345;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = std::bit_cast<float>(state ^ (state >> 15));
  }
  return values;
}

std::vector<float> FiniteFloats(size_t count) {
  std::vector<float> values(count);
  uint32_t state = 999;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-36f;
  }
  return values;
}

TEST_P(KernelsTest, DecodesEveryBf16Code) {
  std::vector<uint16_t> codes(65536);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
  std::vector<float> values(codes.size());
  DecodeBf16(reinterpret_cast<const char*>(codes.data()), codes.size(),
             values.data());
  for (size_t i = 0; i < codes.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), i << 16);
  }
}

TEST_P(KernelsTest, EncodesAroundEveryBf16CodeAsTheReference) {
  std::vector<float> values;
  for (uint32_t code = 0; code <= 0xffff; ++code) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u}) {
      values.push_back(std::bit_cast<float>((code << 16) | low));
    }
  }
  std::vector<uint16_t> codes(values.size());
  EncodeBf16(values.data(), values.size(),
             reinterpret_cast<char*>(codes.data()));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(codes[i], Bf16FromFloat(values[i]))
        << std::hex << std::bit_cast<uint32_t>(values[i]);
  }
}

TEST_P(KernelsTest, EncodesAnyLengthAtAnyAddressAndNothingBeyond) {
  const std::vector<float> values = AnyFloats(100);
  for (size_t count = 0; count <= 70; ++count) {
    for (size_t start = 0; start < 4; ++start) {
      std::string encoded(2 * count + 6, 'x');
      EncodeBf16(values.data() + start, count, encoded.data() + start);
      for (size_t i = 0; i < count; ++i) {
        uint16_t code;
        std::memcpy(&code, encoded.data() + start + 2 * i, 2);
        ASSERT_EQ(code, Bf16FromFloat(values[start + i])) << count << " " << i;
      }
      ASSERT_EQ(encoded.substr(0, start), std::string(start, 'x'));
      ASSERT_EQ(encoded.substr(start + 2 * count), std::string(6 - start, 'x'));
    }
  }
}

TEST_P(KernelsTest, DecodesAnyLengthAtAnyAddressAndNothingBeyond) {
  std::string encoded(150, '\0');
  for (size_t i = 0; i < 75; ++i) {
    const uint16_t code = Bf16FromFloat(static_cast<float>(i) - 30);
    std::memcpy(encoded.data() + 2 * i, &code, 2);
  }
  for (size_t start = 0; start < 2; ++start) {
    // Half of the addresses are odd.
    const std::string shifted = std::string(start, ' ') + encoded;
    for (size_t count = 0; count <= 70; ++count) {
      std::vector<float> values(count + 1, 7777);
      DecodeBf16(shifted.data() + start, count, values.data());
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[i], static_cast<float>(i) - 30);
      }
      ASSERT_EQ(values[count], 7777);
    }
  }
}

TEST_P(KernelsTest, AccumulatesBf16AsTheReference) {
  const std::vector<float> values = FiniteFloats(71);
  std::string encoded(2 * values.size(), '\0');
  EncodeBf16(values.data(), values.size(), encoded.data());
  for (size_t count = 0; count <= values.size(); ++count) {
    std::vector<float> got = FiniteFloats(100);
    std::vector<float> want = got;
    DecodeAccumulateBf16(encoded.data(), count, 0.3f, got.data());
    for (size_t i = 0; i < count; ++i) {
      want[i] =
          Accumulate(want[i], 0.3f, FloatFromBf16(Bf16FromFloat(values[i])));
    }
    ASSERT_EQ(Bits(got), Bits(want)) << count;
  }
}

TEST_P(KernelsTest, AccumulatesFp32AsTheReference) {
  const std::vector<float> values = FiniteFloats(71);
  const std::string encoded = " " + Bytes(values);
  for (size_t count = 0; count <= values.size(); ++count) {
    std::vector<float> got = FiniteFloats(100);
    std::vector<float> want = got;
    DecodeAccumulateFp32(encoded.data() + 1, count, 0.3f, got.data());
    for (size_t i = 0; i < count; ++i) {
      want[i] = Accumulate(want[i], 0.3f, values[i]);
    }
    ASSERT_EQ(Bits(got), Bits(want)) << count;
  }
}

TEST_P(KernelsTest, FindsOneNonFiniteValueAnywhere) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {infinity, -infinity, nan}) {
    for (size_t count = 1; count <= 40; ++count) {
      std::vector<float> values(count, 3e38f);
      const auto encode = [&values] {
        std::string encoded(2 * values.size(), '\0');
        EncodeBf16(values.data(), values.size(), encoded.data());
        return encoded;
      };
      ASSERT_TRUE(AllFiniteFp32(Bytes(values).data(), count));
      ASSERT_TRUE(AllFiniteBf16(encode().data(), count));
      for (size_t i = 0; i < count; ++i) {
        values[i] = bad;
        ASSERT_FALSE(AllFiniteFp32(Bytes(values).data(), count));
        ASSERT_FALSE(AllFiniteBf16(encode().data(), count));
        values[i] = -3e38f;
      }
    }
  }
  EXPECT_TRUE(AllFiniteFp32(nullptr, 0));
  EXPECT_TRUE(AllFiniteBf16(nullptr, 0));
}

TEST_P(KernelsTest, SumOfSquaresHasItsDefinedOrder) {
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::ldexp(static_cast<float>(i * i % 997) - 400,
                           static_cast<int>(i % 40) - 20);
  }
  for (const size_t count : {0, 1, 15, 16, 17, 33, 64, 999, 1000}) {
    double sums[32] = {};
    for (size_t i = 0; i < count; ++i) {
      const double value = values[i];
      const double square = value * value;
      sums[i % 32] += square;
    }
    double want = 0;
    for (const double sum : sums) want += sum;
    EXPECT_EQ(SumOfSquares(values.data(), count), want) << count;
  }
}

TEST_P(KernelsTest, SquaresAreAddedPartByPart) {
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 1.0f / static_cast<float>(i + 1);
  }
  SquareSums sums;
  AddSquares(values.data(), 64, sums);
  AddSquares(values.data() + 64, 936, sums);
  EXPECT_EQ(sums.Total(), SumOfSquares(values.data(), values.size()));
}

TEST_P(KernelsTest, SumOfSquaresCannotOverflow) {
  const std::vector<float> values(100, std::numeric_limits<float>::max());
  EXPECT_GT(SumOfSquares(values.data(), values.size()), 1e78);
  EXPECT_LT(SumOfSquares(values.data(), values.size()), 1e80);
}

}  // namespace
}  // namespace causeway
