// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/token_file_writer.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/token_file.h"

namespace causeway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A tokenizer that has only a vocabulary.
class FakeTokenizer : public Tokenizer {
 public:
  explicit FakeTokenizer(int64_t vocabulary) : vocabulary_(vocabulary) {}
  v1::DataConfig::Tokenizer kind() const override {
    return v1::DataConfig::SENTENCEPIECE;
  }
  int64_t vocabulary() const override { return vocabulary_; }
  std::optional<int32_t> end_of_text() const override { return std::nullopt; }
  const std::string& digest() const override { return digest_; }
  absl::Status Encode(absl::string_view, std::vector<int32_t>&) const override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t>) const override {
    return "";
  }

 private:
  int64_t vocabulary_;
  std::string digest_ = "0123456789abcdef";
};

class TokenFileWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = absl::StrCat(
        testing::TempDir(), "/",
        testing::UnitTest::GetInstance()->current_test_info()->name());
    ASSERT_OK(CreateDirectory(directory_));
    path_ = directory_ + "/out.bin";
  }

  std::vector<std::string> Files() { return *ListDirectory(directory_); }

  std::string directory_;
  std::string path_;
};

TEST_F(TokenFileWriterTest, WrittenFilesCanBeReadInBothWidths) {
  for (const int64_t vocabulary : {65536, 65537}) {
    ASSERT_OK_AND_ASSIGN(
        TokenFileWriter writer,
        TokenFileWriter::Create(path_, FakeTokenizer(vocabulary)));
    const int32_t last = static_cast<int32_t>(vocabulary - 1);
    ASSERT_OK(writer.Append({0, last}));
    ASSERT_OK(writer.Append({}));
    ASSERT_OK(writer.Append({258}));
    EXPECT_EQ(writer.tokens(), 3);
    ASSERT_OK(writer.Commit());
    EXPECT_THAT(Files(), ElementsAre("out.bin"));
    ASSERT_OK_AND_ASSIGN(const TokenFile file,
                         TokenFile::Open(path_, v1::DataConfig::SENTENCEPIECE));
    std::vector<int32_t> tokens(3);
    file.Copy(0, absl::MakeSpan(tokens));
    EXPECT_THAT(tokens, ElementsAre(0, last, 258));
    EXPECT_EQ(file.token_bytes(), vocabulary == 65536 ? 2 : 4);
    EXPECT_EQ(file.vocabulary(), vocabulary);
    EXPECT_EQ(file.prepared()->tokenizer_digest, "0123456789abcdef");
  }
}

TEST_F(TokenFileWriterTest, WithoutCommitTheOldFileStays) {
  ASSERT_OK(WriteFileAtomically(path_, {"old"}));
  {
    ASSERT_OK_AND_ASSIGN(TokenFileWriter writer,
                         TokenFileWriter::Create(path_, FakeTokenizer(9)));
    ASSERT_OK(writer.Append({1, 2}));
  }
  EXPECT_THAT(Files(), ElementsAre("out.bin"));
  EXPECT_THAT(ReadFile(path_), IsOkAndHolds("old"));
}

TEST_F(TokenFileWriterTest, NoTokensAreRefused) {
  {
    ASSERT_OK_AND_ASSIGN(TokenFileWriter writer,
                         TokenFileWriter::Create(path_, FakeTokenizer(9)));
    EXPECT_THAT(writer.Commit(), IsInvalidArgument("no tokens"));
  }
  EXPECT_THAT(Files(), ElementsAre());
}

TEST_F(TokenFileWriterTest, MissingDirectoryIsNotFound) {
  EXPECT_THAT(TokenFileWriter::Create("/no/such/out.bin", FakeTokenizer(9)),
              IsNotFound("/no/such"));
}

}  // namespace
}  // namespace causeway
