// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/cuda/block_kernels_suite.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "outer_optimizer/mixing.h"
#include "quantization/block_reference.h"
#include "quantization/reference.h"
#include "quantization/strip_layout.h"

namespace causeway {
namespace {

// Whole units and a rest, less than a strip.
constexpr uint64_t kValues = 20 * kLaneUnit + 77;
// What lies behind arrays.
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
// Enough where it is about what is done with values, not where they lie.
constexpr uint64_t kFewLengths[] = {5, 1024, kStripValues + 300};

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

std::vector<float> Gaussian(uint64_t count, uint32_t seed, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Bits to compare: which ones of a NaN are set is not part of the contract.
std::vector<uint32_t> Bits(absl::Span<const float> values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) {
    bits.push_back(std::isnan(value) ? 0x7fc00000
                                     : std::bit_cast<uint32_t>(value));
  }
  return bits;
}

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
    for (; !values.empty();
         values.remove_prefix(std::min<size_t>(kStripValues, values.size()))) {
      encoded += EncodeBlocks(spec_.format, spec_.block_size,
                              values.subspan(0, kStripValues));
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

INSTANTIATE_TEST_SUITE_P(
    AllFormats, BlockKernelsSuite,
    testing::Combine(testing::Values(BlockFormat::kFp8E4m3, BlockFormat::kInt8,
                                     BlockFormat::kInt4, BlockFormat::kNf4,
                                     BlockFormat::kE2m1, BlockFormat::kE3m0,
                                     BlockFormat::kInt2),
                     testing::Values(64, 128, 256)),
    [](const auto& info) {
      return std::string(Name(std::get<0>(info.param))) +
             std::to_string(std::get<1>(info.param));
    });

void BlockKernelsSuite::ExpectDecodesAsReference(const std::string& encoded,
                                                 uint64_t count) {
  std::vector<float> decoded(count + kGuardValues, kGuard);
  kernels_->Decode(spec_, encoded, count, decoded);
  std::vector<float> want = ReferenceDecoding(encoded, count);
  want.resize(decoded.size(), kGuard);
  EXPECT_EQ(Bits(decoded), Bits(want)) << count << " values";
}

void BlockKernelsSuite::ExpectEncodesAndDecodesAsReference(
    const std::vector<float>& values) {
  const std::string want = ReferenceEncoding(values);
  std::string encoded(want.size() + kGuardBytes, 'x');
  kernels_->Encode(spec_, values, values.size(), encoded);
  EXPECT_EQ(encoded, want + std::string(kGuardBytes, 'x'))
      << values.size() << " values";
  ExpectDecodesAsReference(want, values.size());
}

TEST_P(BlockKernelsSuite, LengthsAroundUnitsAndStrips) {
  for (const uint64_t count : kLengths) {
    ExpectEncodesAndDecodesAsReference(Gaussian(count, 1, 3e-4f));
  }
}

TEST_P(BlockKernelsSuite, GaussianValuesOfAnyMagnitude) {
  for (const float deviation : {1e-37f, 1e-30f, 1.0f, 1e37f}) {
    ExpectEncodesAndDecodesAsReference(Gaussian(kValues, 2, deviation));
  }
}

TEST_P(BlockKernelsSuite, FiniteFloatsOfAnyBits) {
  // One outlier sets the scale; most of the rest is far below it.
  std::mt19937 random(3);
  std::vector<float> values;
  while (values.size() < kValues) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(value)) values.push_back(value);
  }
  ExpectEncodesAndDecodesAsReference(values);
}

TEST_P(BlockKernelsSuite, DenormalsAndTheSmallestScales) {
  std::mt19937 random(4);
  std::vector<float> values(kValues);
  // Magnitudes from 0 to beyond the least block that is not flushed.
  for (uint64_t i = 0; i < kValues; ++i) {
    const float limit = i / kLaneUnit % 2 == 0 ? 0x1p-126f : 0x1p-91f;
    values[i] = std::ldexp(limit, -static_cast<int>(random() % 24)) *
                (random() % 2 == 0 ? 1.0f : -1.0f);
  }
  ExpectEncodesAndDecodesAsReference(values);
}

TEST_P(BlockKernelsSuite, HugeOutliersAndTheLargestFloats) {
  std::vector<float> values = Gaussian(kValues, 5, 1e-3f);
  const float largest = std::numeric_limits<float>::max();
  for (uint64_t i = 7; i < kValues; i += 200) {
    values[i] = i % 3 == 0 ? largest : i % 3 == 1 ? -3.3e38f : 1e10f;
  }
  ExpectEncodesAndDecodesAsReference(values);
}

// Half-way between two levels, and the floats around it.
TEST_P(BlockKernelsSuite, ValuesBetweenLevels) {
  std::mt19937 random(6);
  const uint32_t codes = 1u << CodeBits(spec_.format);
  const auto random_level = [&] {
    return DecodeValue(spec_.format, Bf16FromFloat(1),
                       static_cast<uint8_t>(random() % codes));
  };
  for (int round = 0; round < 8; ++round) {
    std::vector<float> values(kValues);
    float scale = 1;
    for (uint64_t i = 0; i < kValues; ++i) {
      if (i % spec_.block_size == 0) {
        // Of eight significant bits: half-ways are exact.
        scale = std::ldexp(static_cast<float>(128 + random() % 128),
                           static_cast<int>(random() % 20) - 10);
        values[i] = TopLevel(spec_.format) * scale;
        continue;
      }
      float value = (random_level() + random_level()) / 2 * scale;
      if (!(std::fabs(value) < TopLevel(spec_.format) * scale)) value = 0;
      const float toward = random() % 2 == 0 ? -INFINITY : INFINITY;
      for (uint64_t k = random() % 3; k > 0; --k) {
        value = std::nextafter(value, toward);
      }
      values[i] = value;
    }
    ExpectEncodesAndDecodesAsReference(values);
  }
}

TEST_P(BlockKernelsSuite, BlocksWithoutAUsableScale) {
  for (const float bad : {0.0f, -0.0f, 0x1p-149f, INFINITY, -INFINITY, NAN}) {
    std::vector<float> values = Gaussian(kValues, 7, 1.0f);
    // Every second block is all bad; of some others one value is.
    for (uint64_t i = 0; i < kValues; ++i) {
      if (i / spec_.block_size % 2 == 0 || i % 1111 == 0) values[i] = bad;
    }
    ExpectEncodesAndDecodesAsReference(values);
  }
}

TEST_P(BlockKernelsSuite, DecodesEveryCodeWithScalesOfAllKinds) {
  // Under scales that no encoder writes, too: denormal, negative, too large,
  // not finite.
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
  for (const uint64_t count : kFewLengths) {
    const std::vector<float> anchor = Gaussian(count, 9, 0.02f);
    std::vector<float> parameters = Gaussian(count, 10, 3e-4f);
    Rebase(anchor, absl::MakeSpan(parameters));
    std::vector<float> pseudo_gradient(count);
    PseudoGradient(anchor, parameters, absl::MakeSpan(pseudo_gradient));
    const std::string want = ReferenceEncoding(pseudo_gradient);
    std::string encoded(want.size() + kGuardBytes, 'x');
    kernels_->EncodeDifference(spec_, anchor, parameters, count, encoded);
    EXPECT_EQ(encoded, want + std::string(kGuardBytes, 'x')) << count;
  }
}

// An update to apply, and what to apply it to; with values that only rules, not
// formulas, get right.
struct Update {
  explicit Update(uint64_t count)
      : values(Gaussian(count, 11, 1e-3f)),
        anchor(Gaussian(count + kGuardValues, 12, 0.02f)),
        parameters(Gaussian(count + kGuardValues, 13, 0.02f)) {
    for (uint64_t i = 0; i < count; i += 100) values[i] = 0;
    for (uint64_t i = 0; i < count; i += 200) anchor[i] = -0.0f;
    for (uint64_t i = 0; i < count; i += 300) parameters[i] = INFINITY;
  }
  std::vector<float> values;
  std::vector<float> anchor;
  std::vector<float> parameters;
};

TEST_P(BlockKernelsSuite, Accumulates) {
  for (const uint64_t count : kFewLengths) {
    const Update update(count);
    const std::string encoded = ReferenceEncoding(update.values);
    const std::vector<float> decoded = ReferenceDecoding(encoded, count);
    for (const float weight : {0.3f, -1.7f, 1.0f, 0.0f}) {
      std::vector<float> want = update.parameters;
      for (uint64_t i = 0; i < count; ++i) {
        want[i] = Accumulate(want[i], weight, decoded[i]);
      }
      std::vector<float> got = update.parameters;
      kernels_->DecodeAccumulate(spec_, encoded, count, weight, got);
      EXPECT_EQ(Bits(got), Bits(want)) << count << " values, " << weight;
    }
  }
}

TEST_P(BlockKernelsSuite, MixesAsIslandsDo) {
  for (const uint64_t count : kFewLengths) {
    const Update update(count);
    const std::string encoded = ReferenceEncoding(update.values);
    const std::vector<float> decoded = ReferenceDecoding(encoded, count);
    for (const float mixing : {0.0f, 0.5f, 0.9f, 1.0f}) {
      Update want = update;
      const auto head = [count](std::vector<float>& values) {
        return absl::MakeSpan(values).subspan(0, count);
      };
      Rebase(decoded, head(want.anchor));
      Mix(head(want.anchor), mixing, head(want.parameters));
      Update got = update;
      kernels_->DecodeMix(spec_, encoded, count, mixing, got.anchor,
                          got.parameters);
      EXPECT_EQ(Bits(got.anchor), Bits(want.anchor)) << count << " " << mixing;
      EXPECT_EQ(Bits(got.parameters), Bits(want.parameters))
          << count << " " << mixing;
    }
  }
}

TEST_P(BlockKernelsSuite, RebasesAsIslandsDo) {
  for (const uint64_t count : kFewLengths) {
    const Update update(count);
    const std::string encoded = ReferenceEncoding(update.values);
    const std::vector<float> decoded = ReferenceDecoding(encoded, count);
    Update want = update;
    Rebase(decoded, absl::MakeSpan(want.anchor).subspan(0, count));
    Rebase(decoded, absl::MakeSpan(want.parameters).subspan(0, count));
    Update got = update;
    kernels_->DecodeRebase(spec_, encoded, count, got.anchor, got.parameters);
    EXPECT_EQ(Bits(got.anchor), Bits(want.anchor)) << count;
    EXPECT_EQ(Bits(got.parameters), Bits(want.parameters)) << count;
  }
}

TEST_P(BlockKernelsSuite, NoValuesTouchNoMemory) {
  std::string encoded(kGuardBytes, 'x');
  std::vector<float> values(kGuardValues, kGuard);
  kernels_->Encode(spec_, values, 0, encoded);
  kernels_->Decode(spec_, encoded, 0, values);
  EXPECT_EQ(encoded, std::string(kGuardBytes, 'x'));
  EXPECT_EQ(values, std::vector<float>(kGuardValues, kGuard));
}

}  // namespace
}  // namespace causeway
