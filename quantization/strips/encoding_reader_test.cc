// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strips/encoding_reader.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
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
using testing::IsEmpty;
using testing::SizeIs;

using Task = EncodingReader::Task;

// Two strips, and a third whose last block is short.
constexpr uint64_t kValues = 2 * kStripValues + 10'001;

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

const std::vector<float>& RandomValues() {
  static const std::vector<float>* const values = [] {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 1e-3f);
    auto* const made = new std::vector<float>(kValues);
    for (float& value : *made) value = normal(random);
    return made;
  }();
  return *values;
}

class EncodingReaderTest : public testing::TestWithParam<CodecSpec> {
 protected:
  EncodingReaderTest() : values_(RandomValues()) {
    encoded_ = Encode(spec_, values_).value();
  }

  // Measures the norm of an encoding that arrives in pieces of `piece` bytes.
  absl::StatusOr<double> NormOf(absl::string_view encoded,
                                uint64_t piece) const {
    EncodingReader reader =
        NewEncodingReader(spec_, kValues, Task::kMeasureValues);
    ReadInPieces(encoded, piece, reader);
    return reader.Norm();
  }
  static void ReadInPieces(absl::string_view encoded, uint64_t piece,
                           EncodingReader& reader) {
    for (uint64_t begin = 0; begin < encoded.size(); begin += piece) {
      reader.Read(encoded.substr(begin, piece)).IgnoreError();
    }
  }

  absl::StatusOr<double> NormAfterDamage(uint64_t begin, uint64_t end) const;

  const CodecSpec spec_ = GetParam();
  std::vector<float> values_;
  std::string encoded_;
};

INSTANTIATE_TEST_SUITE_P(Formats, EncodingReaderTest,
                         testing::ValuesIn(AllSpecs()),
                         [](const testing::TestParamInfo<CodecSpec>& info) {
                           return v1::Format_Name(info.param.format) + "_" +
                                  std::to_string(info.param.block_size) +
                                  (info.param.entropy_coded ? "_Coded" : "");
                         });

TEST_P(EncodingReaderTest, StripsCanBeDecodedAsSoonAsTheyAreComplete) {
  std::vector<float> want(kValues);
  ASSERT_OK(Decode(spec_, encoded_, absl::MakeSpan(want)));
  EncodingReader reader = NewEncodingReader(spec_, kValues);
  ASSERT_EQ(reader.strips(), 3u);
  std::vector<float> got(kValues);
  std::string strips;
  uint64_t decoded = 0;
  for (uint64_t bytes = 0;;
       bytes = std::min<uint64_t>(bytes + 10007, encoded_.size())) {
    // The bytes move in memory from call to call.
    const std::string received = encoded_.substr(0, bytes);
    ASSERT_OK(reader.Read(absl::string_view(received).substr(reader.bytes())));
    EXPECT_EQ(reader.bytes(), bytes);
    for (; decoded < reader.complete(); ++decoded) {
      strips += std::string(reader.Strip(received, decoded));
      ASSERT_OK(reader.DecodeStrip(
          received, decoded,
          absl::MakeSpan(got).subspan(decoded * kStripValues,
                                      ValuesOfStrip(decoded, kValues))));
    }
    EXPECT_LE(strips.size(), bytes);
    EXPECT_EQ(reader.CheckComplete().ok(), bytes == encoded_.size());
    if (bytes == encoded_.size()) break;
  }
  EXPECT_TRUE(got == want);
  EXPECT_TRUE(strips == encoded_);
}

TEST_P(EncodingReaderTest, AStripIsCompleteWithItsLastByte) {
  EncodingReader reader = NewEncodingReader(spec_, kValues);
  const uint64_t first =
      Encode(spec_, absl::MakeConstSpan(values_).subspan(0, kStripValues))
          .value()
          .size();
  const auto complete_after = [&](uint64_t bytes) {
    EXPECT_OK(reader.Read(absl::string_view(encoded_).substr(
        reader.bytes(), bytes - reader.bytes())));
    return reader.complete();
  };
  // This ends within a header.
  EXPECT_EQ(complete_after(1), 0u);
  EXPECT_EQ(complete_after(first - 1), 0u);
  EXPECT_EQ(complete_after(first), 1u);
  EXPECT_EQ(complete_after(first + 3), 1u);
  EXPECT_EQ(complete_after(encoded_.size() - 1), 2u);
  EXPECT_THAT(reader.CheckComplete(),
              IsInvalidArgument("breaks off in strip 2 of 3"));
  EXPECT_EQ(complete_after(encoded_.size()), 3u);
}

TEST_P(EncodingReaderTest, RefusesBytesAfterTheLastStrip) {
  EncodingReader reader = NewEncodingReader(spec_, kValues);
  const auto refused = IsInvalidArgument("ends after", "1 more");
  EXPECT_THAT(reader.Read(encoded_ + "x"), refused);
  // The last strip is complete nevertheless.
  EXPECT_THAT(reader.CheckComplete(), refused);
}

TEST_P(EncodingReaderTest, RefusesAStripThatIsNotFiniteAndWritesNothing) {
  values_[kStripValues + 7] = INFINITY;
  encoded_ = Encode(spec_, values_).value();
  EncodingReader reader = NewEncodingReader(spec_, kValues);
  ASSERT_OK(reader.Read(encoded_));
  std::vector<float> strip(kStripValues, 5.0f);
  EXPECT_OK(reader.DecodeStrip(encoded_, 0, absl::MakeSpan(strip)));
  strip.assign(kStripValues, 5.0f);
  EXPECT_OK(reader.CheckStrip(encoded_, 0));
  EXPECT_EQ(reader.CheckStrip(encoded_, 1),
            reader.DecodeStrip(encoded_, 1, absl::MakeSpan(strip)));
  EXPECT_THAT(reader.CheckStrip(encoded_, 1),
              IsInvalidArgument("value 655", "of 141073", "diverged"));
  EXPECT_THAT(strip, Each(5.0f));
}

TEST_P(EncodingReaderTest, TheNormIsThatOfTheDecodedValues) {
  std::vector<float> decoded(kValues);
  ASSERT_OK(Decode(spec_, encoded_, absl::MakeSpan(decoded)));
  long double squares = 0;
  for (const long double value : decoded) squares += value * value;
  ASSERT_OK_AND_ASSIGN(const double norm, NormOf(encoded_, encoded_.size()));
  EXPECT_NEAR(norm / static_cast<double>(std::sqrt(squares)), 1, 1e-13);
  // The norm does not depend on how the bytes arrive.
  for (const uint64_t piece : {5'000ul, 65'537ul}) {
    ASSERT_OK_AND_ASSIGN(const double in_pieces, NormOf(encoded_, piece));
    EXPECT_EQ(std::bit_cast<uint64_t>(in_pieces), std::bit_cast<uint64_t>(norm))
        << piece;
  }
}

std::vector<double> SquaresByStrip(absl::Span<const float> values) {
  std::vector<double> squares;
  for (uint64_t i = 0; i < values.size(); ++i) {
    if (i % kStripValues == 0) squares.push_back(0);
    squares.back() += double{values[i]} * values[i];
  }
  return squares;
}

// Returns runs of strips with these sums: a strip is in the ranges of its
// values.
std::vector<StripRun> RunsByStrip(const std::vector<double>& squares,
                                  const std::vector<uint64_t>& ends) {
  std::vector<StripRun> runs;
  uint32_t range = 0;
  const auto range_of = [&](uint64_t value) {
    while (ends[range] <= value) ++range;
    return range;
  };
  for (uint64_t strip = 0; strip < squares.size(); ++strip) {
    const uint64_t begin = strip * kStripValues;
    const uint32_t first = range_of(begin);
    const uint32_t last = range_of(begin + ValuesOfStrip(strip, kValues) - 1);
    if (runs.empty() || runs.back().first_range != first ||
        runs.back().last_range != last) {
      runs.push_back({.first_range = first, .last_range = last});
    }
    ++runs.back().strips;
    runs.back().squares += squares[strip];
  }
  return runs;
}

void ExpectSameRuns(const std::vector<StripRun>& got,
                    const std::vector<StripRun>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first_range, want[i].first_range);
    EXPECT_EQ(got[i].last_range, want[i].last_range);
    EXPECT_EQ(got[i].strips, want[i].strips);
    EXPECT_EQ(std::isnan(got[i].squares), std::isnan(want[i].squares));
    if (std::isnan(want[i].squares)) continue;
    EXPECT_NEAR(got[i].squares / want[i].squares, 1, 1e-12);
  }
}

TEST_P(EncodingReaderTest, RunsAreThoseOfTheDecodedValuesByRange) {
  constexpr uint64_t kStrip = kStripValues;
  std::vector<std::vector<uint64_t>> divisions = {
      {kValues},
      {kStrip, 2 * kStrip, kValues},
      {0, kStrip, kStrip, kStrip + 1, kValues, kValues},
      {1, kValues - 1, kValues},
      {kStrip - 1, 2 * kStrip + 1, kValues}};
  std::mt19937 random(2);
  for (int ranges = 1; ranges < 9; ++ranges) {
    std::vector<uint64_t>& ends = divisions.emplace_back(1, kValues);
    for (int i = 1; i < ranges; ++i) ends.push_back(random() % kValues);
    std::sort(ends.begin(), ends.end());
  }
  const std::vector<float> sound = values_;
  std::vector<float> sound_decoded(kValues);
  ASSERT_OK(Decode(spec_, encoded_, absl::MakeSpan(sound_decoded)));
  // The strips with a value that is not finite.
  for (const std::vector<uint64_t>& strips :
       std::vector<std::vector<uint64_t>>{{}, {0}, {1}, {0, 2}, {0, 1, 2}}) {
    values_ = sound;
    std::vector<float> decoded = sound_decoded;
    for (const uint64_t strip : strips) {
      values_[strip * kStrip + 77] = strip == 1 ? -INFINITY : NAN;
      decoded[strip * kStrip + 77] = NAN;
    }
    encoded_ = Encode(spec_, values_).value();
    const std::vector<double> squares = SquaresByStrip(decoded);
    std::vector<EncodingReader> readers;
    for (const uint64_t piece : {999ul, 40'000ul, encoded_.size()}) {
      readers.push_back(
          NewEncodingReader(spec_, kValues, Task::kMeasureValues));
      ReadInPieces(encoded_, piece, readers.back());
    }
    for (const std::vector<uint64_t>& ends : divisions) {
      SCOPED_TRACE(testing::PrintToString(ends));
      const std::vector<StripRun> want = RunsByStrip(squares, ends);
      for (const EncodingReader& reader : readers) {
        ExpectSameRuns(reader.Runs(ends), want);
      }
    }
  }
}

TEST_P(EncodingReaderTest, RunsOfEndsThatDoNotFitAreSomeRuns) {
  EncodingReader reader =
      NewEncodingReader(spec_, kValues, Task::kMeasureValues);
  reader.Read(encoded_).IgnoreError();
  EXPECT_THAT(reader.Runs({}), IsEmpty());
  EXPECT_THAT(reader.Runs({5, 3}), IsEmpty());
  EXPECT_THAT(reader.Runs({UINT64_MAX, 0, kStripValues}), SizeIs(1));
  EXPECT_THAT(reader.Runs({kStripValues}), SizeIs(1));
}

// Reads damaged versions of bytes [begin, end) before the true ones. Everything
// else comes 999 bytes at a time.
absl::StatusOr<double> EncodingReaderTest::NormAfterDamage(uint64_t begin,
                                                           uint64_t end) const {
  const absl::string_view bytes = encoded_;
  std::string damaged = encoded_.substr(begin, end - begin);
  for (char& byte : damaged) byte = static_cast<char>(~byte);
  EncodingReader reader =
      NewEncodingReader(spec_, kValues, Task::kMeasureValues);
  const auto read_to = [&](uint64_t to) {
    while (reader.bytes() < to) {
      EXPECT_OK(reader.Read(bytes.substr(
          reader.bytes(), std::min<uint64_t>(999, to - reader.bytes()))));
    }
  };
  read_to(begin);
  reader.Read(damaged).IgnoreError();
  reader.GoBack(bytes.substr(0, begin));
  EXPECT_EQ(reader.bytes(), begin);
  read_to(encoded_.size());
  for (const StripRun& run : reader.Runs({kStripValues, kValues})) {
    EXPECT_FALSE(std::isnan(run.squares));
  }
  return reader.Norm();
}

TEST_P(EncodingReaderTest, BytesThatAreTakenBackLeaveNoTrace) {
  ASSERT_OK_AND_ASSIGN(const double norm, NormOf(encoded_, encoded_.size()));
  const uint64_t size = encoded_.size();
  for (const auto& [begin, end] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 100}, {1000, 9000}, {size / 2, size}, {0, size}}) {
    EXPECT_THAT(NormAfterDamage(begin, end), IsOkAndHolds(norm)) << begin;
  }
}

// A peer also determines the first bytes.
TEST_P(EncodingReaderTest, GoesBackToBytesThatItDidNotReadToTheEnd) {
  EncodingReader reader =
      NewEncodingReader(spec_, kValues, Task::kMeasureValues);
  const std::string longer = encoded_ + "more";
  EXPECT_FALSE(reader.Read(longer).ok());
  EXPECT_FALSE(reader.Read("and more").ok());
  reader.GoBack(longer);
  EXPECT_THAT(reader.Norm(), IsInvalidArgument());
  reader.GoBack(encoded_);
  EXPECT_OK(reader.Norm());
}

TEST_P(EncodingReaderTest, NamesTheFirstValueThatIsNotFinite) {
  values_[kStripValues + 3] = NAN;
  values_[2 * kStripValues] = INFINITY;
  encoded_ = Encode(spec_, values_).value();
  EXPECT_THAT(NormOf(encoded_, 10'000), IsOutOfRange("value 6553", "nan"));
}

TEST_P(EncodingReaderTest, RefusesEncodingsOfAnotherLength) {
  EXPECT_THAT(NormOf(encoded_.substr(0, encoded_.size() - 1), 10'000),
              IsInvalidArgument());
  EXPECT_THAT(NormOf(encoded_ + "x", 10'000), IsInvalidArgument());
}

// A wrong length is reported rather than values that are not finite, since it
// says more.
TEST_P(EncodingReaderTest, AWrongLengthOutweighsValuesThatAreNotFinite) {
  values_[3] = NAN;
  encoded_ = Encode(spec_, values_).value();
  EXPECT_THAT(NormOf(encoded_.substr(0, encoded_.size() - 1), 10'000),
              IsInvalidArgument());
}

TEST_P(EncodingReaderTest, AnEmptyVectorIsCompleteAndHasNoLength) {
  EncodingReader reader = NewEncodingReader(spec_, 0, Task::kMeasureValues);
  EXPECT_EQ(reader.strips(), 0u);
  EXPECT_OK(reader.Read(""));
  EXPECT_OK(reader.CheckComplete());
  EXPECT_THAT(reader.Norm(), IsOkAndHolds(0));
}

TEST(EncodingReaderNormTest, IgnoresCodesThatFillUpTheLastGroup) {
  // The second group of 4-bit codes has two values.
  const std::vector<float> values(130, 1.0f);
  for (const uint32_t block_size : {64u, 128u, 256u}) {
    const CodecSpec spec{v1::INT4, block_size, /*entropy_coded=*/false};
    const auto norm_of = [&](absl::string_view encoded) {
      EncodingReader reader =
          NewEncodingReader(spec, values.size(), Task::kMeasureValues);
      reader.Read(encoded).IgnoreError();
      return reader.Norm();
    };
    ASSERT_OK_AND_ASSIGN(std::string encoded, Encode(spec, values));
    ASSERT_OK_AND_ASSIGN(const double norm, norm_of(encoded));
    for (size_t i = 0; i < 64; ++i) {
      char& codes = encoded[encoded.size() - 64 + i];
      const bool has_value = i == 0 || i == 4;
      codes = static_cast<char>(has_value ? (codes & 0x0f) | 0x70 : 0x77);
    }
    EXPECT_THAT(norm_of(encoded), IsOkAndHolds(norm)) << block_size;
  }
}

TEST(EncodingReaderNormTest, DoesNotOverflow) {
  std::vector<float> values(kValues);
  values[7] = std::numeric_limits<float>::max();
  ASSERT_OK_AND_ASSIGN(const std::string encoded, Encode({}, values));
  EncodingReader reader = NewEncodingReader({}, kValues, Task::kMeasureValues);
  ASSERT_OK(reader.Read(encoded));
  EXPECT_THAT(reader.Norm(),
              IsOkAndHolds(double{std::numeric_limits<float>::max()}));
}

}  // namespace
}  // namespace causeway
