// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests entropy-coded vectors; quantization/codec_test.cc tests what holds for
// all codecs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/fragment.pb.h"
#include "quantization/codec.h"
#include "quantization/strips/layout.h"
#include "quantization/testing/whole_vectors.h"

namespace causeway {
namespace {

using testing::Each;

constexpr uint64_t kSize = 2 * kStripValues + 1000;

std::vector<float> Gaussian(uint64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1e-3f);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

CodecSpec Coded(v1::Format format) {
  return {.format = format, .entropy_coded = true};
}

std::string Encoded(const CodecSpec& spec, uint64_t size = kSize) {
  return Encode(spec, Gaussian(size, 1)).value();
}

StripHeader HeaderAt(const std::string& encoded, uint64_t at) {
  return ReadStripHeader(encoded.data() + at);
}
uint64_t SecondStrip(const std::string& encoded) {
  return StripHeader::kBytes + HeaderAt(encoded, 0).bytes;
}

// Sizes are within 1 % of the codes' entropy, which another program (NumPy)
// measured on 65 536 Gaussian values in blocks of 256, plus 1/16 bit for the
// scale.
TEST(EntropyCodecTest, TakesFewerBytesAndLosesNothing) {
  const std::pair<v1::Format, double> entropies[] = {
      {v1::INT8, 7.422}, {v1::INT4, 3.267}, {v1::E3M0, 3.477}};
  const std::vector<float> values = Gaussian(kSize, 1);
  for (const auto& [format, entropy] : entropies) {
    const std::string coded = Encoded(Coded(format));
    const double bits = 8.0 * static_cast<double>(coded.size()) / kSize;
    EXPECT_LT(bits - 0.0625, 1.01 * entropy) << v1::Format_Name(format);
    std::vector<float> got(kSize);
    ASSERT_OK(Decode(Coded(format), coded, absl::MakeSpan(got)));
    std::vector<float> want(kSize);
    const CodecSpec plain{.format = format};
    ASSERT_OK(
        Decode(plain, Encode(plain, values).value(), absl::MakeSpan(want)));
    EXPECT_TRUE(got == want);
  }
}

TEST(EntropyCodecTest, KeepsCodesThatDoNotGetSmaller) {
  const CodecSpec spec = Coded(v1::E3M0);
  // These values are too few to pay for a table.
  const std::vector<float> values = Gaussian(100, 2);
  ASSERT_OK_AND_ASSIGN(const std::string coded, Encode(spec, values));
  ASSERT_OK_AND_ASSIGN(const std::string plain,
                       Encode({.format = v1::E3M0}, values));
  EXPECT_EQ(coded.size(), MaxEncodedBytes(spec, 100));
  EXPECT_FALSE(HeaderAt(coded, 0).compressed);
  EXPECT_EQ(coded.substr(StripHeader::kBytes), plain);
}

// The bytes come from quantization/entropy/entropy_golden.py.
TEST(EntropyCodecTest, HasTheBytesOfTheProtocol) {
  std::vector<float> values(1000);
  for (int i = 0; i < 1000; ++i) {
    const int draw = i * i * 31 % 101;
    constexpr float kNumbers[] = {1, -1, 1, -1, 2, -2, -3};
    values[i] = i % 256 == 0 ? 7 : draw < 60 ? 0 : kNumbers[draw % 7];
  }
  ASSERT_OK_AND_ASSIGN(const std::string encoded,
                       Encode(Coded(v1::INT4), values));
  EXPECT_EQ(
      absl::BytesToHexString(encoded),
      "6d010080803f803f803f803ff50f0ae6f01d2874748ed337007c01f0bf09ad101b0d0008"
      "8701058bbd0100ed4101003401ca0244f6410471140100d24e25016ae20300136e01001e"
      "092a06eb9488006c0fbb9836646a097ed64b091f705c05e1510d0060c7050092751a5f8b"
      "f096bab9041a0a17b52500b090590cd57e8d01521e0d009b490100a20c020076e33801a5"
      "840400ac400600cb380300e68f70c34f257ace5f2c2b2f266e903fbc1d0ccd91e7e36ad1"
      "41e0765a793b9193f4e13843ac2c01e25e7ff5274e7012851d8ffabd96c1684ddec32492"
      "8e8c1d73aedb9425770cac3c84ecaf01c1582b50fd2c02240b2853f8ed105ca05a688094"
      "61ac056859ecd1401e187ea8c274b2b8cf8c21645c8082545eb0f6743554e5088114a618"
      "5a1cadb82ef0f8d9ae2d8f9893b81683f4204adfae80de96d3354aae3da7bc84b4409255"
      "e51a6051298aef9a927b9c81aeff3933e3430a6384aa2b68f8636e8fcdc3e57bff9ed3a6"
      "7d9cc07c5ca61bd508");
}

TEST(EntropyCodecTest, RefusesEveryPrefixAndEveryExtension) {
  const CodecSpec spec = Coded(v1::INT4);
  const std::string encoded = Encoded(spec, kStripValues + 700);
  std::vector<float> values(kStripValues + 700, 5.0f);
  const auto refused = IsInvalidArgument();
  for (uint64_t size = 0; size < encoded.size(); size += 1 + size / 7) {
    EXPECT_THAT(Decode(spec, encoded.substr(0, size), absl::MakeSpan(values)),
                refused);
  }
  EXPECT_THAT(Decode(spec, encoded + "x", absl::MakeSpan(values)), refused);
  EXPECT_THAT(Decode(spec, encoded + encoded, absl::MakeSpan(values)), refused);
  EXPECT_THAT(values, Each(5.0f));
}

// An opened encoding can always be decoded: damaged parts become NaN.
TEST(EntropyCodecTest, DamagedStripsDecodeToNanAndAreNamed) {
  const CodecSpec spec = Coded(v1::E3M0);
  std::string encoded = Encoded(spec);
  std::vector<float> want(kSize);
  ASSERT_OK(Decode(spec, encoded, absl::MakeSpan(want)));
  const uint64_t table =
      SecondStrip(encoded) + StripHeader::kBytes + 2 * kStripValues / 256;
  encoded[table] = '\x01';  // Ends before it begins.
  std::vector<float> refused(kSize, 5.0f);
  EXPECT_THAT(Decode(spec, encoded, absl::MakeSpan(refused)),
              IsInvalidArgument("strip 1 of 3 (values 65536 to 131071)",
                                "table of frequencies"));
  EXPECT_THAT(refused, Each(5.0f));

  ASSERT_OK_AND_ASSIGN(const auto decoder, OpenDecoder(spec, encoded, kSize));
  const auto cursor = decoder->NewCursor();
  std::vector<float> got(kSize);
  // Reads from the last strip backwards, and again.
  for (int round = 0; round < 2; ++round) {
    for (uint64_t strip = 3; strip-- > 0;) {
      const uint64_t begin = strip * kStripValues;
      const uint64_t count = ValuesOfStrip(strip, kSize);
      cursor->Decode(begin, absl::MakeSpan(got).subspan(begin, count));
    }
  }
  for (uint64_t i = 0; i < kSize; ++i) {
    if (i / kStripValues == 1) {
      ASSERT_TRUE(std::isnan(got[i])) << i;
    } else {
      ASSERT_EQ(got[i], want[i]);
    }
  }
}

TEST(EntropyCodecTest, ADamagedStripMakesASumNan) {
  const CodecSpec spec = Coded(v1::E3M0);
  const std::string sound = Encoded(spec);
  std::vector<float> want(kSize);
  ASSERT_OK(Decode(spec, sound, absl::MakeSpan(want)));
  std::string damaged = sound;
  damaged[SecondStrip(sound) + StripHeader::kBytes + 2 * kStripValues / 256] =
      '\x01';
  std::vector<std::unique_ptr<Decoder>> decoders;
  for (const absl::string_view encoded :
       std::initializer_list<absl::string_view>{sound, damaged}) {
    ASSERT_OK_AND_ASSIGN(decoders.emplace_back(),
                         OpenDecoder(spec, encoded, kSize));
  }
  std::vector<float> sum(kSize);
  SumCursor(decoders).Sum(0, {0.5f, 1.0f}, absl::MakeSpan(sum));
  for (uint64_t i = 0; i < kSize; ++i) {
    if (i / kStripValues == 1) {
      ASSERT_TRUE(std::isnan(sum[i])) << i;
    } else {
      ASSERT_EQ(sum[i], 0.5f * want[i] + want[i]);
    }
  }
}

TEST(EntropyCodecTest, RefusesHeadersThatLie) {
  const CodecSpec spec = Coded(v1::INT8);
  const uint64_t size = 5000;
  const std::string encoded = Encoded(spec, size);
  const uint32_t planes = 5000 + 2 * 20;
  std::vector<float> values(size);
  struct Case {
    StripHeader header;
    std::string message;
  };
  const Case cases[] = {
      {{.bytes = planes + 1}, "take at most"},
      {{.bytes = (1 << 24) - 1, .compressed = true}, "take at most"},
      {{.bytes = planes - 1}, "its codes 5000"},
      {{.bytes = 39, .compressed = true}, "its scales take 40"},
      {{.bytes = 40, .compressed = true}, "table of frequencies is cut off"},
  };
  for (const Case& lie : cases) {
    std::string bad = encoded;
    bad.resize(
        std::min<uint64_t>(StripHeader::kBytes + lie.header.bytes, 9000));
    WriteStripHeader(lie.header, bad.data());
    EXPECT_THAT(Decode(spec, bad, absl::MakeSpan(values)),
                IsInvalidArgument(lie.message));
  }
}

// With any flipped bits, the result is an error or finite values.
TEST(EntropyCodecTest, TakesAnyDamage) {
  std::mt19937 random(4);
  for (const v1::Format format : {v1::INT8, v1::INT4, v1::E3M0}) {
    const CodecSpec spec = Coded(format);
    const uint64_t size = 4000;
    const std::string encoded = Encoded(spec, size);
    int refused = 0;
    for (int round = 0; round < 1000; ++round) {
      std::string bad = encoded;
      for (uint32_t flips = 1 + random() % 3; flips > 0; --flips) {
        bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
      }
      std::vector<float> values(size, 5.0f);
      const absl::Status status = Decode(spec, bad, absl::MakeSpan(values));
      if (!status.ok()) {
        ++refused;
        ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
        ASSERT_TRUE(
            std::ranges::all_of(values, [](float v) { return v == 5.0f; }));
      } else {
        ASSERT_TRUE(std::ranges::all_of(
            values, [](float v) { return std::isfinite(v); }));
      }
    }
    EXPECT_GT(refused, 900) << v1::Format_Name(format);
  }
}

// A few bytes that claim to be very many values are refused before memory for
// the values is allocated.
TEST(EntropyCodecTest, RefusesFewBytesForManyValues) {
  const CodecSpec spec = Coded(v1::INT8);
  const std::string encoded = Encoded(spec, 1000);
  for (const uint64_t size : {uint64_t{1} << 40, uint64_t{1} << 63}) {
    EXPECT_THAT(OpenDecoder(spec, encoded, size), IsInvalidArgument());
  }
}

}  // namespace
}  // namespace causeway
