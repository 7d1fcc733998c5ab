// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/sample.h"

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/testing/state.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/sentencepiece_tokenizer.h"
#include "worker/data/testing/sentencepiece_model.h"

namespace causeway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(DrawTokenTest, FollowsTheSoftmax) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 2.0f};
  const double temperature = 2;
  std::vector<double> want;
  double sum = 0;
  for (const float logit : logits) {
    want.push_back(std::exp(logit / temperature));
    sum += want.back();
  }
  std::vector<int> counts(4);
  std::mt19937_64 random(7);
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    ++counts[DrawToken(logits, temperature, 0, random)];
  }
  for (int id = 0; id < 4; ++id) {
    const double p = want[id] / sum;
    // The bound is five standard errors.
    EXPECT_NEAR(counts[id] / double{kDraws}, p,
                5 * std::sqrt(p * (1 - p) / kDraws))
        << id;
  }
}

TEST(DrawTokenTest, TopKLeavesOutTheRest) {
  const std::vector<float> logits = {3.0f, 1.0f, 3.0f, 2.0f, 2.0f};
  std::mt19937_64 random(7);
  std::vector<int> counts(5);
  for (int i = 0; i < 1000; ++i) ++counts[DrawToken(logits, 1, 3, random)];
  EXPECT_GT(counts[0], 0);
  EXPECT_GT(counts[2], 0);
  // The draw considers the lower id of the two equally likely tokens.
  EXPECT_GT(counts[3], 0);
  EXPECT_EQ(counts[1] + counts[4], 0);
}

TEST(DrawTokenTest, ZeroTemperatureTakesTheMostLikely) {
  std::mt19937_64 random(7);
  EXPECT_EQ(DrawToken({1.0f, 5.0f, 5.0f, -1.0f}, 0, 0, random), 1);
  EXPECT_EQ(DrawToken({1.0f}, 1, 0, random), 0);
  // The logit is so far below the largest that its probability is zero.
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(DrawToken({0.0f, 1e30f}, 1, 0, random), 1);
  }
}

// A model of four tokens in which (t + 1) mod 4 follows t. It remembers the
// prefixes that it was shown.
class CountingModel {
 public:
  absl::Span<const float> operator()(absl::Span<const int32_t> prefix) {
    seen.emplace_back(prefix.begin(), prefix.end());
    logits.assign(4, 0.0f);
    logits[(prefix.back() + 1) % 4] = 100.0f;
    return logits;
  }

  std::vector<std::vector<int32_t>> seen;
  std::vector<float> logits;
};

std::vector<int32_t> Text(CountingModel& model, const SampleOptions& options) {
  std::vector<int32_t> text;
  EXPECT_OK(Continue({2}, 4, options, std::ref(model), [&](int32_t token) {
    text.push_back(token);
    return text.size() < 5;
  }));
  return text;
}

TEST(ContinueTest, ForgetsTheFirstHalfOfAFullSequence) {
  CountingModel model;
  EXPECT_THAT(Text(model, {.tokens = 5}), ElementsAre(3, 0, 1, 2, 3));
  EXPECT_THAT(
      model.seen,
      ElementsAre(ElementsAre(2), ElementsAre(2, 3), ElementsAre(2, 3, 0),
                  ElementsAre(2, 3, 0, 1), ElementsAre(1, 2)));
}

TEST(ContinueTest, BeginsWithTheLastTokensOfALongPrompt) {
  CountingModel model;
  EXPECT_OK(Continue({3, 2, 1, 0, 1, 2}, 4, {.tokens = 2}, std::ref(model),
                     [](int32_t) { return true; }));
  EXPECT_THAT(model.seen,
              ElementsAre(ElementsAre(1, 0, 1, 2), ElementsAre(2, 3)));
}

TEST(ContinueTest, EndsWithTheTextOrWhenTheConsumerStops) {
  CountingModel model;
  EXPECT_THAT(Text(model, {.tokens = 9, .end_of_text = 1}), ElementsAre(3, 0));
  EXPECT_THAT(Text(model, {.tokens = 9}), ElementsAre(3, 0, 1, 2, 3));
  EXPECT_THAT(Text(model, {.tokens = 0}), ElementsAre());
}

TEST(ContinueTest, TheSeedDecides) {
  const auto flat = [](absl::Span<const int32_t>) {
    static const std::vector<float> logits(50, 0.0f);
    return absl::MakeConstSpan(logits);
  };
  const auto text = [&](uint64_t seed) {
    std::vector<int32_t> tokens;
    EXPECT_OK(Continue({0}, 8, {.tokens = 20, .seed = seed}, flat,
                       [&](int32_t token) {
                         tokens.push_back(token);
                         return true;
                       }));
    return tokens;
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

TEST(ContinueTest, ADivergedModelIsAnError) {
  CountingModel model;
  const auto broken = [&](absl::Span<const int32_t> prefix) {
    model(prefix);
    model.logits[0] = std::numeric_limits<float>::quiet_NaN();
    return absl::MakeConstSpan(model.logits);
  };
  EXPECT_THAT(Continue({2}, 3, {}, broken, [](int32_t) { return true; }),
              IsDataLoss());
}

TEST(ContinuedTextTest, KeepsTheSpaceAfterThePrompt) {
  ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Tokenizer> tokenizer,
      LoadSentencePiece(TrainTestModel(), TestSentencePieceTool()));
  std::vector<int32_t> prompt;
  ASSERT_OK(tokenizer->Encode("the license", prompt));
  std::vector<int32_t> whole;
  ASSERT_OK(tokenizer->Encode("the license of the work", whole));
  ASSERT_GT(whole.size(), prompt.size());
  ASSERT_OK_AND_ASSIGN(ContinuedText text,
                       ContinuedText::After(tokenizer.get(), prompt));
  std::string added;
  for (size_t i = prompt.size(); i < whole.size(); ++i) {
    ASSERT_OK_AND_ASSIGN(const std::string more, text.Add(whole[i]));
    added += more;
  }
  EXPECT_EQ(added, " of the work");
}

// The model of tests makes a token of each byte of other characters.
class ByteFallbackTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(
        tokenizer_,
        LoadSentencePiece(TrainTestModel(), TestSentencePieceTool()));
  }

  // Returns the parts of the text that Add returns for the tokens of `text`
  // without the last `left_out`, and then the rest.
  std::vector<std::string> Parts(const std::string& text, size_t left_out) {
    std::vector<int32_t> tokens;
    EXPECT_OK(tokenizer_->Encode(text, tokens));
    absl::StatusOr<ContinuedText> continued =
        ContinuedText::After(tokenizer_.get(), {tokens[0]});
    EXPECT_OK(continued);
    std::vector<std::string> parts;
    for (size_t i = 1; i + left_out < tokens.size(); ++i) {
      parts.push_back(continued->Add(tokens[i]).value());
    }
    parts.push_back(continued->rest());
    return parts;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(ByteFallbackTest, ACharacterIsReturnedOnceItIsComplete) {
  EXPECT_THAT(Parts("the\u20AC5\U0001F600", 0),
              ElementsAre("", "", "\u20AC", "5", "", "", "", "\U0001F600", ""));
}

TEST_F(ByteFallbackTest, BytesOfNoCharacterAreReplaced) {
  EXPECT_THAT(Parts("the\u20AC\U0001F600", 1),
              ElementsAre("", "", "\u20AC", "", "", "", "\uFFFD\uFFFD\uFFFD"));
  // A later byte cannot complete the first ones.
  ASSERT_OK_AND_ASSIGN(ContinuedText text,
                       ContinuedText::After(tokenizer_.get(), {}));
  std::vector<int32_t> euro;
  ASSERT_OK(tokenizer_->Encode("\u20AC", euro));
  std::string added;
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK_AND_ASSIGN(const std::string more, text.Add(euro.back()));
    added += more;
  }
  EXPECT_EQ(added, "\uFFFD\uFFFD");
  EXPECT_EQ(text.rest(), "\uFFFD\uFFFD\uFFFD");
}

class SampleCommandTest : public testing::Test {
 protected:
  SampleCommandTest()
      : state_(testing::TempDir() + "/" +
               testing::UnitTest::GetInstance()->current_test_info()->name()) {
    const absl::StatusOr<v1::RunConfig> config =
        ParseRunConfig(kTestConfig, "test");
    EXPECT_OK(config);
    EXPECT_OK(
        WriteTestState(state_, *config,
                       InitialParameters(MakeModelLayout(config->model()), 5)));
  }

  int Run(std::vector<std::string> words) {
    words.insert(words.begin(), "sample");
    out_.str("");
    err_.str("");
    return RunCommandLine("causeway", "", {SampleCommand(1)}, words, out_,
                          err_);
  }

  const std::string state_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(SampleCommandTest, ContinuesThePromptRepeatably) {
  // The prompt is longer than a sequence of the model.
  const std::string prompt = "What a long time ago";
  EXPECT_EQ(Run({state_, "--prompt", prompt, "--tokens=30"}), kExitOk)
      << err_.str();
  const std::string text = out_.str();
  EXPECT_THAT(text, testing::StartsWith(prompt));
  EXPECT_GT(text.size(), prompt.size() + 1);
  // A token is a byte, or has no text.
  EXPECT_LE(text.size(), prompt.size() + 30 + 1);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(Run({state_, "--prompt", prompt, "--tokens=30"}), kExitOk);
  EXPECT_EQ(out_.str(), text);
  EXPECT_EQ(Run({state_, "--prompt", prompt, "--tokens=30", "--seed=2"}),
            kExitOk);
  EXPECT_NE(out_.str(), text);
}

TEST_F(SampleCommandTest, RefusesTemperaturesThatMeanNothing) {
  for (const char* temperature : {"nan", "inf", "-inf", "-1"}) {
    EXPECT_EQ(Run({state_, absl::StrCat("--temperature=", temperature)}),
              kExitUsage);
    EXPECT_THAT(err_.str(), HasSubstr("--temperature is "));
    EXPECT_EQ(out_.str(), "");
  }
  EXPECT_EQ(Run({state_, "--temperature=0", "--tokens=1"}), kExitOk);
}

TEST_F(SampleCommandTest, FlagsAreCheckedBeforeTheModelIsLoaded) {
  const std::string none = state_ + "-none";
  EXPECT_EQ(Run({none, "--sentencepiece", none + ".model"}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr(none + ".model"));
  EXPECT_EQ(Run({none, "--threads", "1025"}), kExitUsage);
  EXPECT_EQ(Run({state_, "--threads", "0", "--tokens=1"}), kExitOk);
}

TEST_F(SampleCommandTest, WithoutATokenizerTextsAreIds) {
  v1::RunConfig config = ParseRunConfig(kTestConfig, "test").value();
  config.mutable_data()->set_tokenizer(v1::DataConfig::PRETOKENIZED);
  const std::string state = state_ + "-ids";
  ASSERT_OK(WriteTestState(
      state, config, InitialParameters(MakeModelLayout(config.model()), 5)));
  EXPECT_EQ(Run({state, "--prompt", "5 257  9", "--tokens=3"}), kExitOk)
      << err_.str();
  EXPECT_THAT(out_.str(),
              testing::MatchesRegex("5 257  9 [0-9]+ [0-9]+ [0-9]+\n"));
  EXPECT_EQ(Run({state, "--prompt", "5 258"}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("token 1 is 258; allowed: 0 to 257"));
  EXPECT_EQ(Run({state, "--prompt", "5 five"}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("\"five\" is not one"));
}

TEST_F(SampleCommandTest, BeginsWithoutAPrompt) {
  EXPECT_EQ(Run({state_, "--tokens=8"}), kExitOk) << err_.str();
  EXPECT_GT(out_.str().size(), 1);
}

TEST(ContinueTest, TheOptionsDrawTheTokens) {
  const auto flat = [](absl::Span<const int32_t>) {
    static const std::vector<float> logits(50, 0.0f);
    return absl::MakeConstSpan(logits);
  };
  for (const SampleOptions& options :
       {SampleOptions{.tokens = 20, .top_k = 1},
        SampleOptions{.tokens = 20, .temperature = 0}}) {
    std::vector<int32_t> tokens;
    ASSERT_OK(Continue({0}, 8, options, flat, [&](int32_t token) {
      tokens.push_back(token);
      return true;
    }));
    EXPECT_EQ(tokens, std::vector<int32_t>(20, 0));
  }
}

}  // namespace
}  // namespace causeway
