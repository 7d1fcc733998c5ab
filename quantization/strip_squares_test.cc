// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strip_squares.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/fragment.pb.h"
#include "quantization/codec.h"
#include "quantization/codec_planes.h"

namespace causeway {
namespace {

// Tiles, a block and a part of a block.
constexpr uint64_t kValues = 3 * StripPlanes::kTileValues + 256 + 7;

absl::StatusOr<double> SumInPieces(const CodecSpec& spec,
                                   absl::string_view strip, uint64_t piece) {
  const std::unique_ptr<const StripPlanes> planes = NewStripPlanes(spec);
  StripSquares squares(*planes, kValues);
  EXPECT_EQ(squares.missing_bytes(), strip.size());
  for (uint64_t begin = 0; begin < strip.size(); begin += piece) {
    squares.Look(strip.substr(begin, piece));
  }
  EXPECT_EQ(squares.missing_bytes(), 0u);
  return squares.Sum();
}

TEST(StripSquaresTest, AreTheDecodersHoweverTheBytesCome) {
  std::vector<float> values(kValues);
  for (uint64_t i = 0; i < kValues; ++i) {
    values[i] = static_cast<float>(i % 101) - 40;
  }
  for (const v1::Format format : {v1::INT8, v1::INT4, v1::E3M0}) {
    const CodecSpec spec = {.format = format, .block_size = 64};
    ASSERT_OK_AND_ASSIGN(const std::string strip, Encode(spec, values));
    ASSERT_OK_AND_ASSIGN(const auto decoder, OpenDecoder(spec, strip, kValues));
    ASSERT_OK_AND_ASSIGN(const double want, decoder->SumOfSquares());
    for (const uint64_t piece : {1ul, 1000ul, 5000ul, strip.size()}) {
      EXPECT_THAT(SumInPieces(spec, strip, piece), IsOkAndHolds(want))
          << v1::Format_Name(format) << " in pieces of " << piece;
    }
  }
}

TEST(StripSquaresTest, SayWhichValuesAreNotFinite) {
  std::vector<float> values(kValues, 1.0f);
  values[StripPlanes::kTileValues + 300] = INFINITY;
  const CodecSpec spec = {.format = v1::E3M0};
  ASSERT_OK_AND_ASSIGN(const std::string strip, Encode(spec, values));
  ASSERT_OK_AND_ASSIGN(const auto decoder, OpenDecoder(spec, strip, kValues));
  const absl::Status want = decoder->CheckFinite();
  EXPECT_FALSE(want.ok());
  EXPECT_EQ(SumInPieces(spec, strip, 1000).status(), want);
}

TEST(StripSquaresTest, NotAllStripsArePlanesSideBySide) {
  EXPECT_EQ(NewStripPlanes({.format = v1::BF16}), nullptr);
  EXPECT_EQ(NewStripPlanes({.format = v1::INT4, .entropy_coded = true}),
            nullptr);
}

}  // namespace
}  // namespace causeway
