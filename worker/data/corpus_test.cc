// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/corpus.h"

#include <cstdint>
#include <string>
#include <vector>

#include "common/checksum.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/files.h"
#include "worker/data/token_file_format.h"

namespace causeway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::ModelConfig Model(uint32_t vocab_size, uint32_t sequence_length) {
  v1::ModelConfig model;
  model.set_vocab_size(vocab_size);
  model.set_sequence_length(sequence_length);
  return model;
}

std::vector<int32_t> Tokens(const Corpus& corpus) {
  std::vector<int32_t> tokens(corpus.size());
  corpus.Copy(0, absl::MakeSpan(tokens));
  return tokens;
}

TEST(CorpusTest, TextsAreJoinedByEndOfText) {
  ASSERT_OK_AND_ASSIGN(
      const Corpus corpus,
      Corpus::Open(v1::DataConfig::BYTES,
                   {WriteTestFile("a", "ab"), WriteTestFile("b", "c"),
                    WriteTestFile("c", "de")}));
  EXPECT_THAT(Tokens(corpus), ElementsAre('a', 'b', 257, 'c', 257, 'd', 'e'));
  EXPECT_EQ(corpus.vocabulary(), 258);
}

TEST(CorpusTest, FilesOfIdsAreJoinedDirectly) {
  ASSERT_OK_AND_ASSIGN(
      const Corpus corpus,
      Corpus::Open(v1::DataConfig::PRETOKENIZED,
                   {WriteTestFile("flat.bin", BytesOf<uint16_t>({1, 2})),
                    WriteTestFile("llmc.bin", LlmcHeader(20240520, 1, 1) +
                                                  BytesOf<uint16_t>({9})),
                    WriteTestFile("small.bin", BytesOf<uint16_t>({3}))}));
  EXPECT_THAT(Tokens(corpus), ElementsAre(1, 2, 9, 3));
  EXPECT_EQ(corpus.vocabulary(), 10);
}

TEST(CorpusTest, NothingIsPutBetweenTextAndIds) {
  ASSERT_OK_AND_ASSIGN(
      const Corpus corpus,
      Corpus::Open(v1::DataConfig::BYTES,
                   {WriteTestFile("a", "ab"),
                    WriteTestFile("llmc.bin", LlmcHeader(20240520, 1, 1) +
                                                  BytesOf<uint16_t>({9})),
                    WriteTestFile("c", "c")}));
  EXPECT_THAT(Tokens(corpus), ElementsAre('a', 'b', 9, 'c'));
}

TEST(CorpusTest, CopiesAnyRangeAcrossFiles) {
  ASSERT_OK_AND_ASSIGN(
      const Corpus corpus,
      Corpus::Open(v1::DataConfig::BYTES,
                   {WriteTestFile("a", "abc"), WriteTestFile("b", "d"),
                    WriteTestFile("c", "efg")}));
  const std::vector<int32_t> all = Tokens(corpus);
  for (size_t begin = 0; begin <= all.size(); ++begin) {
    for (size_t end = begin; end <= all.size(); ++end) {
      std::vector<int32_t> tokens(end - begin, -1);
      corpus.Copy(static_cast<int64_t>(begin), absl::MakeSpan(tokens));
      EXPECT_EQ(tokens,
                std::vector<int32_t>(all.begin() + begin, all.begin() + end));
    }
  }
}

TEST(CorpusTest, FitsAModelWithRoomForEveryIdAndSequence) {
  ASSERT_OK_AND_ASSIGN(
      const Corpus corpus,
      Corpus::Open(v1::DataConfig::PRETOKENIZED,
                   {WriteTestFile("a.bin", BytesOf<uint16_t>({1, 2, 7, 4}))}));
  EXPECT_OK(corpus.CheckFits(Model(8, 3)));
  EXPECT_THAT(corpus.CheckFits(Model(7, 3)),
              IsInvalidArgument("a.bin: token 2 ", "allowed ids: 0 to 6",
                                "vocab_size 8"));
  EXPECT_THAT(corpus.CheckFits(Model(8, 4)),
              IsInvalidArgument("a.bin has 4 tokens", "= 5"));
}

TEST(CorpusTest, TextNeedsTheWholeByteVocabulary) {
  ASSERT_OK_AND_ASSIGN(
      const Corpus corpus,
      Corpus::Open(v1::DataConfig::BYTES, {WriteTestFile("a", "abc")}));
  EXPECT_OK(corpus.CheckFits(Model(258, 2)));
  EXPECT_THAT(corpus.CheckFits(Model(256, 2)),
              IsInvalidArgument("258 ids", "vocab_size is 256"));
}

std::string PreparedFile(char tokenizer) {
  const std::string ids = BytesOf<uint16_t>({1, 2, 3});
  return SerializeTokenFileHeader(
             {.tokens = 3,
              .token_bytes = 2,
              .prepared =
                  PreparedInfo{.vocabulary = 8,
                               .tokenizer = v1::DataConfig::SENTENCEPIECE,
                               .tokenizer_digest = std::string(16, tokenizer),
                               .tokens_digest = Digest128(ids)}}) +
         ids;
}

TEST(CorpusTest, AllPreparedFilesMustHaveTheSameTokenizer) {
  const std::string a = WriteTestFile("a.bin", PreparedFile('a'));
  const std::string flat = WriteTestFile("flat.bin", BytesOf<uint16_t>({4}));
  const std::string b = WriteTestFile("b.bin", PreparedFile('b'));
  EXPECT_OK(Corpus::Open(v1::DataConfig::PRETOKENIZED, {a, flat, a}));
  for (const std::vector<std::string>& paths :
       {std::vector<std::string>{a, b}, {a, flat, b}}) {
    EXPECT_THAT(Corpus::Open(v1::DataConfig::PRETOKENIZED, paths),
                IsInvalidArgument("different SentencePiece models"));
  }
}

TEST(CorpusTest, ReportsTheFileThatCannotBeRead) {
  EXPECT_THAT(Corpus::Open(v1::DataConfig::BYTES,
                           {WriteTestFile("a", "abc"), "/no/such"}),
              IsNotFound("/no/such"));
  EXPECT_THAT(Corpus::Open(v1::DataConfig::BYTES, {}), IsInvalidArgument());
}

TEST(CorpusTest, MasksHideTargets) {
  const std::string a = WriteTestFile("a", "abcdefghij");
  const std::string b = WriteTestFile("b", "kl");
  // The lowest bit belongs to the first token.
  WriteTestFile("a.mask", std::string("\x0d\x02", 2));
  WriteTestFile("b.mask", "\x02");
  ASSERT_OK_AND_ASSIGN(const Corpus corpus,
                       Corpus::Open(v1::DataConfig::BYTES, {a, b}, true));
  std::vector<int32_t> targets(13);
  corpus.CopyTargets(0, absl::MakeSpan(targets));
  EXPECT_THAT(targets, ElementsAre('a', -1, 'c', 'd', -1, -1, -1, -1, -1, 'j',
                                   257, -1, 'l'));
  std::vector<int32_t> part(3);
  corpus.CopyTargets(8, absl::MakeSpan(part));
  EXPECT_THAT(part, ElementsAre(-1, 'j', 257));
  EXPECT_THAT(Tokens(corpus).front(), 'a');
  EXPECT_THAT(Tokens(corpus)[1], 'b');
}

TEST(CorpusTest, MasksHaveABitForEachToken) {
  const std::string file = WriteTestFile("a", "abcdefghi");
  EXPECT_THAT(Corpus::Open(v1::DataConfig::BYTES, {file}, true),
              IsNotFound("a.mask"));
  for (const char* mask : {"x", "xyz"}) {
    WriteTestFile("a.mask", mask);
    EXPECT_THAT(Corpus::Open(v1::DataConfig::BYTES, {file}, true),
                IsInvalidArgument("a.mask", "need 2"));
  }
}

}  // namespace
}  // namespace causeway
