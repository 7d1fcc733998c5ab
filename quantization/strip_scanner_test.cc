// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strip_scanner.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/fragment.pb.h"
#include "quantization/codec.h"
#include "quantization/strip_layout.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr uint64_t kValues = 2 * kStripValues + 100;

class StripScannerTest : public testing::TestWithParam<CodecSpec> {
 protected:
  StripScannerTest() : values_(kValues) {
    for (uint64_t i = 0; i < kValues; ++i) {
      values_[i] = std::sin(static_cast<float>(i)) * 1e-3f;
    }
    encoded_ = Encode(spec_, values_).value();
  }

  const CodecSpec spec_ = GetParam();
  std::vector<float> values_;
  std::string encoded_;
};

INSTANTIATE_TEST_SUITE_P(
    Formats, StripScannerTest,
    testing::Values(CodecSpec{.format = v1::FP32},
                    CodecSpec{.format = v1::BF16},
                    CodecSpec{.format = v1::INT8, .block_size = 64},
                    CodecSpec{.format = v1::E3M0}),
    [](const auto& info) { return v1::Format_Name(info.param.format); });

TEST_P(StripScannerTest, DecodesStripsAsSoonAsTheyAreComplete) {
  std::vector<float> want(kValues);
  ASSERT_OK(Decode(spec_, encoded_, absl::MakeSpan(want)));
  StripScanner scanner(spec_, kValues);
  ASSERT_EQ(scanner.strips(), 3u);
  std::vector<float> got(kValues);
  std::string strips;
  uint64_t decoded = 0;
  for (uint64_t bytes = 0;;
       bytes = std::min<uint64_t>(bytes + 10007, encoded_.size())) {
    // Moves in memory from call to call.
    const std::string received = encoded_.substr(0, bytes);
    ASSERT_OK_AND_ASSIGN(const uint64_t complete, scanner.Scan(received));
    for (; decoded < complete; ++decoded) {
      strips += std::string(scanner.Strip(received, decoded));
      ASSERT_OK(scanner.DecodeStrip(
          received, decoded,
          absl::MakeSpan(got).subspan(decoded * kStripValues,
                                      ValuesOfStrip(decoded, kValues))));
    }
    EXPECT_LE(strips.size(), bytes);
    EXPECT_EQ(scanner.CheckComplete().ok(), bytes == encoded_.size());
    if (bytes == encoded_.size()) break;
  }
  EXPECT_TRUE(got == want);
  EXPECT_TRUE(strips == encoded_);
}

TEST_P(StripScannerTest, AStripIsCompleteWithItsLastByte) {
  StripScanner scanner(spec_, kValues);
  const uint64_t first =
      Encode(spec_, absl::MakeConstSpan(values_).subspan(0, kStripValues))
          .value()
          .size();
  const absl::string_view all(encoded_);
  EXPECT_THAT(scanner.Scan(all.substr(0, first - 1)), IsOkAndHolds(0u));
  EXPECT_THAT(scanner.Scan(all.substr(0, first)), IsOkAndHolds(1u));
  EXPECT_THAT(scanner.Scan(all.substr(0, all.size() - 1)), IsOkAndHolds(2u));
  EXPECT_THAT(scanner.CheckComplete(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("breaks off in strip 2 of 3")));
  EXPECT_THAT(scanner.Scan(all), IsOkAndHolds(3u));
}

TEST_P(StripScannerTest, RefusesBytesAfterTheLastStrip) {
  StripScanner scanner(spec_, kValues);
  EXPECT_THAT(scanner.Scan(encoded_ + "x"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("ends after"),
                             HasSubstr(std::to_string(encoded_.size() + 1)))));
}

TEST_P(StripScannerTest, RefusesAStripThatIsNotFiniteAndWritesNothing) {
  values_[kStripValues + 7] = INFINITY;
  encoded_ = Encode(spec_, values_).value();
  StripScanner scanner(spec_, kValues);
  ASSERT_THAT(scanner.Scan(encoded_), IsOkAndHolds(3u));
  std::vector<float> strip(kStripValues, 5.0f);
  EXPECT_OK(scanner.DecodeStrip(encoded_, 0, absl::MakeSpan(strip)));
  strip.assign(kStripValues, 5.0f);
  EXPECT_OK(scanner.CheckStrip(encoded_, 0));
  EXPECT_EQ(scanner.CheckStrip(encoded_, 1),
            scanner.DecodeStrip(encoded_, 1, absl::MakeSpan(strip)));
  EXPECT_THAT(scanner.DecodeStrip(encoded_, 1, absl::MakeSpan(strip)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("strip 1 of 3, from value 65536 on"),
                             HasSubstr("diverged"))));
  EXPECT_THAT(strip, Each(5.0f));
}

TEST_P(StripScannerTest, AnEmptyVectorIsComplete) {
  StripScanner scanner(spec_, 0);
  EXPECT_EQ(scanner.strips(), 0u);
  EXPECT_THAT(scanner.Scan(""), IsOkAndHolds(0u));
  EXPECT_OK(scanner.CheckComplete());
}

}  // namespace
}  // namespace causeway
