// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/prepare.h"

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/corpus.h"
#include "worker/data/sentencepiece_tokenizer.h"
#include "worker/data/testing/files.h"
#include "worker/data/testing/sentencepiece_model.h"
#include "worker/data/token_file.h"
#include "worker/data/tokenizer.h"

namespace causeway {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

template <typename Source>
std::vector<int32_t> Tokens(const Source& source) {
  std::vector<int32_t> tokens(source.size());
  source.Copy(0, absl::MakeSpan(tokens));
  return tokens;
}

class PrepareTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(
        testing::TempDir(), "/",
        testing::UnitTest::GetInstance()->current_test_info()->name());
    ASSERT_OK(CreateDirectory(directory_));
    options_.out = directory_ + "/out.bin";
    // Every reading of the clock advances it by a quarter of a second.
    options_.progress.now = [this] { return now_ += absl::Milliseconds(250); };
  }

  std::string Text(const std::string& name, absl::string_view content) {
    const std::string path = directory_ + "/" + name;
    EXPECT_OK(WriteFileAtomically(path, {content}));
    return path;
  }

  bool OutExists() { return ReadFile(options_.out).ok(); }

  std::string directory_;
  absl::Time now_ = absl::UnixEpoch();
  PrepareOptions options_;
  std::ostringstream progress_;
};

TEST_F(PrepareTest, BytesAreTheTokensOfTheTextsThemselves) {
  options_.texts = {Text("a.txt", "one\n"), Text("b.txt", "\xff two")};
  ASSERT_OK(RunPrepare(options_, progress_));
  ASSERT_OK_AND_ASSIGN(const Corpus texts,
                       Corpus::Open(v1::DataConfig::BYTES, options_.texts));
  ASSERT_OK_AND_ASSIGN(const Corpus prepared,
                       Corpus::Open(v1::DataConfig::BYTES, {options_.out}));
  std::vector<int32_t> expected = Tokens(texts);
  expected.push_back(kEndOfText);
  EXPECT_EQ(Tokens(prepared), expected);
  EXPECT_EQ(prepared.vocabulary(), 258);
  EXPECT_THAT(*ListDirectory(directory_),
              ElementsAre("a.txt", "b.txt", "out.bin"));
}

TEST_F(PrepareTest, SentencePieceTokensDecodeToTheText) {
  // This text is longer than one piece.
  std::string long_text;
  while (long_text.size() < kPieceBytes + 1000) {
    long_text += "the coordinator sends\tthe update \xe2\x82\xac.\n";
  }
  options_.texts = {Text("a.txt", "the island sends"),
                    Text("b.txt", long_text)};
  options_.sentencepiece_model = TrainTestModel();
  options_.sentencepiece_tool = TestSentencePieceTool();
  ASSERT_OK(RunPrepare(options_, progress_));
  ASSERT_OK_AND_ASSIGN(
      const TokenFile file,
      TokenFile::Open(options_.out, v1::DataConfig::SENTENCEPIECE));
  EXPECT_EQ(file.vocabulary(), kTestModelVocabulary);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer,
                       LoadSentencePiece(options_.sentencepiece_model,
                                         options_.sentencepiece_tool));
  EXPECT_EQ(file.prepared()->tokenizer_digest, tokenizer->digest());
  const std::vector<int32_t> tokens = Tokens(file);
  EXPECT_LT(tokens.size(), long_text.size());
  // An end-of-text token ends every document.
  const int32_t end = *tokenizer->end_of_text();
  const auto first_end = std::find(tokens.begin(), tokens.end(), end);
  EXPECT_THAT(
      tokenizer->Decode(std::vector<int32_t>(tokens.begin(), first_end)),
      IsOkAndHolds("the island sends"));
  EXPECT_EQ(tokens.back(), end);
  ASSERT_OK_AND_ASSIGN(
      std::string decoded,
      tokenizer->Decode(std::vector<int32_t>(first_end + 1, tokens.end() - 1)));
  // The model puts a space before each piece, and the second begins a line.
  const size_t space = decoded.find("\n ");
  ASSERT_NE(space, std::string::npos);
  decoded.erase(space + 1, 1);
  EXPECT_EQ(decoded, long_text);
}

TEST_F(PrepareTest, RefusesToOverwriteUnlessForced) {
  options_.texts = {Text("a.txt", "text")};
  Text("out.bin", "precious");
  EXPECT_THAT(RunPrepare(options_, progress_), IsAlreadyExists("--force"));
  EXPECT_THAT(ReadFile(options_.out), IsOkAndHolds("precious"));
  options_.force = true;
  EXPECT_OK(RunPrepare(options_, progress_));
  EXPECT_OK(TokenFile::Open(options_.out, v1::DataConfig::BYTES));
}

TEST_F(PrepareTest, UnusableTextsAreRefusedBeforeAnythingIsWritten) {
  const std::string good = Text("good.txt", "text");
  options_.texts = {good, directory_ + "/missing.txt"};
  EXPECT_THAT(RunPrepare(options_, progress_), IsNotFound("missing.txt"));
  options_.texts = {good, Text("empty.txt", "")};
  EXPECT_THAT(RunPrepare(options_, progress_),
              IsInvalidArgument("empty.txt: the file is empty"));
  options_.texts = {good, Text("ids.bin", LlmcHeader(20240520, 1, 0))};
  EXPECT_THAT(RunPrepare(options_, progress_),
              IsInvalidArgument("ids.bin: a token file"));
  options_.texts = {};
  EXPECT_THAT(RunPrepare(options_, progress_), IsInvalidArgument());
  EXPECT_FALSE(OutExists());
  options_.texts = {good};
  options_.out = good;
  options_.force = true;
  EXPECT_THAT(RunPrepare(options_, progress_), IsInvalidArgument("is both"));
  EXPECT_THAT(ReadFile(good), IsOkAndHolds("text"));
}

// A limit on the size of files stands in for a full disk.
TEST_F(PrepareTest, FullDiskIsAnErrorAndLeavesNothingBehind) {
  options_.texts = {Text("a.txt", std::string(100000, 'x'))};
  rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const absl::Cleanup restore = [&] { setrlimit(RLIMIT_FSIZE, &old_limit); };
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {.rlim_cur = 50000, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_THAT(RunPrepare(options_, progress_), IsResourceExhausted("out.bin"));
  EXPECT_THAT(*ListDirectory(directory_), ElementsAre("a.txt"));
}

TEST_F(PrepareTest, ShowsHowFarItHasCome) {
  options_.texts = {Text("a.txt", std::string(4 * kPieceBytes, 'x'))};
  options_.progress.terminal = true;
  ASSERT_OK(RunPrepare(options_, progress_));
  const std::vector<std::string> drawn =
      absl::StrSplit(progress_.str(), "\r\x1b[K", absl::SkipEmpty());
  ASSERT_EQ(drawn.size(), 5u);
  EXPECT_THAT(drawn[0], StartsWith("64.0 KiB of 256 KiB (25 %), 256 KiB/s"));
  EXPECT_THAT(drawn[4], AllOf(HasSubstr("out.bin: 262145 tokens"),
                              HasSubstr("1.00 bytes per token")));
  EXPECT_EQ(progress_.str().find('\n'), progress_.str().size() - 1);
}

TEST(FirstPieceTest, EndsWithALineOrAWholeCharacter) {
  EXPECT_EQ(FirstPiece("", 4), "");
  EXPECT_EQ(FirstPiece("abcd", 4), "abcd");
  EXPECT_EQ(FirstPiece("a\nb\ncde", 5), "a\nb\n");
  EXPECT_EQ(FirstPiece("abcdef", 4), "abcd");
  // The euro sign takes three bytes.
  EXPECT_EQ(FirstPiece("ab\xe2\x82\xac", 4), "ab");
  EXPECT_EQ(FirstPiece("ab\xe2\x82\xac.", 5), "ab\xe2\x82\xac");
  // Text that is not UTF-8 still gives a piece.
  EXPECT_FALSE(FirstPiece("\x80\x80\x80\x80\x80\x80", 2).empty());
}

TEST(FirstPieceTest, KeepsACharacterOfFourBytesWhole) {
  EXPECT_EQ(FirstPiece("a\xf0\x9f\x98\x80", 4), "a");
  EXPECT_EQ(FirstPiece("a\xf0\x9f\x98\x80.", 5), "a\xf0\x9f\x98\x80");
}

}  // namespace
}  // namespace causeway
