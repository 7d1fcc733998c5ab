// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/data/sentencepiece_tokenizer.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/checksum.h"
#include "common/os/file.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing/files.h"
#include "worker/data/testing/sentencepiece_model.h"

namespace causeway {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SentencePieceTokenizerTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(tokenizer_,
                         LoadSentencePiece(path_, TestSentencePieceTool()));
  }

  const std::string path_ = TrainTestModel();
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(SentencePieceTokenizerTest, TextRoundTripsInFewerTokensThanBytes) {
  EXPECT_EQ(tokenizer_->vocabulary(), kTestModelVocabulary);
  EXPECT_EQ(tokenizer_->kind(), v1::DataConfig::SENTENCEPIECE);
  ASSERT_OK_AND_ASSIGN(const std::string model, ReadFile(path_));
  EXPECT_EQ(tokenizer_->digest(), Digest128(model));
  const std::string text =
      "the island sends\n  two updates\t\xc3\xa9\xe2\x82\xac\n";
  std::vector<int32_t> ids;
  ASSERT_OK(tokenizer_->Encode(text, ids));
  EXPECT_LT(ids.size(), text.size());
  EXPECT_THAT(tokenizer_->Decode(ids), IsOkAndHolds(text));
}

TEST_F(SentencePieceTokenizerTest, LongTextsRoundTrip) {
  std::string text;
  // This is more than the sockets' buffers hold.
  while (text.size() < 1 << 19) text += "the coordinator sends the update.\n";
  std::vector<int32_t> ids;
  ASSERT_OK(tokenizer_->Encode(text, ids));
  EXPECT_THAT(tokenizer_->Decode(ids), IsOkAndHolds(text));
}

TEST_F(SentencePieceTokenizerTest, EmptyTextHasNoTokens) {
  std::vector<int32_t> ids;
  ASSERT_OK(tokenizer_->Encode("", ids));
  EXPECT_TRUE(ids.empty());
  EXPECT_THAT(tokenizer_->Decode({}), IsOkAndHolds(""));
}

TEST_F(SentencePieceTokenizerTest, EndOfTextIsTheModelsAndHasNoText) {
  ASSERT_TRUE(tokenizer_->end_of_text().has_value());
  EXPECT_THAT(tokenizer_->Decode({*tokenizer_->end_of_text()}),
              IsOkAndHolds(""));
  EXPECT_THAT(tokenizer_->Decode({kTestModelVocabulary}), IsInvalidArgument());
}

TEST(SentencePieceFilesTest, EndOfTextIsTheEndMarkerOrElseTheBeginMarker) {
  const auto end_of_text = [](const char* flags) {
    const auto tokenizer = LoadSentencePiece(TrainModel("markers", flags),
                                             TestSentencePieceTool());
    EXPECT_OK(tokenizer);
    return (*tokenizer)->end_of_text();
  };
  EXPECT_EQ(end_of_text("--eos_id=0 --bos_id=1 --unk_id=2"), 0);
  EXPECT_EQ(end_of_text("--eos_id=-1 --bos_id=0 --unk_id=1"), 0);
  EXPECT_EQ(end_of_text("--eos_id=-1 --bos_id=-1"), std::nullopt);
}

TEST_F(SentencePieceTokenizerTest, ThreadsShareOneTokenizer) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string text = std::string("island number ") + char('0' + t);
      for (int i = 0; i < 50; ++i) {
        std::vector<int32_t> ids;
        EXPECT_OK(tokenizer_->Encode(text, ids));
        EXPECT_THAT(tokenizer_->Decode(ids), IsOkAndHolds(text));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SentencePieceFilesTest, OtherFilesAreRefused) {
  EXPECT_THAT(LoadSentencePiece("/no/such.model", TestSentencePieceTool()),
              IsNotFound());
  ASSERT_OK_AND_ASSIGN(const std::string model, ReadFile(TrainTestModel()));
  for (const std::string& content :
       {std::string(), std::string("not a model"), model.substr(0, 99)}) {
    EXPECT_THAT(LoadSentencePiece(WriteTestFile("bad.model", content),
                                  TestSentencePieceTool()),
                IsInvalidArgument("bad.model", "not a SentencePiece model"));
  }
}

TEST(SentencePieceFilesTest, MissingOrDyingToolIsAnError) {
  const std::string model = TrainTestModel();
  EXPECT_THAT(LoadSentencePiece(model, "/no/such/tool"),
              IsNotFound("/no/such/tool"));
  EXPECT_THAT(LoadSentencePiece(model, "/bin/true"), IsInternal("ended"));
}

TEST(SentencePieceFilesTest, DefaultToolLiesBesideTheProgram) {
  EXPECT_THAT(DefaultSentencePieceTool(),
              testing::EndsWith("/causeway-sentencepiece"));
  EXPECT_EQ(DefaultSentencePieceTool()[0], '/');
}

}  // namespace
}  // namespace causeway
