// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/encoding_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantization/strip_layout.h"

namespace causeway {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

// Two strips and a last block that is not whole.
constexpr uint64_t kValues = 2 * kStripValues + 10'001;

std::vector<float> Values() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 1e-3f);
  std::vector<float> values(kValues);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<CodecSpec> AllSpecs() {
  std::vector<CodecSpec> specs;
  for (const v1::Format format :
       {v1::FP32, v1::BF16, v1::INT8, v1::INT4, v1::E3M0, v1::ECQ}) {
    for (const uint32_t block_size : {64u, 128u, 256u}) {
      for (const bool entropy_coded : {false, true}) {
        const CodecSpec spec{format, block_size, entropy_coded};
        if (CheckCodecSpec(spec).ok()) specs.push_back(spec);
      }
    }
  }
  return specs;
}

absl::StatusOr<double> NormOf(const CodecSpec& spec, absl::string_view encoded,
                              uint64_t values, uint64_t chunk) {
  EncodingCheck check(spec, values);
  for (uint64_t begin = 0; begin < encoded.size(); begin += chunk) {
    check.Look(encoded.substr(begin, chunk));
  }
  return check.Norm();
}

TEST(EncodingCheckTest, NormIsThatOfTheDecodedValuesInEveryFormat) {
  const std::vector<float> values = Values();
  for (const CodecSpec& spec : AllSpecs()) {
    ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec, values));
    std::vector<float> decoded(kValues);
    ASSERT_OK(Decode(spec, encoded, absl::MakeSpan(decoded)));
    long double squares = 0;
    for (const long double value : decoded) squares += value * value;
    ASSERT_OK_AND_ASSIGN(const double norm,
                         NormOf(spec, encoded, kValues, encoded.size()));
    const auto want = static_cast<double>(std::sqrt(squares));
    EXPECT_NEAR(norm / want, 1, 1e-13)
        << v1::Format_Name(spec.format) << " " << spec.block_size;
    // However the bytes come.
    for (const uint64_t chunk : {5'000ul, 65'537ul}) {
      ASSERT_OK_AND_ASSIGN(const double in_chunks,
                           NormOf(spec, encoded, kValues, chunk));
      EXPECT_EQ(std::bit_cast<uint64_t>(in_chunks),
                std::bit_cast<uint64_t>(norm))
          << v1::Format_Name(spec.format) << " " << spec.block_size;
    }
  }
}

TEST(EncodingCheckTest, TheNormDoesNotOverflow) {
  std::vector<float> values(kValues);
  values[7] = std::numeric_limits<float>::max();
  ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode({}, values));
  EXPECT_THAT(NormOf({}, encoded, kValues, 1000),
              IsOkAndHolds(double{std::numeric_limits<float>::max()}));
}

// Looks at bytes [begin, end) of `encoded`, damaged, before the true ones; at
// 999 bytes at a time before and after.
absl::StatusOr<double> NormAfterDamage(const CodecSpec& spec,
                                       const std::string& encoded,
                                       uint64_t begin, uint64_t end) {
  const absl::string_view bytes = encoded;
  std::string damaged = encoded.substr(begin, end - begin);
  for (char& byte : damaged) byte = static_cast<char>(~byte);
  EncodingCheck check(spec, kValues);
  uint64_t looked = 0;
  const auto look_to = [&](uint64_t to) {
    for (; looked < to; looked = std::min(looked + 999, to)) {
      check.Look(bytes.substr(looked, std::min<uint64_t>(999, to - looked)));
    }
  };
  look_to(begin);
  const EncodingCheck::Mark mark = check.mark();
  check.Look(damaged);
  check.GoBack(mark, bytes.substr(0, begin));
  look_to(encoded.size());
  return check.Norm();
}

TEST(EncodingCheckTest, BytesThatAreTakenBackLeaveNoTrace) {
  const std::vector<float> values = Values();
  for (const CodecSpec& spec : AllSpecs()) {
    ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec, values));
    ASSERT_OK_AND_ASSIGN(const double norm,
                         NormOf(spec, encoded, kValues, encoded.size()));
    const uint64_t size = encoded.size();
    for (const auto& [begin, end] : std::vector<std::pair<uint64_t, uint64_t>>{
             {0, 100}, {1000, 9000}, {size / 2, size}, {0, size}}) {
      EXPECT_THAT(NormAfterDamage(spec, encoded, begin, end),
                  IsOkAndHolds(norm))
          << v1::Format_Name(spec.format) << " " << spec.block_size;
    }
  }
}

TEST(EncodingCheckTest, AnEmptyVectorHasNoLength) {
  EXPECT_THAT(NormOf({}, "", 0, 1), IsOkAndHolds(0));
}

TEST(EncodingCheckTest, NamesTheFirstStripThatIsNotFinite) {
  std::vector<float> values = Values();
  values[kStripValues + 3] = NAN;
  values[2 * kStripValues] = INFINITY;
  for (const CodecSpec& spec : AllSpecs()) {
    ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode(spec, values));
    EXPECT_THAT(NormOf(spec, encoded, kValues, 10'000),
                StatusIs(StatusCode::kOutOfRange,
                         HasSubstr("strip 1 of 3, from value 65536 on: ")))
        << v1::Format_Name(spec.format);
  }
}

TEST(EncodingCheckTest, RefusesBytesOfAnotherLength) {
  for (const CodecSpec& spec : AllSpecs()) {
    ASSERT_OK_AND_ASSIGN(std::string encoded, Encode(spec, Values()));
    EXPECT_THAT(
        NormOf(spec, encoded.substr(0, encoded.size() - 1), kValues, 10'000),
        StatusIs(StatusCode::kInvalidArgument));
    encoded += 'x';
    EXPECT_THAT(NormOf(spec, encoded, kValues, 10'000),
                StatusIs(StatusCode::kInvalidArgument));
  }
}

// Its length is wrong, which says more than that its values are.
TEST(EncodingCheckTest, ALengthThatIsWrongOutweighsValuesThatAreNotFinite) {
  std::vector<float> values = Values();
  values[3] = NAN;
  ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode({}, values));
  EXPECT_THAT(
      NormOf({}, encoded.substr(0, encoded.size() - 1), kValues, 10'000),
      StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace causeway
