// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/held_out_loss.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "proto/run_config.pb.h"
#include "worker/data/dataset.h"
#include "worker/data/testing/files.h"

namespace causeway {
namespace {

v1::RunConfig Config() {
  v1::RunConfig config;
  config.mutable_model()->set_sequence_length(8);
  config.mutable_model()->set_vocab_size(258);
  config.mutable_data()->set_validation_fraction(0.25);
  config.mutable_data()->set_shards(1);
  return config;
}

Dataset TextDataset(const std::vector<std::string>& texts) {
  static int written = 0;
  std::vector<std::string> paths;
  for (const std::string& text : texts) {
    paths.push_back(WriteTestFile(absl::StrCat("text-", ++written), text));
  }
  return *OpenDataset(Config(), paths);
}

// Returns the mean, over a batch, of each sequence's first token.
absl::StatusOr<double> MeanOfFirst(absl::Span<const int32_t> tokens,
                                   absl::Span<const int32_t> targets) {
  EXPECT_EQ(tokens.size(), targets.size());
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); i += 8) sum += tokens[i];
  return sum / static_cast<double>(tokens.size() / 8);
}

TEST(HeldOutLossTest, RanksTogetherSumEverySequenceOnce) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + i * 7 % 26);
  const Dataset dataset = TextDataset({text});
  const ValidationSet validation(&dataset, /*max_windows=*/37);
  ASSERT_EQ(validation.size(), 37);
  ASSERT_OK_AND_ASSIGN(const HeldOutLoss whole,
                       SumHeldOutLoss(validation, {.batch = 37}, MeanOfFirst));
  EXPECT_EQ(whole.sequences, 37);
  for (const int ranks : {1, 2, 3, 50}) {
    HeldOutLoss sum;
    int64_t progress = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_OK_AND_ASSIGN(
          const HeldOutLoss part,
          SumHeldOutLoss(validation, {.batch = 4, .rank = rank, .ranks = ranks},
                         MeanOfFirst, [&](int64_t rows) { progress += rows; }));
      sum.sum += part.sum;
      sum.sequences += part.sequences;
      sum.tokens += part.tokens;
    }
    EXPECT_EQ(sum.sequences, 37) << ranks;
    EXPECT_EQ(sum.tokens, 37 * 8) << ranks;
    EXPECT_EQ(progress, 37) << ranks;
    EXPECT_NEAR(sum.sum, whole.sum, 1e-9) << ranks;
  }
}

TEST(HeldOutLossTest, ReturnsErrorsOfTheModel) {
  const Dataset dataset = TextDataset({std::string(4000, 'x')});
  EXPECT_THAT(
      SumHeldOutLoss(ValidationSet(&dataset, 0), {.batch = 4},
                     [](absl::Span<const int32_t>,
                        absl::Span<const int32_t>) -> absl::StatusOr<double> {
                       return absl::InternalError("device");
                     }),
      IsInternal());
}

TEST(DatasetDigestTest, DependsOnTokensAndOrder) {
  const std::string a(3000, 'a');
  const std::string b(3000, 'b');
  std::string c = a;
  c[1234] = 'c';
  const std::string name = TextDataset({a, b}).Digest();
  EXPECT_EQ(name.size(), 16u);
  EXPECT_EQ(TextDataset({a, b}).Digest(), name);
  EXPECT_NE(TextDataset({b, a}).Digest(), name);
  EXPECT_NE(TextDataset({a, b + "b"}).Digest(), name);
  EXPECT_NE(TextDataset({c, b}).Digest(), name);
}

}  // namespace
}  // namespace causeway
