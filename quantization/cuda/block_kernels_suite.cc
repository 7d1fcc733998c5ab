// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/cuda/block_kernels_suite.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "outer_optimizer/mixing.h"
#include "quantization/block_reference.h"
#include "quantization/block_test_values.h"
#include "quantization/encode_options.h"
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

// To nearest, and at random with numbers whose counters go beyond 32 bits
// within two strips.
constexpr BlockRounding kRoundings[] = {
    {},
    {.rounding = Rounding::kStochastic,
     .seed = 0x123456789abcdef0,
     .begin = (uint64_t{1} << 34) - kStripValues}};

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
  std::string ReferenceEncoding(absl::Span<const float> values,
                                const BlockRounding& rounding = {}) const {
    std::string encoded;
    for (uint64_t begin = 0; begin < values.size(); begin += kStripValues) {
      encoded += EncodeBlocks(
          spec_.format, spec_.block_size, values.subspan(begin, kStripValues),
          {.rounding = rounding.rounding, .seed = rounding.seed},
          rounding.begin + begin);
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
  std::vector<float> decoded(count + kGuardValues, kGuard);
  kernels_->Decode(spec_, encoded, count, decoded);
  std::vector<float> want = ReferenceDecoding(encoded, count);
  want.resize(decoded.size(), kGuard);
  EXPECT_EQ(BitsOf(decoded), BitsOf(want)) << count << " values";
}

void BlockKernelsSuite::ExpectEncodesAndDecodesAsReference(
    const std::vector<float>& values) {
  for (const BlockRounding& rounding : kRoundings) {
    const std::string want = ReferenceEncoding(values, rounding);
    std::string encoded(want.size() + kGuardBytes, 'x');
    kernels_->Encode(spec_, rounding, values, values.size(), encoded);
    EXPECT_EQ(encoded, want + std::string(kGuardBytes, 'x'))
        << values.size() << " values, seed " << rounding.seed;
    ExpectDecodesAsReference(want, values.size());
  }
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

// What an island has trained, and its pseudo-gradient.
struct Trained {
  explicit Trained(uint64_t count)
      : anchor(GaussianValues(count, 9, 0.02f)),
        parameters(GaussianValues(count, 10, 3e-4f)),
        pseudo_gradient(count) {
    Rebase(anchor, absl::MakeSpan(parameters));
    PseudoGradient(anchor, parameters, absl::MakeSpan(pseudo_gradient));
  }
  std::vector<float> anchor;
  std::vector<float> parameters;
  std::vector<float> pseudo_gradient;
};

TEST_P(BlockKernelsSuite, EncodesDifferences) {
  for (const uint64_t count : kFewLengths) {
    const Trained trained(count);
    for (const BlockRounding& rounding : kRoundings) {
      const std::string want =
          ReferenceEncoding(trained.pseudo_gradient, rounding);
      std::string encoded(want.size() + kGuardBytes, 'x');
      kernels_->EncodeDifference(spec_, rounding, trained.anchor,
                                 trained.parameters, count, encoded);
      EXPECT_EQ(encoded, want + std::string(kGuardBytes, 'x')) << count;
    }
  }
}

// Of a first contribution, which has no error yet, and of the next one; as
// quantization/error_feedback.h says it.
TEST_P(BlockKernelsSuite, KeepsWhatEncodingLoses) {
  constexpr float kDecay = 0.95f;
  for (const uint64_t count : kFewLengths) {
    const Trained trained(count);
    for (const BlockRounding& rounding : kRoundings) {
      std::vector<float> error;
      for (int contribution = 0; contribution < 2; ++contribution) {
        std::vector<float> values = trained.pseudo_gradient;
        if (!error.empty()) Rebase(error, absl::MakeSpan(values));
        const std::string want = ReferenceEncoding(values, rounding);
        const std::vector<float> decoded = ReferenceDecoding(want, count);
        std::vector<float> want_error(count + kGuardValues, kGuard);
        for (uint64_t i = 0; i < count; ++i) {
          want_error[i] = kDecay * (values[i] - decoded[i]);
        }
        std::string encoded(want.size() + kGuardBytes, 'x');
        std::vector<float> next_error(count + kGuardValues, kGuard);
        kernels_->EncodeWithFeedback(spec_, rounding, trained.anchor,
                                     trained.parameters, error, kDecay, count,
                                     encoded, next_error);
        EXPECT_EQ(encoded, want + std::string(kGuardBytes, 'x')) << count;
        EXPECT_EQ(BitsOf(next_error), BitsOf(want_error)) << count;
        next_error.resize(count);
        error = std::move(next_error);
      }
    }
  }
}

// The values that encoders write as zeros, or beyond the top level, are lost
// as they were.
TEST_P(BlockKernelsSuite, KeepsWhatBlocksWithoutAUsableScaleLose) {
  for (const std::vector<float>& values :
       {DenormalValues(kValues), ValuesWithOutliers(kValues)}) {
    const std::vector<float> zeros(kValues);
    for (const BlockRounding& rounding : kRoundings) {
      const std::string want = ReferenceEncoding(values, rounding);
      std::vector<float> want_error = ReferenceDecoding(want, kValues);
      for (uint64_t i = 0; i < kValues; ++i) {
        want_error[i] = 0.5f * (values[i] - want_error[i]);
      }
      std::string encoded(want.size(), 'x');
      std::vector<float> next_error(kValues);
      kernels_->EncodeWithFeedback(spec_, rounding, values, zeros, {}, 0.5f,
                                   kValues, encoded, next_error);
      EXPECT_EQ(encoded, want);
      EXPECT_EQ(BitsOf(next_error), BitsOf(want_error));
    }
  }
}

// An update to apply, and what to apply it to; with values that only rules, not
// formulas, get right.
struct Update {
  explicit Update(uint64_t count)
      : values(GaussianValues(count, 11, 1e-3f)),
        anchor(GaussianValues(count + kGuardValues, 12, 0.02f)),
        parameters(GaussianValues(count + kGuardValues, 13, 0.02f)) {
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
      EXPECT_EQ(BitsOf(got), BitsOf(want)) << count << " values, " << weight;
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
      EXPECT_EQ(BitsOf(got.anchor), BitsOf(want.anchor))
          << count << " " << mixing;
      EXPECT_EQ(BitsOf(got.parameters), BitsOf(want.parameters))
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
    EXPECT_EQ(BitsOf(got.anchor), BitsOf(want.anchor)) << count;
    EXPECT_EQ(BitsOf(got.parameters), BitsOf(want.parameters)) << count;
  }
}

TEST_P(BlockKernelsSuite, NoValuesTouchNoMemory) {
  std::string encoded(kGuardBytes, 'x');
  std::vector<float> values(kGuardValues, kGuard);
  kernels_->Encode(spec_, {}, values, 0, encoded);
  kernels_->Decode(spec_, encoded, 0, values);
  EXPECT_EQ(encoded, std::string(kGuardBytes, 'x'));
  EXPECT_EQ(values, std::vector<float>(kGuardValues, kGuard));
}

}  // namespace
}  // namespace causeway
