// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/entropy/entropy_coder.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "common/testing/highway_targets.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "quantization/entropy/rans_reference.h"
#include "quantization/entropy/rans_table.h"
#include "quantization/entropy/testing/whole_planes.h"

namespace causeway {
namespace {

// Runs every test for each instruction set that this machine has and each width
// of symbols.
class EntropyCoderTest
    : public testing::TestWithParam<std::tuple<int64_t, SymbolWidth>> {
 protected:
  const ScopedHighwayTarget target_{std::get<0>(GetParam())};

  bool nibbles() const { return width_ == SymbolWidth::kNibble; }
  // The bytes of one strip's codes.
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
  // original codes when these bytes are decompressed.
  void ExpectAsReference(const std::string& codes) const;

  const SymbolWidth width_ = std::get<1>(GetParam());
};

INSTANTIATE_TEST_SUITE_P(
    Targets, EntropyCoderTest,
    testing::Combine(testing::ValuesIn(HighwayTargets()),
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

// Returns rounded Gaussian numbers around 0, in two's complement.
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

// Tests any frequencies, in particular those of 2048 and more, where quotients
// by reciprocals have the least slack.
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

// Returns the bits that the codes take at their entropy of order 0.
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
        IsInvalidArgument())
        << size;
  }
}

// The lanes that read from the back meet these bytes first.
TEST_P(EntropyCoderTest, RefusesBytesAfterTheEnd) {
  const std::string codes = GaussianCodes(width_, 1024, 0.5, 7);
  std::string decoded(codes.size(), '\0');
  const std::string compressed = Compress(codes);
  for (const size_t extra : {1, 2, 63, 64, 65, 1000, 70000}) {
    EXPECT_THAT(Decompress(compressed + std::string(extra, 'x'), decoded),
                IsInvalidArgument());
  }
}

TEST_P(EntropyCoderTest, RefusesAPlaneOfAnotherSize) {
  const std::string codes = GaussianCodes(width_, 1024, 0.5, 8);
  const std::string compressed = Compress(codes);
  for (const size_t bytes : {64, 960, 1088, 4096}) {
    std::string decoded(bytes, '\0');
    EXPECT_THAT(Decompress(compressed, decoded), IsInvalidArgument());
  }
}

// A few flips turn the bytes into those of another plane (nothing checks the
// last symbols of a lane); the coder finds most flips.
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

// Any bytes give a status, the same as the reference's, and nothing else. The
// address sanitizer watches the bounds.
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

// A unit of symbols of frequency 1 takes more words than the kernels demand
// before it.
TEST_P(EntropyCoderTest, RefusesWordsThatEndInAUnitOfRareSymbols) {
  RansTable table;
  table.frequency[0] = 1;
  table.frequency[1] = kRansTotal - 1;
  char head[kMaxRansTableBytes];
  std::string bytes(head, WriteRansTable(table, head));
  for (size_t lane = 0; lane < kRansLanes; ++lane) {
    bytes += std::string("\0\0\1\0", 4);
  }
  std::string decoded(1024, '\0');
  for (size_t words = 0; words <= 500; ++words) {
    SCOPED_TRACE(words);
    ASSERT_THAT(Decompress(bytes, decoded), IsInvalidArgument());
    ASSERT_THAT(RansDecompressReference(width_, bytes, absl::MakeSpan(decoded)),
                IsInvalidArgument());
    bytes += std::string(kRansWordBytes, '\0');
  }
}

// Returns whole numbers around zero, as small() in
// quantization/entropy/entropy_golden.py.
int Small(int i) {
  const int draw = i * i * 31 % 101;
  constexpr int kNumbers[] = {1, -1, 1, -1, 2, -2, -3};
  return draw < 60 ? 0 : kNumbers[draw % 7];
}

void ExpectGolden(SymbolWidth width, const std::string& codes,
                  absl::string_view golden_hex) {
  std::string compressed(codes.size(), '\0');
  compressed.resize(CompressCodes(width, codes, absl::MakeSpan(compressed)));
  EXPECT_EQ(absl::BytesToHexString(compressed), golden_hex);
  std::string decoded(codes.size(), '\0');
  ASSERT_OK(DecompressCodes(width, absl::HexStringToBytes(golden_hex),
                            absl::MakeSpan(decoded)));
  EXPECT_EQ(decoded, codes);
}

// The bytes come from quantization/entropy/entropy_golden.py.
TEST(EntropyCoderGoldenTest, Nibbles) {
  std::string codes(11 * 64, '\0');
  for (int i = 0; i < 1400; ++i) {
    const int row = i % 128 / 16;
    char& byte = codes[i / 128 * 64 + i % 16 * 4 + row / 2];
    byte = static_cast<char>(byte | (Small(i) & 15) << row % 2 * 4);
  }
  ExpectGolden(
      SymbolWidth::kNibble, codes,
      "a5cf0ae70c9e19d470ba03b0860709980b3b00aab813099b5d0d0035a3300387e1c51743"
      "4a8608fe770500f8cd0100a363e2128f9d0d00d113060864ac02004aef3b2c014c775b90"
      "6b05004aa006a743b30100d4966107ffb64d5c8160135cdb430f2c09e8c8ad4b51110f3d"
      "2d010049de95001a740100e2990500c66301002b168d0084210100d4f8440fd1c2aabda3"
      "c986768cd480acc02d49aa1544cb5d0d57f9411a018293952ffc8561d753fa5fb6440a10"
      "4f92c489816994c928e8a64e2e483b29b9926fa941787ab11ed2aa9dfe965d7f0f720e00"
      "16a472bb2610f4f41b21ab613079f019eb2c19c15d3d4cee4fb323809d2851bbb97f8b7f"
      "5dad31072fdf7d11119fdcbc4620efaeebd980d5576b4d5bed03d7341e0059498d20fa1d"
      "a0ada1ace5ae15ec51f93e3dcedd829fee98550ab47aef2fe35a2feff6f4acfe24ef5df9"
      "5c6d844e7d13f3846b2288ee26cdee94238a07ccbefea8aea8494aed2718044bceb0691c"
      "b8c3d1be7f1bb5b5f6711a8b270549a522fa603e8bda509a8e8a2d5a991381b8eb6c0ebb"
      "268423c2ba555f380aeee7c051433f96784b1f2f6cb091968fc10ebd397f43e4c7bcaa20"
      "ea163ad52c");
}

TEST(EntropyCoderGoldenTest, Bytes) {
  std::string codes(1000, '\0');
  for (int i = 0; i < 1000; ++i) codes[i] = static_cast<char>(Small(i));
  ExpectGolden(
      SymbolWidth::kByte, codes,
      "7d820f0be70c9e151470a203f3fc010053880a0088988c0a6c6e45b7e0a2010043010200"
      "710557e4058c802c665d376bf5522800287e9c6a6f0b2e1adeab0e856f1f3a1ff2db643a"
      "9abc4115936a1406ff0206008f2a01006fcf8d71b1625c4bb1250600cff6f24ce917321e"
      "84330100020fdd5b914401002200281ef401b34e385a060071ba464b8d60f770de7d6015"
      "d8239ae27c4250fb2cf69c1525d7821e22aeaee937c7b01089b9370e5f820fce5c92bae8"
      "13590a7b793436253923891dbdb3468f8ff5f3e6ded34e29cea3f8b451e8350d353374ba"
      "4cdc4f7b00e1ca4c4a594f724f5d329af5b1c28e90759032ee00a77f5d1ec6c34aa19244"
      "feb6929bef73761f28c88ca201589fbaccad0dfd093c7c0d26d0135a71f30d501e9df3b9"
      "20c937ca8af66b9957ab115a2871beef3dbd72cafc8905c69d7125d3fe4feb299a466a77"
      "7968902210578df8ac0b0d1f");
}

}  // namespace
}  // namespace causeway
