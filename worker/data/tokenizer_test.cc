// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/tokenizer.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ByteTokenizerTest, EveryByteRoundTrips) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte)
    text.push_back(static_cast<char>(byte));
  const std::unique_ptr<Tokenizer> tokenizer = MakeByteTokenizer();
  std::vector<int32_t> ids;
  ASSERT_OK(tokenizer->Encode(text, ids));
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(ids[byte], byte);
  EXPECT_THAT(tokenizer->Decode(ids), IsOkAndHolds(text));
}

TEST(ByteTokenizerTest, SpecialTokensHaveNoText) {
  const std::unique_ptr<Tokenizer> tokenizer = MakeByteTokenizer();
  EXPECT_THAT(tokenizer->Decode({kBeginOfText, 'a', kEndOfText, 'b'}),
              IsOkAndHolds("ab"));
  EXPECT_EQ(tokenizer->end_of_text(), 257);
  EXPECT_EQ(tokenizer->vocabulary(), 258);
}

TEST(ByteTokenizerTest, EncodeAppends) {
  std::vector<int32_t> ids = {kBeginOfText};
  ASSERT_OK(MakeByteTokenizer()->Encode("a", ids));
  EXPECT_THAT(ids, ElementsAre(256, 'a'));
}

TEST(ByteTokenizerTest, IdsOutsideTheVocabularyAreRefused) {
  for (const int32_t id : {-1, 258}) {
    EXPECT_THAT(MakeByteTokenizer()->Decode({0, id}),
                IsInvalidArgument("token 1", "allowed: 0 to 257"));
  }
}

}  // namespace
}  // namespace causeway
