// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/ecq/kernels_cpu.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "common/testing/highway_targets.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "quantization/formats/dense_reference.h"
#include "quantization/formats/ecq/reference.h"
#include "quantization/formats/testing/block_reference.h"

namespace causeway {
namespace {

constexpr size_t kBlocks = 40;

// Runs every test for each instruction set that this machine has and each block
// size.
class EcqKernelsTest
    : public testing::TestWithParam<std::tuple<int64_t, size_t>> {
 protected:
  const ScopedHighwayTarget target_{std::get<0>(GetParam())};

  size_t Size() const { return kBlocks * block_size_; }

  // Returns floats of any bits, except that every fourth block is like a
  // gradient's.
  std::vector<float> Values() const {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 3e-4f);
    std::vector<float> values(Size());
    for (size_t i = 0; i < Size(); ++i) {
      values[i] = i / block_size_ % 4 == 0
                      ? normal(random)
                      : std::bit_cast<float>(static_cast<uint32_t>(random()));
    }
    return values;
  }

  const size_t block_size_ = std::get<1>(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Targets, EcqKernelsTest,
                         testing::Combine(testing::ValuesIn(HighwayTargets()),
                                          testing::Values(64, 128, 256)),
                         [](const auto& info) {
                           return std::string(hwy::TargetName(
                                      std::get<0>(info.param))) +
                                  "_" + std::to_string(std::get<1>(info.param));
                         });

// Returns the bits to compare: the payload of a NaN is not part of the
// contract.
template <typename Bits, typename Value>
std::vector<Bits> BitsOf(const std::vector<Value>& values) {
  std::vector<Bits> bits;
  for (const Value value : values) {
    bits.push_back(std::bit_cast<Bits>(std::isnan(value) ? Value{NAN} : value));
  }
  return bits;
}

uint16_t ScaleAt(const std::string& scales, size_t block) {
  uint16_t scale;
  std::memcpy(&scale, scales.data() + 2 * block, sizeof(scale));
  return scale;
}

// Returns scales of all kinds, including those of the values.
std::string Scales() {
  std::mt19937 random(2);
  std::string scales(2 * kBlocks, '\0');
  for (size_t block = 0; block < kBlocks; ++block) {
    const uint16_t scale = block % 8 == 0   ? Bf16FromFloat(2.5e-4f)
                           : block % 8 == 1 ? 0
                           : block % 8 == 2 ? kInfiniteScale
                           : block % 8 == 3 ? kNanScale
                                            : static_cast<uint16_t>(random());
    std::memcpy(scales.data() + 2 * block, &scale, sizeof(scale));
  }
  return scales;
}

TEST_P(EcqKernelsTest, MeasuresAsTheReference) {
  const std::vector<float> values = Values();
  std::vector<double> squares(kBlocks);
  std::vector<float> absmax(kBlocks);
  MeasureEcqBlocks(block_size_, kBlocks, values.data(), squares.data(),
                   absmax.data());
  std::vector<double> want_squares;
  std::vector<float> want_absmax;
  for (size_t block = 0; block < kBlocks; ++block) {
    const auto of_block =
        absl::MakeConstSpan(values).subspan(block * block_size_, block_size_);
    want_squares.push_back(SumOfBlockSquares(of_block));
    want_absmax.push_back(LargestMagnitude(of_block));
  }
  EXPECT_EQ(BitsOf<uint64_t>(squares), BitsOf<uint64_t>(want_squares));
  EXPECT_EQ(BitsOf<uint32_t>(absmax), BitsOf<uint32_t>(want_absmax));
}

TEST_P(EcqKernelsTest, EncodesAsTheReference) {
  const std::vector<float> values = Values();
  // Encoders write only these scales, but the kernels accept any.
  const std::string scales = Scales();
  for (const float offset : {0.5f, 0.42f, 0.0f}) {
    std::string codes(Size() + 2, 'x');
    EncodeEcqBlocks(block_size_, kBlocks, offset, values.data(), scales.data(),
                    codes.data() + 1);
    EXPECT_EQ(codes.front(), 'x');
    EXPECT_EQ(codes.back(), 'x');
    for (size_t i = 0; i < Size(); ++i) {
      const uint16_t scale = ScaleAt(scales, i / block_size_);
      // A NaN has no code of its own.
      if (std::isnan(values[i] * (1 / FloatFromBf16(scale)))) continue;
      ASSERT_EQ(static_cast<int8_t>(codes[i + 1]),
                EcqCode(scale, offset, values[i]))
          << values[i] << " " << scale;
    }
  }
}

TEST_P(EcqKernelsTest, DecodesAndAccumulatesEveryCodeWithScalesOfAllKinds) {
  const std::string scales = Scales();
  std::string codes(Size(), '\0');
  for (size_t i = 0; i < Size(); ++i) codes[i] = static_cast<char>(i * 7 + 3);
  for (const uint8_t shift : {0, 17, 127}) {
    std::vector<float> want(Size());
    std::vector<float> want_sum(Size());
    for (size_t i = 0; i < Size(); ++i) {
      want[i] = EcqValue(ScaleAt(scales, i / block_size_), shift,
                         static_cast<int8_t>(codes[i]));
      want_sum[i] = Accumulate(0.25f, -0.3f, want[i]);
    }
    std::vector<float> got(Size());
    DecodeEcqBlocks(block_size_, kBlocks, shift, scales.data(), codes.data(),
                    got.data());
    EXPECT_EQ(BitsOf<uint32_t>(got), BitsOf<uint32_t>(want));
    std::vector<float> sum(Size(), 0.25f);
    DecodeAccumulateEcqBlocks(block_size_, kBlocks, shift, scales.data(),
                              codes.data(), -0.3f, sum.data());
    EXPECT_EQ(BitsOf<uint32_t>(sum), BitsOf<uint32_t>(want_sum));
  }
}

TEST_P(EcqKernelsTest, NoBlocksTouchNoMemory) {
  MeasureEcqBlocks(block_size_, 0, nullptr, nullptr, nullptr);
  EncodeEcqBlocks(block_size_, 0, 0.5f, nullptr, nullptr, nullptr);
  DecodeEcqBlocks(block_size_, 0, 0, nullptr, nullptr, nullptr);
  DecodeAccumulateEcqBlocks(block_size_, 0, 0, nullptr, nullptr, 1, nullptr);
}

}  // namespace
}  // namespace causeway
