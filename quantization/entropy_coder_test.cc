// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/entropy_coder.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "quantization/rans_reference.h"

namespace causeway {
namespace {

// Runs every test once for each instruction set that this machine has, and each
// width of symbols.
class EntropyCoderTest
    : public testing::TestWithParam<std::tuple<int64_t, SymbolWidth>> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(std::get<0>(GetParam()));
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

  bool nibbles() const { return width_ == SymbolWidth::kNibble; }
  // Of one strip.
  size_t LargestPlane() const { return nibbles() ? 1 << 15 : 1 << 16; }

  std::string Compress(const std::string& codes) const {
    std::string compressed(codes.size(), 'x');
    compressed.resize(CompressCodes(width_, codes, absl::MakeSpan(compressed)));
    return compressed;
  }
  absl::Status Decompress(absl::string_view compressed,
                          std::string& codes) const {
    std::fill(codes.begin(), codes.end(), 'x');
    return DecompressCodes(width_, compressed, absl::MakeSpan(codes));
  }

  // Expects the reference's bytes if they are fewer than the codes, and the
  // codes from them.
  void ExpectAsReference(const std::string& codes) const;

  const SymbolWidth width_ = std::get<1>(GetParam());
};

std::vector<int64_t> AllTargets() {
  std::vector<int64_t> targets;
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    targets.push_back(target);
  }
  return targets;
}

INSTANTIATE_TEST_SUITE_P(
    Targets, EntropyCoderTest,
    testing::Combine(testing::ValuesIn(AllTargets()),
                     testing::Values(SymbolWidth::kNibble, SymbolWidth::kByte)),
    [](const auto& info) {
      return std::string(hwy::TargetName(std::get<0>(info.param))) +
             (std::get<1>(info.param) == SymbolWidth::kNibble ? "_Nibble"
                                                              : "_Byte");
    });

void EntropyCoderTest::ExpectAsReference(const std::string& codes) const {
  const std::string want = RansCompressReference(width_, codes);
  const std::string got = Compress(codes);
  if (want.size() >= codes.size()) {
    ASSERT_EQ(got, "");
    return;
  }
  ASSERT_EQ(got, want);
  std::string decoded(codes.size(), 'x');
  ASSERT_THAT(Decompress(got, decoded), IsOk());
  ASSERT_EQ(decoded, codes);
  std::fill(decoded.begin(), decoded.end(), 'x');
  ASSERT_THAT(RansDecompressReference(width_, got, absl::MakeSpan(decoded)),
              IsOk());
  ASSERT_EQ(decoded, codes);
}

// Rounded Gaussian numbers around 0, as two's complement.
std::string GaussianCodes(SymbolWidth width, size_t bytes, double deviation,
                          uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, deviation);
  const double top = static_cast<double>(AlphabetSize(width)) / 2 - 1;
  const auto code = [&] {
    return static_cast<int>(
        std::clamp(std::nearbyint(normal(random)), -top, top));
  };
  std::string codes(bytes, '\0');
  for (char& byte : codes) {
    byte = static_cast<char>(
        width == SymbolWidth::kByte ? code() : (code() & 15) | code() << 4);
  }
  return codes;
}

TEST_P(EntropyCoderTest, EqualsTheReferenceAtAllRates) {
  for (const double deviation : {0.1, 0.3, 0.7, 1.5, 2.0, 20.0, 45.0, 80.0}) {
    SCOPED_TRACE(deviation);
    ExpectAsReference(GaussianCodes(width_, LargestPlane(), deviation, 1));
  }
}

TEST_P(EntropyCoderTest, EqualsTheReferenceAtAllSizes) {
  for (size_t units = 0; units < 70; ++units) {
    SCOPED_TRACE(units);
    const size_t bytes = nibbles() ? 64 * units : 37 * units + units % 5;
    ExpectAsReference(GaussianCodes(width_, bytes, 0.3, 2));
  }
}

// Any frequencies, 2048 and more in particular, where quotients by reciprocal
// have the least room.
TEST_P(EntropyCoderTest, EqualsTheReferenceWithAnyFrequencies) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    const size_t bytes = 64 * (1 + random() % 60);
    const uint32_t first = random() % 4096;
    const uint32_t second = random() % 4096;
    const auto code = [&](uint32_t draw) {
      return draw < first ? 3u : draw < second ? 7u : draw % 16;
    };
    std::string codes(bytes, '\0');
    for (char& byte : codes) {
      byte =
          static_cast<char>(code(random() % 4096) | code(random() % 4096) << 4);
    }
    ExpectAsReference(codes);
  }
}

TEST_P(EntropyCoderTest, OneSymbolTakesAlmostNothing) {
  for (const char code : {'\0', '\x33', '\xff'}) {
    const std::string codes(LargestPlane(), code);
    ExpectAsReference(codes);
    EXPECT_LE(Compress(codes).size(), 128u + 6);
  }
}

TEST_P(EntropyCoderTest, UniformCodesDoNotPay) {
  std::mt19937 random(4);
  std::string codes(LargestPlane(), '\0');
  for (char& byte : codes) byte = static_cast<char>(random());
  EXPECT_EQ(Compress(codes), "");
}

// Bits of the codes' entropy of order 0.
double EntropyBits(SymbolWidth width, absl::string_view codes) {
  std::vector<double> counts(AlphabetSize(width));
  double symbols = 0;
  for (const char byte : codes) {
    const uint8_t code = static_cast<uint8_t>(byte);
    if (width == SymbolWidth::kByte) {
      ++counts[code];
      ++symbols;
    } else {
      ++counts[code & 15];
      ++counts[code >> 4];
      symbols += 2;
    }
  }
  double bits = 0;
  for (const double count : counts) {
    if (count > 0) bits -= count * std::log2(count / symbols);
  }
  return bits;
}

TEST_P(EntropyCoderTest, AStripIsWithinOnePercentOfItsEntropy) {
  for (const double deviation : {0.6, 1.0, 2.0, 15.0, 40.0}) {
    if (nibbles() && deviation > 2) continue;
    const std::string codes =
        GaussianCodes(width_, LargestPlane(), deviation, 5);
    const double entropy = EntropyBits(width_, codes);
    const double bits = 8.0 * static_cast<double>(Compress(codes).size());
    EXPECT_LT(bits, 1.01 * entropy) << deviation;
    EXPECT_GT(bits, entropy) << deviation;
  }
}

TEST_P(EntropyCoderTest, RefusesEveryPrefix) {
  const std::string codes = GaussianCodes(width_, 1024, 0.5, 6);
  const std::string compressed = Compress(codes);
  ASSERT_NE(compressed, "");
  std::string decoded(codes.size(), '\0');
  for (size_t size = 0; size < compressed.size(); ++size) {
    EXPECT_THAT(
        Decompress(absl::string_view(compressed).substr(0, size), decoded),
        StatusIs(absl::StatusCode::kInvalidArgument))
        << size;
  }
}

// The back half of the lanes reads them first.
TEST_P(EntropyCoderTest, RefusesBytesAfterTheEnd) {
  const std::string codes = GaussianCodes(width_, 1024, 0.5, 7);
  std::string decoded(codes.size(), '\0');
  const std::string compressed = Compress(codes);
  for (const size_t extra : {1, 2, 63, 64, 65, 1000, 70000}) {
    EXPECT_THAT(Decompress(compressed + std::string(extra, 'x'), decoded),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST_P(EntropyCoderTest, RefusesAPlaneOfAnotherSize) {
  const std::string codes = GaussianCodes(width_, 1024, 0.5, 8);
  const std::string compressed = Compress(codes);
  for (const size_t bytes : {64, 960, 1088, 4096}) {
    std::string decoded(bytes, '\0');
    EXPECT_THAT(Decompress(compressed, decoded),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

// A few flips make another plane's bytes (the last symbols of a lane stand for
// themselves), most are found.
TEST_P(EntropyCoderTest, RefusesNearlyEveryFlippedBit) {
  const std::string codes = GaussianCodes(width_, 1280, 0.6, 9);
  const std::string compressed = Compress(codes);
  ASSERT_NE(compressed, "");
  std::string decoded(codes.size(), '\0');
  std::string want(codes.size(), '\0');
  size_t unseen = 0;
  for (size_t bit = 0; bit < 8 * compressed.size(); ++bit) {
    std::string damaged = compressed;
    damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const absl::Status status = Decompress(damaged, decoded);
    ASSERT_EQ(
        RansDecompressReference(width_, damaged, absl::MakeSpan(want)).code(),
        status.code());
    if (!status.ok()) continue;
    ++unseen;
    EXPECT_NE(decoded, codes) << bit;
    EXPECT_EQ(decoded, want) << bit;
  }
  EXPECT_LT(unseen, compressed.size() * 8 / 100);
}

// Nothing but a status, and the reference's opinion, whatever the bytes are.
// The address sanitizer watches the bounds.
TEST_P(EntropyCoderTest, TakesAnyBytes) {
  std::mt19937 random(10);
  const std::string good = Compress(GaussianCodes(width_, 4096, 0.5, 11));
  std::string decoded(4096, '\0');
  std::string want(4096, '\0');
  for (int round = 0; round < 1000; ++round) {
    // Half of the rounds keep the table and the states.
    std::string bytes(round % 2 == 0 ? good.substr(0, 150) : "");
    const size_t extra = random() % 3000;
    for (size_t i = 0; i < extra; ++i) bytes += static_cast<char>(random());
    const absl::Status got = Decompress(bytes, decoded);
    EXPECT_EQ(
        got.code(),
        RansDecompressReference(width_, bytes, absl::MakeSpan(want)).code());
  }
}

}  // namespace
}  // namespace causeway
