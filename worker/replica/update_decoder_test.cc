// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/update_decoder.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantization/strips/layout.h"
#include "quantization/testing/whole_vectors.h"

namespace causeway {
namespace {

std::vector<float> Values(size_t count, float frequency) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = std::sin(frequency * static_cast<float>(i));
  }
  return values;
}

// Collects the values, which come without gaps.
class Collected {
 public:
  auto sink() {
    return [this](uint64_t begin, absl::Span<const float> change) {
      EXPECT_EQ(begin, values_.size());
      values_.insert(values_.end(), change.begin(), change.end());
    };
  }
  const std::vector<float>& values() const { return values_; }

 private:
  std::vector<float> values_;
};

TEST(UpdateDecoderTest, IsDecodeHoweverTheBytesCome) {
  for (const v1::Format format : {v1::FP32, v1::BF16, v1::E3M0}) {
    const CodecSpec spec{.format = format};
    for (const size_t count : {size_t{1}, kStripValues, 3 * kStripValues + 7}) {
      ASSERT_OK_AND_ASSIGN(const std::string encoded,
                           Encode(spec, Values(count, 0.7f)));
      std::vector<float> change(count);
      ASSERT_OK(Decode(spec, encoded, absl::MakeSpan(change)));
      for (const uint64_t step : {50'000u, 1u << 20}) {
        UpdateDecoder decoder(spec, count, 0, count);
        Collected collected;
        for (uint64_t end = 0; end < encoded.size(); end += step) {
          ASSERT_OK(decoder.Advance(absl::string_view(encoded).substr(0, end),
                                    collected.sink()));
        }
        ASSERT_OK(decoder.Advance(encoded, collected.sink()));
        ASSERT_OK(decoder.Advance(encoded, collected.sink()))
            << "no news is fine";
        ASSERT_OK(decoder.CheckComplete());
        EXPECT_EQ(collected.values(), change);
      }
    }
  }
}

TEST(UpdateDecoderTest, DecodesAPartThatBeginsAndEndsWithinStrips) {
  const CodecSpec spec{.format = v1::INT4, .entropy_coded = true};
  constexpr size_t kCount = 4 * kStripValues + 100;
  ASSERT_OK_AND_ASSIGN(const std::string encoded,
                       Encode(spec, Values(kCount, 0.7f)));
  std::vector<float> change(kCount);
  ASSERT_OK(Decode(spec, encoded, absl::MakeSpan(change)));
  EncodingReader reader = NewEncodingReader(spec, kCount);
  ASSERT_OK(reader.Read(encoded));
  const size_t ends[] = {0,
                         1,
                         kStripValues - 1,
                         kStripValues,
                         kStripValues + 5,
                         3 * kStripValues + 7,
                         kCount - 1,
                         kCount};
  for (const size_t begin : ends) {
    for (const size_t end : ends) {
      if (begin >= end) continue;
      SCOPED_TRACE(absl::StrCat(begin, " to ", end));
      const char* const first =
          reader.Strip(encoded, begin / kStripValues).data();
      const absl::string_view last =
          reader.Strip(encoded, (end - 1) / kStripValues);
      UpdateDecoder decoder(spec, kCount, begin, end - begin);
      Collected collected;
      ASSERT_OK(decoder.Advance(
          absl::string_view(first, last.data() + last.size() - first),
          collected.sink()));
      ASSERT_OK(decoder.CheckComplete());
      EXPECT_EQ(absl::MakeConstSpan(collected.values()),
                absl::MakeConstSpan(change).subspan(begin, end - begin));
    }
  }
}

TEST(UpdateDecoderTest, RefusesWhatIsIncompleteTooLongOrNotFinite) {
  std::vector<float> change = Values(kStripValues + 10, 0.7f);
  ASSERT_OK_AND_ASSIGN(std::string encoded, Encode({}, change));
  {
    Collected collected;
    UpdateDecoder decoder({}, change.size(), 0, change.size());
    ASSERT_OK(decoder.Advance(
        absl::string_view(encoded).substr(0, encoded.size() - 1),
        collected.sink()));
    EXPECT_THAT(decoder.CheckComplete(),
                IsInvalidArgument("breaks off in strip 1 of 2"));
  }
  {
    Collected collected;
    UpdateDecoder decoder({}, change.size(), 0, change.size());
    EXPECT_THAT(decoder.Advance(encoded + "x", collected.sink()),
                IsInvalidArgument());
  }
  change[kStripValues + 1] = INFINITY;
  ASSERT_OK_AND_ASSIGN(encoded, Encode({}, change));
  Collected collected;
  UpdateDecoder decoder({}, change.size(), 0, change.size());
  EXPECT_THAT(decoder.Advance(encoded, collected.sink()),
              IsInvalidArgument("value 65537 of 65546 is inf"));
}

}  // namespace
}  // namespace causeway
