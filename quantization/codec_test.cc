// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/codec.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantization/strips/layout.h"
#include "quantization/testing/whole_vectors.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Not;

const float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Values(size_t count) {
  std::vector<float> values(count);
  uint32_t state = 7;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-40f;
  }
  return values;
}

// Tests the contract of the interface for every format and block size.
class CodecTest : public testing::TestWithParam<CodecSpec> {
 protected:
  bool HasScales() const {
    return spec_.format != v1::FP32 && spec_.format != v1::BF16;
  }
  std::vector<float> Decoded(absl::string_view encoded, size_t count) const {
    std::vector<float> values(count, kNan);
    EXPECT_OK(Decode(spec_, encoded, absl::MakeSpan(values)));
    return values;
  }

  const CodecSpec spec_ = GetParam();
};

std::vector<CodecSpec> AllSpecs() {
  std::vector<CodecSpec> specs = {{.format = v1::FP32}, {.format = v1::BF16}};
  for (const v1::Format format : {v1::INT8, v1::INT4, v1::E3M0}) {
    for (const uint32_t block_size : {64, 128, 256}) {
      for (const bool entropy_coded : {false, true}) {
        specs.push_back({.format = format,
                         .block_size = block_size,
                         .entropy_coded = entropy_coded});
      }
    }
  }
  for (const uint32_t block_size : {64, 128, 256}) {
    specs.push_back(
        {.format = v1::ECQ, .block_size = block_size, .entropy_coded = true});
  }
  return specs;
}

INSTANTIATE_TEST_SUITE_P(Formats, CodecTest, testing::ValuesIn(AllSpecs()),
                         [](const testing::TestParamInfo<CodecSpec>& info) {
                           return v1::Format_Name(info.param.format) + "_" +
                                  std::to_string(info.param.block_size) +
                                  (info.param.entropy_coded ? "_Coded" : "");
                         });

TEST(CodecFormatsTest, EveryFormatOfTheProtocolIsKnown) {
  for (int number = v1::Format_MIN; number <= v1::Format_MAX; ++number) {
    const auto format = static_cast<v1::Format>(number);
    const bool tested = std::ranges::any_of(
        AllSpecs(), [&](const auto& spec) { return spec.format == format; });
    EXPECT_EQ(tested,
              v1::Format_IsValid(number) && format != v1::FORMAT_UNSPECIFIED)
        << number;
    const CodecSpec spec{.format = format, .entropy_coded = format == v1::ECQ};
    EXPECT_EQ(CheckCodecSpec(spec).ok(), tested) << number;
  }
}

TEST_P(CodecTest, TakesTheAnnouncedBytesForAnyLength) {
  for (const size_t count : {0, 1, 2, 255, 256, 257, 1000}) {
    ASSERT_OK_AND_ASSIGN(const std::string encoded,
                         Encode(spec_, Values(count)));
    EXPECT_LE(encoded.size(), MaxEncodedBytes(spec_, count));
    if (!spec_.entropy_coded) {
      EXPECT_EQ(encoded.size(), MaxEncodedBytes(spec_, count));
    }
    const std::vector<float> decoded = Decoded(encoded, count);
    EXPECT_THAT(
        decoded,
        Each(testing::Truly([](float value) { return std::isfinite(value); })));
  }
}

TEST_P(CodecTest, LosslessMeansTheSameBits) {
  const std::vector<float> values = Values(777);
  ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec_, values));
  const std::vector<float> decoded = Decoded(encoded, values.size());
  EXPECT_EQ(decoded == values, IsLossless(spec_.format));
}

TEST_P(CodecTest, EncodingWhatWasDecodedChangesNothing) {
  // ECQ's scales are not among its levels.
  if (spec_.format == v1::ECQ) return;
  ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec_, Values(777)));
  const std::vector<float> decoded = Decoded(encoded, 777);
  EXPECT_THAT(Encode(spec_, decoded), IsOkAndHolds(encoded));
}

TEST_P(CodecTest, PiecesInAnyOrderGiveTheSameBytesAsTheWhole) {
  const size_t unit = PieceAlignment(spec_);
  const std::vector<float> values = Values(5 * unit + 20);
  ASSERT_OK_AND_ASSIGN(const std::string whole, Encode(spec_, values));
  const std::vector<float> want = Decoded(whole, values.size());

  std::string pieces(MaxEncodedBytes(spec_, values.size()), 'x');
  const auto encoder =
      NewEncoder(spec_, {}, values.size(), absl::MakeSpan(pieces));
  std::vector<float> decoded(values.size());
  const absl::Span<const float> all(values);
  const std::pair<size_t, size_t> cuts[] = {
      {5 * unit, 20}, {unit, 4 * unit}, {0, unit}};
  for (const auto& [begin, count] : cuts) {
    encoder->Encode(begin, all.subspan(begin, count),
                    absl::MakeSpan(decoded).subspan(begin, count));
  }
  ASSERT_EQ(encoder->Finish(), whole.size());
  EXPECT_TRUE(pieces.substr(0, whole.size()) == whole);
  EXPECT_TRUE(decoded == want);
}

// Two whole strips and a short one.
constexpr size_t kStripsValues = 2 * kStripValues + 300;

TEST_P(CodecTest, IsTheConcatenationOfItsStrips) {
  const std::vector<float> values = Values(kStripsValues);
  const absl::Span<const float> all(values);
  std::string want;
  std::vector<float> want_decoded;
  for (size_t begin = 0; begin < values.size(); begin += kStripValues) {
    ASSERT_OK_AND_ASSIGN(const std::string strip,
                         Encode(spec_, all.subspan(begin, kStripValues)));
    want += strip;
    std::vector<float> decoded(
        std::min<size_t>(kStripValues, values.size() - begin));
    ASSERT_OK(Decode(spec_, strip, absl::MakeSpan(decoded)));
    want_decoded.insert(want_decoded.end(), decoded.begin(), decoded.end());
  }
  ASSERT_OK_AND_ASSIGN(const std::string whole, Encode(spec_, values));
  EXPECT_TRUE(whole == want);
  const std::vector<float> decoded = Decoded(whole, values.size());
  EXPECT_TRUE(decoded == want_decoded);

  // This piece crosses the border of two strips.
  ASSERT_OK_AND_ASSIGN(const auto decoder,
                       OpenDecoder(spec_, whole, values.size()));
  std::vector<float> piece(700);
  const size_t begin = kStripValues - 256;
  decoder->NewCursor()->Decode(begin, absl::MakeSpan(piece));
  for (size_t i = 0; i < piece.size(); ++i) {
    ASSERT_EQ(piece[i], want_decoded[begin + i]);
  }
}

TEST_P(CodecTest, ThreadsGiveTheSameBytesAndReadyBytesAreFinal) {
  const std::vector<float> values = Values(kStripsValues);
  ASSERT_OK_AND_ASSIGN(const std::string want, Encode(spec_, values));
  std::string buffer(MaxEncodedBytes(spec_, values.size()), 'x');
  const auto encoder =
      NewEncoder(spec_, {}, values.size(), absl::MakeSpan(buffer));
  EXPECT_EQ(encoder->ready(), 0u);
  std::vector<float> decoded(values.size());
  const auto encode = [&](size_t begin, size_t end) {
    encoder->Encode(begin,
                    absl::MakeConstSpan(values).subspan(begin, end - begin),
                    absl::MakeSpan(decoded).subspan(begin, end - begin));
    const uint64_t ready = encoder->ready();
    EXPECT_EQ(buffer.compare(0, ready, want, 0, ready), 0);
  };
  // The second strip alone makes nothing ready.
  encode(kStripValues, 2 * kStripValues);
  EXPECT_EQ(encoder->ready(), 0u);
  std::thread last([&] { encode(2 * kStripValues, values.size()); });
  encode(0, kStripValues);
  last.join();
  EXPECT_EQ(encoder->ready(), want.size());
  EXPECT_EQ(encoder->Finish(), want.size());
  EXPECT_EQ(buffer.compare(0, want.size(), want), 0);
  const std::vector<float> want_decoded = Decoded(want, values.size());
  EXPECT_TRUE(decoded == want_decoded);
}

TEST_P(CodecTest, DecodedMayBeTheMemoryOfTheValues) {
  std::vector<float> values = Values(300);
  ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec_, values));
  const std::vector<float> want = Decoded(encoded, values.size());
  std::string buffer(MaxEncodedBytes(spec_, values.size()), 'x');
  NewEncoder(spec_, {}, values.size(), absl::MakeSpan(buffer))
      ->Encode(0, values, absl::MakeSpan(values));
  EXPECT_EQ(values, want);
}

TEST_P(CodecTest, DecodesPieces) {
  const size_t size = 1300;
  ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec_, Values(size)));
  const std::vector<float> whole = Decoded(encoded, size);
  ASSERT_OK_AND_ASSIGN(const auto decoder, OpenDecoder(spec_, encoded, size));
  const auto cursor = decoder->NewCursor();
  for (const size_t begin : {0, 256, 1024, 1280}) {
    for (const size_t count : {0, 1, 19, 20}) {
      std::vector<float> piece(count);
      cursor->Decode(begin, absl::MakeSpan(piece));
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(piece[i], whole[begin + i]);
      }
    }
  }
}

// The pieces begin and end inside strips, cross their borders and end with the
// vector.
TEST_P(CodecTest, SumsPiecesInOrder) {
  const uint64_t size = kStripValues + 300;
  const std::vector<float> weights = {0.6f, -0.3f, 0.1f};
  std::vector<std::string> encoded;
  std::vector<std::unique_ptr<Decoder>> decoders;
  std::vector<float> want(size);
  std::vector<float> values = Values(size);
  for (const float weight : weights) {
    ASSERT_OK_AND_ASSIGN(encoded.emplace_back(), Encode(spec_, values));
    ASSERT_OK(
        DecodeAccumulate(spec_, encoded.back(), weight, absl::MakeSpan(want)));
    absl::c_reverse(values);
  }
  for (const std::string& bytes : encoded) {
    ASSERT_OK_AND_ASSIGN(decoders.emplace_back(),
                         OpenDecoder(spec_, bytes, size));
  }
  SumCursor cursor(decoders);
  ASSERT_TRUE(cursor.can_sum());
  for (const uint64_t begin : {uint64_t{0}, kStripValues - 512}) {
    for (const uint64_t count : {uint64_t{0}, uint64_t{19}, uint64_t{812}}) {
      std::vector<float> sum(count, 77);
      cursor.Sum(begin, weights, absl::MakeSpan(sum));
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(sum[i], want[begin + i]) << begin << " " << i;
      }
    }
  }
}

TEST(SumCursorTest, SumsVectorsOfOneFormatAndBlockSizeOnly) {
  const auto can_sum = [](const std::vector<CodecSpec>& specs) {
    std::vector<std::unique_ptr<Decoder>> decoders;
    for (const CodecSpec& spec : specs) {
      decoders.push_back(OpenDecoder(spec, "", 0).value());
    }
    return SumCursor(decoders).can_sum();
  };
  const CodecSpec int8 = {.format = v1::INT8};
  EXPECT_TRUE(can_sum({int8}));
  EXPECT_TRUE(can_sum({int8, {.format = v1::INT8, .entropy_coded = true}}));
  EXPECT_FALSE(can_sum({int8, {.format = v1::INT8, .block_size = 64}}));
  EXPECT_FALSE(can_sum({int8, {.format = v1::INT4}}));
  EXPECT_FALSE(can_sum({}));
}

// The first strip can be compressed.
TEST_P(CodecTest, KeptCodesDecodeToTheSameValues) {
  std::vector<float> values = Values(kStripsValues);
  for (size_t i = 0; i < kStripValues; ++i) values[i] *= i % 50 == 0 ? 1 : 0.1f;
  ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec_, values));
  std::vector<char> codes(CodeBytes(spec_, values.size()));
  EXPECT_EQ(codes.empty(), !spec_.entropy_coded);
  EncodingReader reader = NewEncodingReader(
      spec_, values.size(), EncodingReader::Task::kMeasureValues);
  reader.KeepCodes(absl::MakeSpan(codes));
  for (size_t at = 0; at < encoded.size(); at += 10'007) {
    ASSERT_OK(reader.Read(absl::string_view(encoded).substr(at, 10'007)));
  }
  ASSERT_OK(reader.Norm());
  const auto decoded = [&] {
    std::vector<float> got(values.size(), kNan);
    const auto decoder =
        OpenDecoder(spec_, encoded, values.size(), codes).value();
    decoder->NewCursor()->Decode(0, absl::MakeSpan(got));
    return got;
  };
  const std::vector<float> want = Decoded(encoded, values.size());
  EXPECT_TRUE(decoded() == want);
  // Nothing is decompressed again.
  absl::c_fill(codes, 0x11);
  EXPECT_EQ(decoded() == want, !spec_.entropy_coded);
}

TEST_P(CodecTest, RefusesEveryWrongLength) {
  ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec_, Values(10)));
  std::vector<float> values(10, 5.0f);
  for (size_t bytes = 0; bytes <= encoded.size() + 8; ++bytes) {
    if (bytes == encoded.size()) continue;
    std::string wrong = encoded;
    wrong.resize(bytes);
    EXPECT_THAT(Decode(spec_, wrong, absl::MakeSpan(values)),
                IsInvalidArgument("10 values"));
  }
  EXPECT_THAT(values, Each(5.0f));
  // The bytes of this many values do not fit 64 bits.
  EXPECT_THAT(OpenDecoder(spec_, "", uint64_t{1} << 62), IsInvalidArgument());
  EXPECT_THAT(OpenDecoder(spec_, "", uint64_t{1} << 63), IsInvalidArgument());
}

TEST_P(CodecTest, ZerosDenormalsAndOutliersDecodeToFiniteValues) {
  constexpr size_t kCount = 3001;
  std::vector<float> outlier = Values(kCount);
  outlier[kCount - 1] = 3e38f;
  const auto decoded = [&](const std::vector<float>& values) {
    std::vector<float> got(values.size(), kNan);
    const auto encoded = Encode(spec_, values);
    EXPECT_OK(Decode(spec_, encoded.value(), absl::MakeSpan(got)));
    return got;
  };
  EXPECT_THAT(decoded(std::vector<float>(kCount)), Each(0.0f));
  EXPECT_THAT(decoded(std::vector<float>(kCount, -1e-40f)),
              Each(AllOf(testing::Le(0.0f), testing::Ge(-1.01e-40f))));
  const std::vector<float> got = decoded(outlier);
  EXPECT_THAT(
      got,
      Each(testing::Truly([](float value) { return std::isfinite(value); })));
  EXPECT_GT(got.back(), 2e37f);
}

TEST_P(CodecTest, RefusesNonFiniteValuesBeforeWritingAnything) {
  for (const float bad : {kInfinity, -kInfinity, kNan}) {
    for (const size_t at : {0, 1023, 1024, 2499}) {
      std::vector<float> values = Values(2500);
      values[at] = bad;
      ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec_, values));
      std::vector<float> out(values.size(), 5.0f);
      // One bad value makes the scale of its block bad.
      const size_t first = HasScales() ? at - at % spec_.block_size : at;
      const auto refused = IsInvalidArgument(
          "value " + std::to_string(first) + " of ", "2500", "diverged");
      EXPECT_THAT(Decode(spec_, encoded, absl::MakeSpan(out)), refused);
      EXPECT_THAT(out, Each(5.0f));
    }
  }
}

TEST(CodecGoldenTest, Fp32IsLittleEndianBinary32) {
  EXPECT_THAT(Encode({.format = v1::FP32}, {1.0f, -2.5f, 0x1p-149f, -0.0f}),
              IsOkAndHolds(std::string("\x00\x00\x80\x3f\x00\x00\x20\xc0"
                                       "\x01\x00\x00\x00\x00\x00\x00\x80",
                                       16)));
}

TEST(CodecGoldenTest, Bf16IsLittleEndianAndRoundsToNearestEven) {
  EXPECT_THAT(Encode({.format = v1::BF16}, {1.0f, -2.5f, 1.00390625f,
                                            1.01171875f, 0.1f, 3.14159274f}),
              IsOkAndHolds(std::string(
                  "\x80\x3f\x20\xc0\x80\x3f\x82\x3f\xcd\x3d\x49\x40", 12)));
}

TEST(CodecGoldenTest, BlockFormatsHaveScalesThenCodes) {
  ASSERT_OK_AND_ASSIGN(
      const std::string int8,
      Encode({.format = v1::INT8, .block_size = 64}, {127.0f, -1.0f, 0.4f}));
  EXPECT_EQ(int8, std::string("\x80\x3f\x7f\xff\x00", 5));
  ASSERT_OK_AND_ASSIGN(
      const std::string e3m0,
      Encode({.format = v1::E3M0, .block_size = 64}, {2.0f, -1.0f, 0.4f}));
  EXPECT_EQ(e3m0,
            std::string("\x00\x40\x07\x00\x00\x00\x0e\x00\x00\x00\x05", 11) +
                std::string(55, '\0'));
}

TEST(CodecBytesTest, ThePriceOfEachFormat) {
  const auto bytes = [](v1::Format format, uint32_t block_size, uint64_t n) {
    return MaxEncodedBytes({.format = format, .block_size = block_size}, n);
  };
  EXPECT_EQ(bytes(v1::FP32, 256, 1000), 4000u);
  EXPECT_EQ(bytes(v1::BF16, 256, 1000), 2000u);
  EXPECT_EQ(bytes(v1::INT8, 256, 1000), 1000u + 8);
  EXPECT_EQ(bytes(v1::INT8, 64, 1000), 1000u + 32);
  for (const v1::Format format : {v1::INT4, v1::E3M0}) {
    EXPECT_EQ(bytes(format, 128, 1024), 512u + 16);
    EXPECT_EQ(bytes(format, 128, 1025), 576u + 18);
  }
}

// The squared errors relative to the values' squares were measured with another
// program, on Gaussian values in blocks of 128 with a 16-bit scale.
TEST(CodecErrorTest, MatchesTheFormat) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3e-4f);
  std::vector<float> values(1 << 19);
  double power = 0;
  for (float& value : values) {
    value = normal(random);
    power += double{value} * value;
  }
  const std::pair<v1::Format, double> expected[] = {{v1::E3M0, 0.0370},
                                                    {v1::INT4, 0.0138},
                                                    {v1::INT8, 4.2e-5},
                                                    {v1::BF16, 2.8e-6}};
  for (const auto& [format, error] : expected) {
    const CodecSpec spec{.format = format, .block_size = 128};
    ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec, values));
    std::vector<float> decoded(values.size());
    ASSERT_OK(Decode(spec, encoded, absl::MakeSpan(decoded)));
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double difference = double{values[i]} - decoded[i];
      sum += difference * difference;
    }
    EXPECT_NEAR(sum / power / error, 1, 0.03) << v1::Format_Name(format);
  }
}

TEST(CodecForeignBytesTest, RefusesScalesThatNoEncoderWrites) {
  const CodecSpec spec{.format = v1::INT8, .block_size = 64};
  std::vector<float> values = Values(200);
  ASSERT_OK_AND_ASSIGN(const std::string good, Encode(spec, values));
  const std::pair<std::string, std::string> cases[] = {
      {std::string("\x80\xff", 2), "-inf"},
      {std::string("\xc0\x7f", 2), "nan"},
      {std::string("\x80\xbf", 2), "has scale -1, but scales are 0 to"},
      // The scale is finite, but 127 times the scale is not.
      {std::string("\x00\x7f", 2), "has scale 1.70141e+38"},
  };
  for (const auto& [scale, message] : cases) {
    std::string bad = good;
    bad.replace(4, 2, scale);
    EXPECT_THAT(Decode(spec, bad, absl::MakeSpan(values)),
                IsInvalidArgument("block of value 128 of 200 (to "
                                  "value 191)",
                                  message));
  }
}

// Values with the largest scale that CheckFinite accepts are finite, whatever
// their codes.
TEST(CodecForeignBytesTest, WhatIsNotRefusedIsFinite) {
  std::mt19937 random(3);
  for (const CodecSpec& spec : AllSpecs()) {
    for (int round = 0; round < 300; ++round) {
      std::string bytes(MaxEncodedBytes(spec, 256), '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      size_t header_bytes = 0;
      if (spec.entropy_coded) {
        header_bytes = StripHeader::kBytes;
        WriteStripHeader(
            {.bytes = static_cast<uint32_t>(bytes.size() - header_bytes)},
            bytes.data());
      }
      const size_t scale_bytes = 2 * (256 / spec.block_size);
      for (size_t i = 1; i < scale_bytes; i += 2) {
        bytes[header_bytes + i] = static_cast<char>(0x7a + random() % 6);
      }
      std::vector<float> values(256);
      if (!Decode(spec, bytes, absl::MakeSpan(values)).ok()) continue;
      EXPECT_THAT(values, Each(testing::Truly([](float value) {
                    return std::isfinite(value);
                  })));
    }
  }
}

// Without CheckFinite, damage must not be taken for values.
TEST(CodecForeignBytesTest, AStripThatCannotBeReadIsNotANumber) {
  const CodecSpec spec = {
      .format = v1::INT4, .block_size = 256, .entropy_coded = true};
  const uint64_t size = 2 * kStripValues;
  ASSERT_OK_AND_ASSIGN(std::string encoded, Encode(spec, Values(size)));
  std::mt19937 random(5);
  int unreadable = 0;
  for (int round = 0; round < 50; ++round) {
    std::string damaged = encoded;
    for (int i = 0; i < 8; ++i) damaged[10 + random() % 1000] ^= 0x55;
    const auto decoder = OpenDecoder(spec, damaged, size);
    if (!decoder.ok() || (*decoder)->CheckFinite().ok()) continue;
    ++unreadable;
    std::vector<float> values(size);
    (*decoder)->NewCursor()->Decode(0, absl::MakeSpan(values));
    EXPECT_TRUE(std::isnan(values[0]));
    EXPECT_FALSE(std::isnan(values[kStripValues]));
  }
  EXPECT_GT(unreadable, 0);
}

TEST(EncodeOptionsTest, RefusesTargetsOfEcqOutOfRange) {
  const CodecSpec ecq{.format = v1::ECQ, .entropy_coded = true};
  for (const double bits : {-1.0, 0.49, 8.1, std::nan("")}) {
    EXPECT_THAT(Encode(ecq, {1.0f}, {.ecq_bits = bits}),
                IsInvalidArgument("want 0.5 to 8"));
  }
  for (const double distortion : {0.0, 0.95, std::nan("")}) {
    EXPECT_THAT(Encode(ecq, {1.0f}, {.ecq_distortion = distortion}),
                IsInvalidArgument("want 0.0001 to 0.9"));
    // The distortion does not matter if the rate decides.
    EXPECT_OK(
        Encode(ecq, {1.0f}, {.ecq_bits = 2, .ecq_distortion = distortion}));
  }
}

TEST(CodecSpecTest, NamesWhatIsWrongAndWhatIsAllowed) {
  EXPECT_THAT(CheckCodecSpec({.format = v1::ECQ}),
              IsInvalidArgument("ECQ is always entropy coded"));
  EXPECT_THAT(CheckCodecSpec({.format = v1::FORMAT_UNSPECIFIED}),
              IsInvalidArgument("FORMAT_UNSPECIFIED", "FP32, BF16"));
  // Format 6 was NF4.
  for (const int number : {6, 99}) {
    EXPECT_THAT(CheckCodecSpec({.format = static_cast<v1::Format>(number)}),
                IsInvalidArgument(absl::StrCat("format ", number),
                                  "FP32, BF16, INT8, INT4, E3M0, ECQ"));
  }
  EXPECT_THAT(CheckCodecSpec({.block_size = 100}),
              IsInvalidArgument("100 is not one of 64, 128, 256"));
  for (const uint32_t block_size : {64, 128, 256}) {
    EXPECT_OK(CheckCodecSpec({.block_size = block_size}));
  }
  EXPECT_THAT(CheckCodecSpec({.format = v1::FP32, .entropy_coded = true}),
              IsInvalidArgument("no entropy coder for FP32"));
  EXPECT_THAT(Encode({.block_size = 0}, {1.0f}), IsInvalidArgument());
  EXPECT_THAT(OpenDecoder({.block_size = 0}, "", 0), IsInvalidArgument());
}

}  // namespace
}  // namespace causeway
