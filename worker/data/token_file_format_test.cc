// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/token_file_format.h"

#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/files.h"

namespace causeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TokenFileHeader PreparedHeader() {
  return {.tokens = 12,
          .token_bytes = 2,
          .prepared = PreparedInfo{.vocabulary = 300,
                                   .tokenizer = v1::DataConfig::SENTENCEPIECE,
                                   .tokenizer_digest = "0123456789abcdef",
                                   .tokens_digest = "fedcba9876543210"}};
}

TEST(TokenFileFormatTest, ReadsBothHeadersOfLlmc) {
  ASSERT_OK_AND_ASSIGN(
      const TokenFileHeader narrow,
      ParseTokenFileHeader(LlmcHeader(20240520, 1, 5), 1024 + 10, "a.bin"));
  EXPECT_EQ(narrow.tokens, 5);
  EXPECT_EQ(narrow.token_bytes, 2);
  EXPECT_FALSE(narrow.prepared.has_value());
  ASSERT_OK_AND_ASSIGN(
      const TokenFileHeader wide,
      ParseTokenFileHeader(LlmcHeader(20240801, 7, 5), 1024 + 20, "a.bin"));
  EXPECT_EQ(wide.token_bytes, 4);
}

TEST(TokenFileFormatTest, PreparedHeaderRoundTripsAndIsAnLlmcHeader) {
  const TokenFileHeader header = PreparedHeader();
  const std::string bytes = SerializeTokenFileHeader(header);
  EXPECT_EQ(bytes.substr(0, 12), LlmcHeader(20240520, 1, 12).substr(0, 12));
  EXPECT_EQ(bytes.substr(12, 4), "CSWY");
  ASSERT_OK_AND_ASSIGN(const TokenFileHeader parsed,
                       ParseTokenFileHeader(bytes, 1024 + 24, "a.bin"));
  EXPECT_EQ(parsed.tokens, 12);
  EXPECT_EQ(parsed.token_bytes, 2);
  ASSERT_TRUE(parsed.prepared.has_value());
  EXPECT_EQ(parsed.prepared->vocabulary, 300);
  EXPECT_EQ(parsed.prepared->tokenizer, v1::DataConfig::SENTENCEPIECE);
  EXPECT_EQ(parsed.prepared->tokenizer_digest, "0123456789abcdef");
  EXPECT_EQ(parsed.prepared->tokens_digest, "fedcba9876543210");
  EXPECT_EQ(SerializeTokenFileHeader(parsed), bytes);
}

TEST(TokenFileFormatTest, TextAndUsualIdsHaveNoHeader) {
  EXPECT_FALSE(HasTokenFileHeader(""));
  EXPECT_FALSE(HasTokenFileHeader("abc"));
  EXPECT_FALSE(HasTokenFileHeader("a document"));
  // No pair of GPT-2 ids makes a magic number.
  for (const uint32_t magic : {20240520u, 20240801u}) {
    EXPECT_GE(magic & 0xffff, 50257u);
  }
}

TEST(TokenFileFormatTest, TruncatedFilesAreDataLoss) {
  const std::string header = LlmcHeader(20240520, 1, 5);
  EXPECT_THAT(ParseTokenFileHeader(header, 1024 + 9, "a.bin"),
              IsDataLoss("a.bin", "5 tokens", "1033", "1034"));
  EXPECT_THAT(ParseTokenFileHeader(header, 1024 + 11, "a.bin"), IsDataLoss());
  EXPECT_THAT(ParseTokenFileHeader(header.substr(0, 1023), 1023, "a.bin"),
              IsDataLoss("1023"));
  EXPECT_THAT(ParseTokenFileHeader(LlmcHeader(20240520, 1, -1), 1022, "a.bin"),
              IsDataLoss());
}

TEST(TokenFileFormatTest, UnknownVersionsAreRefusedWithTheKnownOne) {
  EXPECT_THAT(ParseTokenFileHeader(LlmcHeader(20240520, 2, 5), 1034, "a.bin"),
              IsInvalidArgument("version 2", "20240520: 1"));
  std::string bytes = SerializeTokenFileHeader(PreparedHeader());
  bytes[16] = 9;
  EXPECT_THAT(ParseTokenFileHeader(bytes, 1048, "a.bin"),
              IsInvalidArgument("header version 9"));
}

TEST(TokenFileFormatTest, DamagedPreparedWordsAreDataLoss) {
  std::string no_vocabulary = SerializeTokenFileHeader(PreparedHeader());
  std::memset(no_vocabulary.data() + 20, 0, 4);
  EXPECT_THAT(ParseTokenFileHeader(no_vocabulary, 1048, "a.bin"),
              IsDataLoss("vocabulary 0"));
  std::string no_tokenizer = SerializeTokenFileHeader(PreparedHeader());
  no_tokenizer[24] = 77;
  EXPECT_THAT(ParseTokenFileHeader(no_tokenizer, 1048, "a.bin"),
              IsDataLoss("tokenizer 77"));
}

// Damaged headers of every length are either refused or fit the file; nothing
// crashes or reads past the end. (AddressSanitizer needs the string at its
// exact size on the heap.)
TEST(TokenFileFormatTest, RandomDamageNeverCrashes) {
  std::mt19937_64 random(20261121);
  int accepted = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string bytes = SerializeTokenFileHeader(PreparedHeader());
    if (round % 4 == 0) bytes = LlmcHeader(20240801, 7, 12);
    const int flips = static_cast<int>(random() % 4);
    for (int i = 0; i < flips; ++i) {
      // Most damage hits words with a meaning.
      bytes[random() % (random() % 8 == 0 ? 1024 : 64)] =
          static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % 1025);
    bytes.shrink_to_fit();
    if (!HasTokenFileHeader(bytes)) continue;
    const int64_t file_bytes = random() % 2 == 0 ? 1048 : 1072;
    const absl::StatusOr<TokenFileHeader> header =
        ParseTokenFileHeader(bytes, file_bytes, "a.bin");
    if (!header.ok()) continue;
    ++accepted;
    ASSERT_EQ(header->tokens * header->token_bytes + 1024, file_bytes);
    if (header->prepared.has_value()) {
      ASSERT_GE(header->prepared->vocabulary, 1);
      ASSERT_EQ(header->prepared->tokens_digest.size(), 16u);
    }
  }
  EXPECT_GT(accepted, 10000);
}

}  // namespace
}  // namespace causeway
