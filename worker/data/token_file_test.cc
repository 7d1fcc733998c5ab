// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/token_file.h"

#include <cstdint>
#include <string>
#include <vector>

#include "common/checksum.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/files.h"

namespace causeway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> Tokens(const TokenFile& file) {
  std::vector<int32_t> tokens(file.size());
  file.Copy(0, absl::MakeSpan(tokens));
  return tokens;
}

std::string PreparedFile(const std::vector<uint16_t>& ids,
                         v1::DataConfig::Tokenizer tokenizer,
                         int64_t vocabulary) {
  const std::string payload = BytesOf(ids);
  return SerializeTokenFileHeader(
             {.tokens = static_cast<int64_t>(ids.size()),
              .token_bytes = 2,
              .prepared =
                  PreparedInfo{.vocabulary = vocabulary,
                               .tokenizer = tokenizer,
                               .tokenizer_digest = std::string(16, '\0'),
                               .tokens_digest = Digest128(payload)}}) +
         payload;
}

TEST(TokenFileTest, TextIsItsBytes) {
  ASSERT_OK_AND_ASSIGN(const TokenFile file,
                       TokenFile::Open(WriteTestFile("a.txt", "A\xff\n"),
                                       v1::DataConfig::BYTES));
  EXPECT_THAT(Tokens(file), ElementsAre('A', 255, '\n'));
  EXPECT_EQ(file.vocabulary(), 258);
  EXPECT_EQ(file.token_bytes(), 1);
}

TEST(TokenFileTest, FlatFilesAreUint16) {
  ASSERT_OK_AND_ASSIGN(
      const TokenFile file,
      TokenFile::Open(
          WriteTestFile("a.bin", BytesOf<uint16_t>({7, 65535, 256})),
          v1::DataConfig::PRETOKENIZED));
  EXPECT_THAT(Tokens(file), ElementsAre(7, 65535, 256));
  EXPECT_EQ(file.vocabulary(), 65536);
}

TEST(TokenFileTest, LlmcFilesOfBothWidthsAreRecognized) {
  ASSERT_OK_AND_ASSIGN(
      const TokenFile narrow,
      TokenFile::Open(
          WriteTestFile("narrow.bin", LlmcHeader(20240520, 1, 3) +
                                          BytesOf<uint16_t>({50256, 1, 2})),
          v1::DataConfig::PRETOKENIZED));
  EXPECT_THAT(Tokens(narrow), ElementsAre(50256, 1, 2));
  EXPECT_EQ(narrow.vocabulary(), 50257);
  ASSERT_OK_AND_ASSIGN(
      const TokenFile wide,
      TokenFile::Open(
          WriteTestFile("wide.bin", LlmcHeader(20240801, 7, 2) +
                                        BytesOf<uint32_t>({128000, 5})),
          v1::DataConfig::PRETOKENIZED));
  EXPECT_THAT(Tokens(wide), ElementsAre(128000, 5));
  EXPECT_EQ(wide.vocabulary(), 128001);
}

TEST(TokenFileTest, CopiesAnyRange) {
  std::vector<uint16_t> ids(100);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = 3 * i;
  ASSERT_OK_AND_ASSIGN(const TokenFile file,
                       TokenFile::Open(WriteTestFile("a.bin", BytesOf(ids)),
                                       v1::DataConfig::PRETOKENIZED));
  for (size_t begin = 0; begin <= ids.size(); ++begin) {
    std::vector<int32_t> tokens(ids.size() - begin);
    file.Copy(static_cast<int64_t>(begin), absl::MakeSpan(tokens));
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), ids.begin() + begin));
  }
}

// The places include the last lanes of a vectorized loop.
TEST(TokenFileTest, FindsTheLargestIdAnywhere) {
  for (size_t i = 0; i < 67; ++i) {
    std::vector<uint16_t> ids(67, 9);
    ids[i] = 40000;
    ASSERT_OK_AND_ASSIGN(const TokenFile file,
                         TokenFile::Open(WriteTestFile("a.bin", BytesOf(ids)),
                                         v1::DataConfig::PRETOKENIZED));
    EXPECT_EQ(file.vocabulary(), 40001);
    EXPECT_EQ(file.FindOutside(10), static_cast<int64_t>(i));
    EXPECT_EQ(file.FindOutside(40001), 67);
  }
}

TEST(TokenFileTest, UnusableFilesAreRefused) {
  const auto open = [](const std::string& path) {
    return TokenFile::Open(path, v1::DataConfig::PRETOKENIZED);
  };
  EXPECT_THAT(open("/no/such.bin"), IsNotFound("/no/such.bin"));
  EXPECT_THAT(open(testing::TempDir()), IsInvalidArgument());
  EXPECT_THAT(open(WriteTestFile("empty.bin", "")),
              IsInvalidArgument("empty.bin", "is empty"));
  EXPECT_THAT(open(WriteTestFile("odd.bin", "abc")),
              IsInvalidArgument("3 bytes", "uint16"));
  EXPECT_THAT(open(WriteTestFile("none.bin", LlmcHeader(20240520, 1, 0))),
              IsInvalidArgument("holds no tokens"));
  EXPECT_THAT(
      open(WriteTestFile("short.bin", LlmcHeader(20240520, 1, 9) + "ab")),
      IsDataLoss("9 tokens"));
}

TEST(TokenFileTest, TextIsNotReadAsIds) {
  // The part that is examined, 64 KiB, ends within a character.
  std::string prose = "Stories:";
  while (prose.size() < 70'000) prose += "\tCaf\u00e9 \u4e16\u754c.\r\n";
  for (const auto tokenizer :
       {v1::DataConfig::PRETOKENIZED, v1::DataConfig::SENTENCEPIECE}) {
    EXPECT_THAT(TokenFile::Open(WriteTestFile("a.txt", prose), tokenizer),
                IsInvalidArgument("this is text", "`causeway prepare`"));
  }
}

TEST(TokenFileTest, PreparedFilesMustMatchTheTokenizer) {
  const std::string path = WriteTestFile(
      "a.bin", PreparedFile({1, 2, 3}, v1::DataConfig::SENTENCEPIECE, 500));
  ASSERT_OK_AND_ASSIGN(const TokenFile file,
                       TokenFile::Open(path, v1::DataConfig::SENTENCEPIECE));
  EXPECT_EQ(file.vocabulary(), 500);
  EXPECT_OK(TokenFile::Open(path, v1::DataConfig::PRETOKENIZED));
  EXPECT_THAT(TokenFile::Open(path, v1::DataConfig::BYTES),
              IsInvalidArgument("SENTENCEPIECE", "is BYTES"));
}

TEST(TokenFileTest, DamagedPreparedTokensAreDataLoss) {
  std::string content =
      PreparedFile({1, 2, 3}, v1::DataConfig::SENTENCEPIECE, 500);
  content[1024 + 2] ^= 1;
  EXPECT_THAT(TokenFile::Open(WriteTestFile("flipped.bin", content),
                              v1::DataConfig::SENTENCEPIECE),
              IsDataLoss("digest"));
  EXPECT_THAT(
      TokenFile::Open(
          WriteTestFile(
              "large.bin",
              PreparedFile({1, 500}, v1::DataConfig::SENTENCEPIECE, 500)),
          v1::DataConfig::SENTENCEPIECE),
      IsDataLoss("id is 500"));
}

}  // namespace
}  // namespace causeway
