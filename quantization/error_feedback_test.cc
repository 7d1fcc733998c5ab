// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/error_feedback.h"

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quantization/testing/whole_vectors.h"

namespace causeway {
namespace {

using ::testing::Each;

constexpr uint64_t kSize = 3 * kPieceAlignment + 17;
constexpr CodecSpec kCoarse = {.format = v1::INT4, .block_size = 64};

// Sends `values` in two pieces. Returns the values that a receiver decodes, and
// leaves the error in `values`.
std::vector<float> Send(const CodecSpec& spec, ErrorFeedback& feedback,
                        std::vector<float>& values) {
  std::string encoded(MaxEncodedBytes(spec, values.size()), '\0');
  const std::unique_ptr<Encoder> encoder =
      NewEncoder(spec, {}, values.size(), absl::MakeSpan(encoded));
  const absl::Span<float> all = absl::MakeSpan(values);
  feedback.Encode(0, all.subspan(0, kPieceAlignment), *encoder);
  feedback.Encode(kPieceAlignment, all.subspan(kPieceAlignment), *encoder);
  encoded.resize(encoder->Finish());
  std::vector<float> decoded(values.size());
  EXPECT_OK(Decode(spec, encoded, absl::MakeSpan(decoded)));
  return decoded;
}

std::vector<float> RandomValues(int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kSize);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(ErrorFeedbackTest, NothingIsLostOverTime) {
  ErrorFeedback feedback(1);
  std::vector<double> sent(kSize), wanted(kSize);
  std::vector<float> error;
  for (int round = 0; round < 50; ++round) {
    std::vector<float> values = RandomValues(round);
    for (uint64_t i = 0; i < kSize; ++i) wanted[i] += values[i];
    const std::vector<float> decoded = Send(kCoarse, feedback, values);
    for (uint64_t i = 0; i < kSize; ++i) sent[i] += decoded[i];
    error = values;
    feedback.SetError({values.begin(), values.end()});
  }
  for (uint64_t i = 0; i < kSize; ++i) {
    EXPECT_NEAR(sent[i] + error[i], wanted[i], 1e-4) << i;
  }
}

TEST(ErrorFeedbackTest, AContributionThatWasNotMergedLeavesNoError) {
  ErrorFeedback feedback(1);
  std::vector<float> lost = RandomValues(1);
  const std::vector<float> first = Send(kCoarse, feedback, lost);
  std::vector<float> again = RandomValues(1);
  EXPECT_EQ(Send(kCoarse, feedback, again), first);
  EXPECT_EQ(again, lost);
}

TEST(ErrorFeedbackTest, DecayIsTheShareThatIsKept) {
  ErrorFeedback whole(1), quarter(0.25f);
  std::vector<float> a = RandomValues(1), b = RandomValues(1);
  Send(kCoarse, whole, a);
  Send(kCoarse, quarter, b);
  for (uint64_t i = 0; i < kSize; ++i) EXPECT_EQ(b[i], 0.25f * a[i]);
}

TEST(ErrorFeedbackTest, WithoutDecayItIsOff) {
  ErrorFeedback off(0), on(1);
  EXPECT_FALSE(off.is_on());
  std::vector<float> values = RandomValues(1), error = values;
  EXPECT_EQ(Send(kCoarse, off, values), Send(kCoarse, on, error));
  EXPECT_EQ(values, RandomValues(1));
}

TEST(ErrorFeedbackTest, LosslessFormatsLeaveNoError) {
  ErrorFeedback feedback(1);
  std::vector<float> values = RandomValues(1);
  EXPECT_EQ(Send({.format = v1::FP32}, feedback, values), RandomValues(1));
  EXPECT_THAT(values, Each(0.0f));
}

// A constant far below the format's smallest level, beside a large value, still
// arrives in the mean.
TEST(ErrorFeedbackTest, SmallValuesComeThroughInTheMean) {
  constexpr int kRounds = 400;
  ErrorFeedback feedback(1);
  double sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<float> values(kSize, 0.01f);
    values[0] = 1;
    sum += Send(kCoarse, feedback, values)[1];
    feedback.SetError({values.begin(), values.end()});
  }
  EXPECT_NEAR(sum / kRounds, 0.01, 0.15 / kRounds);
}

}  // namespace
}  // namespace causeway
