// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/codec.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantization/reference.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

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

// The contract of the interface, for every format.
class CodecTest : public testing::TestWithParam<v1::Format> {
 protected:
  const CodecSpec spec_{.format = GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Formats, CodecTest,
                         testing::Values(v1::FP32, v1::BF16),
                         [](const testing::TestParamInfo<v1::Format>& info) {
                           return v1::Format_Name(info.param);
                         });

TEST_P(CodecTest, TakesTheAnnouncedBytesForAnyLength) {
  for (const size_t count : {0, 1, 2, 255, 256, 257, 1000}) {
    ASSERT_OK_AND_ASSIGN(const std::string encoded,
                         Encode(spec_, Values(count)));
    EXPECT_EQ(encoded.size(), MaxEncodedBytes(spec_, count));
    std::vector<float> decoded(count, kNan);
    EXPECT_OK(Decode(spec_, encoded, absl::MakeSpan(decoded)));
    EXPECT_THAT(
        decoded,
        Each(testing::Truly([](float value) { return std::isfinite(value); })));
  }
}

TEST_P(CodecTest, LosslessMeansTheSameBits) {
  const std::vector<float> values = Values(777);
  ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec_, values));
  std::vector<float> decoded(values.size());
  ASSERT_OK(Decode(spec_, encoded, absl::MakeSpan(decoded)));
  EXPECT_EQ(decoded == values, IsLossless(spec_.format));
}

TEST_P(CodecTest, EncodingWhatWasDecodedChangesNothing) {
  ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec_, Values(777)));
  std::vector<float> decoded(777);
  ASSERT_OK(Decode(spec_, encoded, absl::MakeSpan(decoded)));
  EXPECT_THAT(Encode(spec_, decoded), IsOkAndHolds(encoded));
}

TEST_P(CodecTest, PiecesInAnyOrderGiveTheSameBytesAsTheWhole) {
  const std::vector<float> values = Values(1300);
  ASSERT_OK_AND_ASSIGN(const std::string whole, Encode(spec_, values));
  std::vector<float> want(values.size());
  ASSERT_OK(Decode(spec_, whole, absl::MakeSpan(want)));

  std::string pieces(MaxEncodedBytes(spec_, values.size()), 'x');
  const auto encoder = NewEncoder(spec_, values.size(), absl::MakeSpan(pieces));
  std::vector<float> decoded(values.size());
  const absl::Span<const float> all(values);
  const std::pair<size_t, size_t> cuts[] = {{1280, 20}, {256, 1024}, {0, 256}};
  for (const auto& [begin, count] : cuts) {
    encoder->Encode(begin, all.subspan(begin, count),
                    absl::MakeSpan(decoded).subspan(begin, count));
  }
  EXPECT_EQ(encoder->Finish(), whole.size());
  EXPECT_EQ(pieces, whole);
  EXPECT_EQ(decoded, want);
}

TEST_P(CodecTest, DecodedMayBeTheMemoryOfTheValues) {
  std::vector<float> values = Values(300);
  ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec_, values));
  std::vector<float> want(values.size());
  ASSERT_OK(Decode(spec_, encoded, absl::MakeSpan(want)));
  std::string buffer(encoded.size(), 'x');
  NewEncoder(spec_, values.size(), absl::MakeSpan(buffer))
      ->Encode(0, values, absl::MakeSpan(values));
  EXPECT_EQ(values, want);
}

TEST_P(CodecTest, DecodesAndAccumulatesPieces) {
  const size_t size = 1300;
  ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec_, Values(size)));
  std::vector<float> whole(size);
  ASSERT_OK(Decode(spec_, encoded, absl::MakeSpan(whole)));
  std::vector<float> whole_sum(size, 0.25f);
  ASSERT_OK(DecodeAccumulate(spec_, encoded, 0.6f, absl::MakeSpan(whole_sum)));
  ASSERT_OK_AND_ASSIGN(const auto decoder, OpenDecoder(spec_, encoded, size));
  for (const size_t begin : {0, 256, 1024, 1280}) {
    for (const size_t count : {0, 1, 19, 20}) {
      std::vector<float> piece(count);
      decoder->Decode(begin, absl::MakeSpan(piece));
      std::vector<float> sum(count, 0.25f);
      decoder->DecodeAccumulate(begin, 0.6f, absl::MakeSpan(sum));
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(piece[i], whole[begin + i]);
        ASSERT_EQ(sum[i], Accumulate(0.25f, 0.6f, piece[i]));
        ASSERT_EQ(sum[i], whole_sum[begin + i]);
      }
    }
  }
}

TEST_P(CodecTest, RefusesEveryWrongLength) {
  ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec_, Values(10)));
  std::vector<float> values(10, 5.0f);
  for (size_t bytes = 0; bytes <= encoded.size() + 8; ++bytes) {
    if (bytes == encoded.size()) continue;
    std::string wrong = encoded;
    wrong.resize(bytes);
    EXPECT_THAT(
        Decode(spec_, wrong, absl::MakeSpan(values)),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("10 values")));
  }
  EXPECT_THAT(values, Each(5.0f));
  // A number of values whose bytes do not fit 64 bits.
  EXPECT_THAT(OpenDecoder(spec_, "", uint64_t{1} << 62),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(OpenDecoder(spec_, "", uint64_t{1} << 63),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_P(CodecTest, RefusesNonFiniteValuesBeforeWritingAnything) {
  for (const float bad : {kInfinity, -kInfinity, kNan}) {
    for (const size_t at : {0, 1023, 1024, 2499}) {
      std::vector<float> values = Values(2500);
      values[at] = bad;
      ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec_, values));
      std::vector<float> out(values.size(), 5.0f);
      const auto refused =
          StatusIs(absl::StatusCode::kInvalidArgument,
                   HasSubstr("value " + std::to_string(at) + " of 2500"));
      EXPECT_THAT(Decode(spec_, encoded, absl::MakeSpan(out)), refused);
      EXPECT_THAT(DecodeAccumulate(spec_, encoded, 1, absl::MakeSpan(out)),
                  refused);
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

TEST(CodecSpecTest, NamesWhatIsWrongAndWhatIsAllowed) {
  EXPECT_THAT(CheckCodecSpec({.format = v1::FORMAT_UNSPECIFIED}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("FORMAT_UNSPECIFIED"),
                             HasSubstr("FP32, BF16"))));
  EXPECT_THAT(CheckCodecSpec({.format = static_cast<v1::Format>(99)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("99")));
  EXPECT_THAT(CheckCodecSpec({.block_size = 100}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("100 is not one of 64, 128, 256")));
  for (const uint32_t block_size : {64, 128, 256}) {
    EXPECT_OK(CheckCodecSpec({.block_size = block_size}));
  }
  EXPECT_THAT(Encode({.block_size = 0}, {1.0f}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(OpenDecoder({.block_size = 0}, "", 0),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace causeway
