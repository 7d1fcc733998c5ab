// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/encoded_object.h"

#include <string>

#include "absl/status/status.h"
#include "common/checksum.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantization/testing/whole_vectors.h"

namespace causeway {
namespace {

constexpr CodecSpec kSpec = {.format = v1::BF16, .block_size = 128};

class EncodedObjectTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(encoded_, Encode(kSpec, {1.0f, 2.0f, 3.0f}));
    object_ = DescribeEncoding(kSpec, 3, encoded_);
  }

  absl::Status Verify(const std::string& arrived) const {
    return CheckArrival(object_, arrived.size(), Digest128(arrived));
  }

  std::string encoded_;
  v1::EncodedObject object_;
};

TEST_F(EncodedObjectTest, DescribesWhatIsSent) {
  EXPECT_EQ(object_.format(), v1::BF16);
  EXPECT_EQ(object_.block_size(), 128u);
  EXPECT_EQ(object_.size(), 3u);
  EXPECT_EQ(object_.encoded_bytes(), 6u);
  EXPECT_EQ(object_.digest().size(), 16u);
  EXPECT_EQ(SpecOf(object_), kSpec);
  EXPECT_OK(CheckDescription(object_, kSpec, 3));
  EXPECT_OK(Verify(encoded_));
}

TEST_F(EncodedObjectTest, RefusesAnotherFormatThanTheRuns) {
  EXPECT_THAT(CheckDescription(object_, {.block_size = 128}, 3),
              IsFailedPrecondition("object is BF16 in blocks of 128; the run "
                                   "uses FP32 in blocks of 128"));
  // The block size matters only where there are scales.
  EXPECT_OK(CheckDescription(object_, {.format = v1::BF16}, 3));
  EXPECT_THAT(CheckOffer(DescribeOpen({.format = v1::INT8}, 3),
                         {.format = v1::INT8, .block_size = 128}, 3),
              IsFailedPrecondition("INT8 in blocks of 256", "128"));
  // Format 6 was NF4.
  object_.set_format(static_cast<v1::Format>(6));
  EXPECT_THAT(
      CheckDescription(object_, kSpec, 3),
      IsFailedPrecondition("object is unknown format 6 in blocks of 128; "
                           "the run uses BF16"));
}

TEST_F(EncodedObjectTest, RefusesASizeThatIsNotTheFragments) {
  EXPECT_THAT(CheckDescription(object_, kSpec, 4),
              IsInvalidArgument("3 values; the fragment has 4"));
  object_.set_encoded_bytes(uint64_t{1} << 40);
  EXPECT_THAT(CheckDescription(object_, kSpec, 3),
              IsInvalidArgument("1099511627776 bytes; 3 values of BF16 take "
                                "6"));
}

TEST_F(EncodedObjectTest, RefusesADigestOfTheWrongLength) {
  object_.set_digest("short");
  EXPECT_THAT(CheckDescription(object_, kSpec, 3),
              IsInvalidArgument("digest has 5 bytes, want 16"));
}

TEST_F(EncodedObjectTest, FindsEveryFlippedBit) {
  for (size_t bit = 0; bit < 8 * encoded_.size(); ++bit) {
    std::string flipped = encoded_;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THAT(Verify(flipped), IsDataLoss("digest"));
  }
  EXPECT_THAT(Verify(encoded_.substr(0, 4)),
              IsDataLoss("4 bytes, described as 6"));
}

TEST_F(EncodedObjectTest,
       AnOpenDescriptionMayBeOfferedAndIsClosedByItsTrailer) {
  const v1::EncodedObject open = DescribeOpen(kSpec, 3);
  EXPECT_TRUE(IsOpen(open));
  EXPECT_FALSE(IsOpen(object_));
  EXPECT_OK(CheckOffer(open, kSpec, 3));
  EXPECT_OK(CheckOffer(object_, kSpec, 3));
  EXPECT_THAT(CheckDescription(open, kSpec, 3),
              IsInvalidArgument("lacks the size"));
  EXPECT_THAT(CheckOffer(open, kSpec, 4), IsInvalidArgument());
  EXPECT_THAT(CheckOffer(open, {.block_size = 128}, 3), IsFailedPrecondition());

  EXPECT_OK(CheckTrailer(object_, open));
  EXPECT_THAT(CheckTrailer(open, open), IsInvalidArgument("lacks the size"));
  EXPECT_THAT(CheckTrailer(object_, DescribeOpen(kSpec, 4)),
              IsInvalidArgument("3 values of BF16 in blocks of 128; the "
                                "header said 4"));
  EXPECT_THAT(CheckTrailer(object_, DescribeOpen({.block_size = 128}, 3)),
              IsInvalidArgument("FP32"));
}

TEST_F(EncodedObjectTest, AnEmptyObjectIsFine) {
  object_ = DescribeEncoding(kSpec, 0, "");
  EXPECT_OK(CheckDescription(object_, kSpec, 0));
  EXPECT_OK(Verify(""));
}

}  // namespace
}  // namespace causeway
