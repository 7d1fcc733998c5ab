// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/dataset.h"

#include <cstdint>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/files.h"

namespace causeway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::RunConfig ByteConfig(uint32_t sequence_length, uint32_t shards) {
  v1::RunConfig config;
  config.mutable_model()->set_vocab_size(258);
  config.mutable_model()->set_sequence_length(sequence_length);
  config.mutable_data()->set_shards(shards);
  return config;
}

TEST(DatasetTest, TextIsReadInPlaceAcrossDocuments) {
  ASSERT_OK_AND_ASSIGN(
      const Dataset dataset,
      OpenDataset(ByteConfig(3, 1), {WriteTestFile("a", "abcdefghijkl"),
                                     WriteTestFile("b", "mnopqrstuvwx")}));
  EXPECT_EQ(dataset.corpus.size(), 25);
  std::vector<int32_t> tokens(3);
  std::vector<int32_t> targets(3);
  dataset.CopyWindows([] { return 10; }, absl::MakeSpan(tokens),
                      absl::MakeSpan(targets));
  EXPECT_THAT(tokens, ElementsAre('k', 'l', 257));
  EXPECT_THAT(targets, ElementsAre('l', 257, 'm'));
}

TEST(DatasetTest, TooShortForTheSplitNamesFilesAndMinimum) {
  const std::string path = WriteTestFile("tiny.txt", "0123456789");
  EXPECT_THAT(OpenDataset(ByteConfig(8, 2), {path}),
              IsInvalidArgument("tiny.txt: too few tokens: 10", "at least 27"));
}

TEST(DatasetTest, DataThatDoesNotFitTheModelIsRefused) {
  v1::RunConfig config = ByteConfig(8, 1);
  config.mutable_model()->set_vocab_size(100);
  const std::string path = WriteTestFile("a.txt", std::string(1000, 'z'));
  EXPECT_THAT(OpenDataset(config, {path}), IsInvalidArgument("a.txt: token 0"));
  config.mutable_model()->set_vocab_size(258);
  config.mutable_model()->set_sequence_length(1000);
  EXPECT_THAT(OpenDataset(config, {path}),
              IsInvalidArgument("less than one training sequence"));
}

// The digest of long data reads only pieces, which include both ends.
TEST(DatasetTest, TheDigestOfLongDataIncludesBothEnds) {
  const std::string text(5'000'000, 'z');
  const auto digest = [](const char* name, const std::string& content) {
    return OpenDataset(ByteConfig(8, 1), {WriteTestFile(name, content)})
        ->Digest();
  };
  const std::string whole = digest("whole", text);
  EXPECT_EQ(digest("same", text), whole);
  for (const size_t at : {size_t{0}, text.size() - 1}) {
    std::string changed = text;
    changed[at] = 'a';
    EXPECT_NE(digest("changed", changed), whole) << at;
  }
}

}  // namespace
}  // namespace causeway
