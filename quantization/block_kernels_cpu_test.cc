// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/block_kernels_cpu.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "quantization/block_reference.h"
#include "quantization/encode_options.h"
#include "quantization/reference.h"

namespace causeway {
namespace {

constexpr size_t kUnits = 20;
constexpr size_t kValues = kUnits * kBlockUnit;

const char* Name(BlockFormat format) {
  switch (format) {
    case BlockFormat::kFp8E4m3:
      return "Fp8E4m3";
    case BlockFormat::kInt8:
      return "Int8";
    case BlockFormat::kInt4:
      return "Int4";
    case BlockFormat::kNf4:
      return "Nf4";
    case BlockFormat::kE2m1:
      return "E2m1";
    case BlockFormat::kE3m0:
      return "E3m0";
    case BlockFormat::kInt2:
      return "Int2";
  }
  return "";
}

// Runs every test once for each instruction set that this machine has, each
// format and each block size.
class BlockKernelsTest
    : public testing::TestWithParam<std::tuple<int64_t, BlockFormat, size_t>> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(std::get<0>(GetParam()));
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    kernels_ = &CpuBlockKernels(format_);
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

  size_t ScaleBytes() const { return ScalePlaneBytes(kValues, block_size_); }
  size_t CodeBytes() const { return CodePlaneBytes(format_, kValues); }

  // Expects the reference's bytes, and its decoded values from both the
  // encoder and the decoder.
  void ExpectAsReference(const std::vector<float>& values);
  // Of stochastic rounding.
  void ExpectStochasticAsReference(const std::vector<float>& values);

  const BlockFormat format_ = std::get<1>(GetParam());
  const size_t block_size_ = std::get<2>(GetParam());
  const BlockKernels* kernels_ = nullptr;
};

std::vector<int64_t> AllTargets() {
  std::vector<int64_t> targets;
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    targets.push_back(target);
  }
  return targets;
}

INSTANTIATE_TEST_SUITE_P(
    Targets, BlockKernelsTest,
    testing::Combine(testing::ValuesIn(AllTargets()),
                     testing::Values(BlockFormat::kFp8E4m3, BlockFormat::kInt8,
                                     BlockFormat::kInt4, BlockFormat::kNf4,
                                     BlockFormat::kE2m1, BlockFormat::kE3m0,
                                     BlockFormat::kInt2),
                     testing::Values(64, 128, 256)),
    [](const auto& info) {
      return std::string(hwy::TargetName(std::get<0>(info.param))) + "_" +
             Name(std::get<1>(info.param)) + "_" +
             std::to_string(std::get<2>(info.param));
    });

// The payload of a NaN is not part of the contract.
std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) {
    bits.push_back(std::isnan(value) ? 0x7fc00000
                                     : std::bit_cast<uint32_t>(value));
  }
  return bits;
}

void BlockKernelsTest::ExpectAsReference(const std::vector<float>& values) {
  ASSERT_EQ(values.size(), kValues);
  const std::string want = EncodeBlocks(format_, block_size_, values);
  const std::vector<float> want_decoded =
      DecodeBlocks(format_, block_size_, want, kValues);
  // Unaligned, and with room to see what is written beyond the end.
  std::string scales(ScaleBytes() + 2, 'x');
  std::string codes(CodeBytes() + 2, 'x');
  std::vector<float> decoded(kValues);
  kernels_->encode(block_size_, kUnits, values.data(), scales.data() + 1,
                   codes.data() + 1, decoded.data());
  EXPECT_EQ(scales, "x" + want.substr(0, ScaleBytes()) + "x");
  EXPECT_EQ(codes, "x" + want.substr(ScaleBytes()) + "x");
  EXPECT_EQ(Bits(decoded), Bits(want_decoded));

  std::string scales_only(ScaleBytes(), 'x');
  std::string codes_only(CodeBytes(), 'x');
  kernels_->encode(block_size_, kUnits, values.data(), scales_only.data(),
                   codes_only.data(), nullptr);
  EXPECT_EQ(scales_only + codes_only, want);

  std::vector<float> in_place = values;
  kernels_->encode(block_size_, kUnits, in_place.data(), scales.data(),
                   codes.data(), in_place.data());
  EXPECT_EQ(Bits(in_place), Bits(want_decoded));

  std::vector<float> separately(kValues);
  kernels_->decode(block_size_, kUnits, want.data(), want.data() + ScaleBytes(),
                   separately.data());
  EXPECT_EQ(Bits(separately), Bits(want_decoded));
  ExpectStochasticAsReference(values);
}

void BlockKernelsTest::ExpectStochasticAsReference(
    const std::vector<float>& values) {
  // Random numbers whose counters go beyond 32 bits on the way.
  const uint64_t begin = (uint64_t{1} << 34) - 256;
  const EncodeOptions options{.rounding = Rounding::kStochastic,
                              .seed = 0x123456789abcdef0};
  const std::string want =
      EncodeBlocks(format_, block_size_, values, options, begin);
  std::string got(ScaleBytes() + CodeBytes(), 'x');
  std::vector<float> decoded = values;
  kernels_->encode_stochastically(block_size_, kUnits, options.seed, begin,
                                  decoded.data(), got.data(),
                                  got.data() + ScaleBytes(), decoded.data());
  EXPECT_EQ(got, want);
  EXPECT_EQ(Bits(decoded),
            Bits(DecodeBlocks(format_, block_size_, want, kValues)));
}

std::vector<float> Gaussian(uint32_t seed, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(kValues);
  for (float& value : values) value = normal(random);
  return values;
}

TEST_P(BlockKernelsTest, EncodesGaussianValuesOfAnyMagnitude) {
  for (const float deviation : {1e-37f, 1e-30f, 3e-4f, 1.0f, 1e37f}) {
    ExpectAsReference(Gaussian(1, deviation));
  }
}

TEST_P(BlockKernelsTest, EncodesFiniteFloatsOfAnyBits) {
  // One outlier sets the scale; most of the rest is far below it.
  std::mt19937 random(2);
  std::vector<float> values;
  while (values.size() < kValues) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(value)) values.push_back(value);
  }
  ExpectAsReference(values);
}

TEST_P(BlockKernelsTest, EncodesDenormalsAndTheSmallestScales) {
  std::mt19937 random(3);
  std::vector<float> values(kValues);
  // Magnitudes from 0 to beyond the least block that is not flushed.
  for (size_t i = 0; i < kValues; ++i) {
    const float limit = i / kBlockUnit % 2 == 0 ? 0x1p-126f : 0x1p-91f;
    values[i] = std::ldexp(limit, -static_cast<int>(random() % 24)) *
                (random() % 2 == 0 ? 1.0f : -1.0f);
  }
  ExpectAsReference(values);
}

TEST_P(BlockKernelsTest, EncodesHugeOutliersAndTheLargestFloats) {
  std::vector<float> values = Gaussian(4, 1e-3f);
  const float largest = std::numeric_limits<float>::max();
  for (size_t i = 7; i < kValues; i += 200) {
    values[i] = i % 3 == 0 ? largest : i % 3 == 1 ? -3.3e38f : 1e10f;
  }
  ExpectAsReference(values);
}

// Half-way between two levels, and the floats around it.
TEST_P(BlockKernelsTest, RoundsValuesBetweenLevelsAsTheReference) {
  std::mt19937 random(5);
  for (int round = 0; round < 4; ++round) {
    std::vector<float> values(kValues);
    for (size_t begin = 0; begin < kValues; begin += block_size_) {
      // A scale of eight significant bits: half-ways are exact.
      const float scale = std::ldexp(static_cast<float>(128 + random() % 128),
                                     static_cast<int>(random() % 20) - 10);
      const auto level = [this](uint32_t code) {
        return DecodeValue(format_, Bf16FromFloat(1), code);
      };
      const uint32_t codes = 1u << CodeBits(format_);
      values[begin] = TopLevel(format_) * scale;
      for (size_t i = begin + 1; i < begin + block_size_; ++i) {
        const float low = level(random() % codes);
        const float high = level(random() % codes);
        float value = (low + high) / 2 * scale;
        if (!(std::fabs(value) < values[begin])) value = 0;
        const float toward = random() % 2 == 0 ? -INFINITY : INFINITY;
        for (uint32_t k = random() % 3; k > 0; --k) {
          value = std::nextafter(value, toward);
        }
        values[i] = value;
      }
    }
    ExpectAsReference(values);
  }
}

TEST_P(BlockKernelsTest, BlocksWithoutAUsableScaleHaveNoCodes) {
  for (const float bad : {0.0f, -0.0f, 0x1p-149f, INFINITY, -INFINITY, NAN}) {
    std::vector<float> values = Gaussian(6, 1.0f);
    // Every second block is all bad; of some others one value is.
    for (size_t i = 0; i < kValues; ++i) {
      if (i / block_size_ % 2 == 0 || i % 1111 == 0) values[i] = bad;
    }
    ExpectAsReference(values);
  }
  ExpectAsReference(std::vector<float>(kValues));
}

TEST_P(BlockKernelsTest, DecodesEveryCodeWithScalesOfAllKinds) {
  // Bytes of all values in every position, under scales that no encoder
  // writes too: denormal, negative, too large, not finite.
  std::mt19937 random(7);
  for (int round = 0; round < 8; ++round) {
    std::string encoded(ScaleBytes() + CodeBytes(), '\0');
    for (char& byte : encoded) byte = static_cast<char>(random());
    for (size_t i = 0; i < 256; ++i) {
      encoded[ScaleBytes() + i] = static_cast<char>(i);
    }
    const std::vector<float> want =
        DecodeBlocks(format_, block_size_, encoded, kValues);
    std::vector<float> got(kValues);
    kernels_->decode(block_size_, kUnits, encoded.data(),
                     encoded.data() + ScaleBytes(), got.data());
    ASSERT_EQ(Bits(got), Bits(want));
  }
}

TEST_P(BlockKernelsTest, AccumulatesAsTheReference) {
  const std::string encoded =
      EncodeBlocks(format_, block_size_, Gaussian(8, 0.01f));
  const std::vector<float> values =
      DecodeBlocks(format_, block_size_, encoded, kValues);
  for (const float weight : {0.3f, -1.7f, 1.0f, 0.0f}) {
    std::vector<float> got = Gaussian(9, 0.1f);
    std::vector<float> want = got;
    kernels_->decode_accumulate(block_size_, kUnits, encoded.data(),
                                encoded.data() + ScaleBytes(), weight,
                                got.data());
    for (size_t i = 0; i < kValues; ++i) {
      want[i] = Accumulate(want[i], weight, values[i]);
    }
    ASSERT_EQ(Bits(got), Bits(want));
  }
}

// Sums of no term, of one, and of several under negative weights and weights
// that make negative zeros.
TEST_P(BlockKernelsTest, SumsAsTheReference) {
  const float weights[] = {0.3f, -1.7f, -0.0f, 1e-3f, 0.25f};
  std::vector<std::string> encoded;
  std::vector<BlockTerm> terms;
  std::vector<float> want(kValues);
  for (size_t count = 0; count <= std::size(weights); ++count) {
    // Unaligned, and with room to see what is written beyond the end.
    std::vector<float> got(kValues + 2, 77);
    kernels_->sum(block_size_, kUnits, terms.data(), count, got.data() + 1);
    EXPECT_EQ(got.front(), 77);
    EXPECT_EQ(got.back(), 77);
    ASSERT_EQ(Bits({got.begin() + 1, got.end() - 1}), Bits(want)) << count;
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
      terms.push_back({scales, scales + ScaleBytes(), weights[i]});
    }
  }
}

TEST_P(BlockKernelsTest, NoUnitsTouchNoMemory) {
  kernels_->encode(block_size_, 0, nullptr, nullptr, nullptr, nullptr);
  kernels_->encode_stochastically(block_size_, 0, 1, 0, nullptr, nullptr,
                                  nullptr, nullptr);
  kernels_->decode(block_size_, 0, nullptr, nullptr, nullptr);
  kernels_->decode_accumulate(block_size_, 0, nullptr, nullptr, 1, nullptr);
  kernels_->sum(block_size_, 0, nullptr, 0, nullptr);
}

}  // namespace
}  // namespace causeway
