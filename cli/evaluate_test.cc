// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/testing/state.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/storage/state_directory.h"
#include "worker/data/dataset.h"
#include "worker/data/testing/files.h"

namespace causeway {
namespace {

using testing::HasSubstr;

// Returns text in which every byte differs from its neighbours.
std::string TestText(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * i % 251);
  return text;
}

class EvaluateTest : public testing::Test {
 protected:
  EvaluateTest() : text_(WriteTestFile("text", TestText(20000))) {
    absl::StatusOr<v1::RunConfig> config = ParseRunConfig(kTestConfig, "test");
    EXPECT_OK(config);
    model_.run_id = "test-1";
    model_.config = *std::move(config);
    model_.layout = MakeModelLayout(model_.config.model());
    model_.versions = {3, 3};
  }

  const std::string text_;
  TrainedModel model_;
};

TEST_F(EvaluateTest, LongSequencesMakeSmallBatches) {
  EXPECT_EQ(EvaluationBatch(2), 8);
  EXPECT_EQ(EvaluationBatch(2048), 8);
  EXPECT_EQ(EvaluationBatch(4096), 4);
  EXPECT_EQ(EvaluationBatch(131072), 1);
}

TEST_F(EvaluateTest, ReportsAsTextAndJson) {
  const Evaluation evaluation{
      .loss = 1.5 * std::numbers::ln2, .sequences = 20, .tokens = 160};
  std::ostringstream out;
  PrintEvaluation(model_, evaluation, out);
  EXPECT_EQ(out.str(),
            "run test-1 at version 3\n"
            "validation     20 sequences, 160 tokens\n"
            "loss           1.0397 nats per token\n"
            "perplexity     2.828\n"
            "bits per byte  1.5000\n");
  const nlohmann::json json =
      nlohmann::json::parse(EvaluationJson(model_, evaluation));
  EXPECT_EQ(json["run_id"], "test-1");
  EXPECT_EQ(json["versions"], nlohmann::json({3, 3}));
  EXPECT_EQ(json["tokens"], 160);
  EXPECT_DOUBLE_EQ(json["loss"], 1.5 * std::numbers::ln2);
  EXPECT_DOUBLE_EQ(json["perplexity"], std::exp2(1.5));
  EXPECT_DOUBLE_EQ(json["bits_per_byte"], 1.5);

  // Other tokens have an unknown number of bytes.
  model_.config.mutable_data()->set_tokenizer(v1::DataConfig::PRETOKENIZED);
  std::ostringstream tokens_out;
  PrintEvaluation(model_, evaluation, tokens_out);
  EXPECT_THAT(tokens_out.str(), Not(HasSubstr("bits per byte")));
  EXPECT_TRUE(
      nlohmann::json::parse(EvaluationJson(model_, evaluation))["bits_per_byte"]
          .is_null());
}

class EvaluateCommandTest : public EvaluateTest {
 protected:
  int Run(std::vector<std::string> words) {
    words.insert(words.begin(), "evaluate");
    out_.str("");
    err_.str("");
    return RunCommandLine("causeway", "", {EvaluateCommand(environment_)},
                          words, out_, err_);
  }

  std::string WriteState(absl::Span<const float> parameters) {
    const std::string directory = absl::StrCat(
        testing::TempDir(), "/",
        testing::UnitTest::GetInstance()->current_test_info()->name());
    EXPECT_OK(WriteTestState(directory, model_.config, parameters));
    return directory;
  }

  EvaluateEnvironment environment_{
      .progress = {.now = [] { return absl::UnixEpoch(); }}};
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(EvaluateCommandTest, AModelOfZerosGuesses) {
  // All logits are zero, so every token costs the logarithm of the vocabulary,
  // in any batch.
  const std::string state =
      WriteState(std::vector<float>(static_cast<size_t>(model_.layout.size)));
  EXPECT_EQ(Run({state, "--text", text_, "--json", "--max_sequences", "19"}),
            kExitOk)
      << err_.str();
  const nlohmann::json json = nlohmann::json::parse(out_.str());
  EXPECT_NEAR(json["loss"], std::log(258), 1e-5);
  EXPECT_EQ(json["sequences"], 19);
  EXPECT_EQ(json["versions"], nlohmann::json({0, 1}));
  EXPECT_EQ(Run({state, "--text", text_, "--max_sequences",
                 absl::StrCat(std::numeric_limits<uint64_t>::max())}),
            kExitOk)
      << err_.str();
}

TEST_F(EvaluateCommandTest, ThreadsDoNotChangeWhatIsMeasured) {
  const std::string state = WriteState(InitialParameters(model_.layout, 5));
  double losses[2];
  for (const int threads : {1, 2}) {
    EXPECT_EQ(Run({state, "--text", text_, "--json",
                   absl::StrCat("--threads=", threads)}),
              kExitOk)
        << err_.str();
    losses[threads - 1] = nlohmann::json::parse(out_.str())["loss"];
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-6);
}

TEST_F(EvaluateCommandTest, RanksDoNotChangeWhatIsMeasured) {
  const std::string state = WriteState(InitialParameters(model_.layout, 5));
  double losses[2];
  for (const int ranks : {1, 3}) {
    EXPECT_EQ(Run({state, "--text", text_, "--json", "--device=cpu",
                   absl::StrCat("--ranks=", ranks)}),
              kExitOk)
        << err_.str();
    losses[ranks / 2] = nlohmann::json::parse(out_.str())["loss"];
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-9);
}

TEST_F(EvaluateCommandTest, WarnsThatTheDataAreNotThoseOfTheRun) {
  const std::string more = WriteTestFile("more", TestText(3000) + "x");
  const std::string state = WriteState(InitialParameters(model_.layout, 5));
  ASSERT_EQ(Run({state, "--text", text_}), kExitOk);
  EXPECT_EQ(err_.str(), "") << "nobody has told which data the run has";
  ASSERT_OK_AND_ASSIGN(const Dataset dataset,
                       OpenDataset(model_.config, {text_, more}));
  {
    ASSERT_OK_AND_ASSIGN(const auto directory, StateDirectory::Open(state, {}));
    LogBatch batch;
    batch.flags.emplace().data_digest = dataset.Digest();
    ASSERT_OK(directory->log().Apply(batch));
  }
  ASSERT_EQ(Run({state, "--text", text_, more}), kExitOk);
  EXPECT_EQ(err_.str(), "");
  ASSERT_EQ(Run({state, "--text", more, text_}), kExitOk);
  EXPECT_THAT(err_.str(), HasSubstr("warning: these are not the run's data"));
}

TEST_F(EvaluateCommandTest, SaysWhatIsWrong) {
  std::vector<float> parameters = InitialParameters(model_.layout, 5);
  // Breaks the final norm's gain, on which every logit depends.
  const TensorSpec& norm =
      model_.layout.tensors[model_.layout.tensors.size() - 2];
  ASSERT_EQ(norm.name, "model.norm.weight");
  parameters[norm.offset] = std::nanf("");
  const std::string state = WriteState(parameters);
  EXPECT_EQ(Run({state, "--text", text_}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("training has diverged"));
  EXPECT_EQ(Run({state + "x"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("--data or --text is missing"));
  EXPECT_EQ(Run({state, "--text", text_, "--threads", "1025"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("--threads: allowed: 0 to 1024"));
  // Files are opened before the model is loaded.
  EXPECT_EQ(Run({state + "x", "--text", text_ + ".none"}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr(text_ + ".none"));
  EXPECT_EQ(Run({state, "--text", text_, "--ranks", "1025"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("ranks is 1025"));
  EXPECT_EQ(Run({state, "--text", text_, "--device", "tpu"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("tpu"));
  EXPECT_EQ(Run({state + "x", "--text", text_}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr(state + "x"));
}

// 19 sequences make batches of 8, 8 and 3. Each reading of the clock advances
// it by half a second.
TEST_F(EvaluateCommandTest, ATerminalShowsTheTimeLeft) {
  const std::string state =
      WriteState(std::vector<float>(static_cast<size_t>(model_.layout.size)));
  const std::vector<std::string> words = {state, "--text", text_,
                                          "--max_sequences", "19"};
  absl::Time now = absl::UnixEpoch();
  environment_.progress.terminal = true;
  EXPECT_EQ(Run(words), kExitOk);
  EXPECT_EQ(err_.str(), "") << "nothing was drawn, and nothing is erased";
  environment_.progress.now = [&] { return now += absl::Milliseconds(500); };
  EXPECT_EQ(Run(words), kExitOk);
  EXPECT_EQ(err_.str(),
            "\r\x1b[K8 of 19 sequences (42 %), 16/s, 0.69 s left"
            "\r\x1b[K16 of 19 sequences (84 %), 16/s, 0.19 s left"
            "\r\x1b[K19 of 19 sequences (100 %), 13/s, 0 s left"
            "\r\x1b[K");
  environment_.progress.terminal = false;
  EXPECT_EQ(Run(words), kExitOk);
  EXPECT_EQ(err_.str(), "");
  EXPECT_EQ(Run({state, "--text", text_, "--threads", "0"}), kExitOk);
  // By default, the number of threads is the machine's.
  environment_.threads = 1025;
  EXPECT_EQ(Run(words), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("threads is 1025"));
  EXPECT_EQ(Run({state, "--text", text_, "--threads", "0"}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("threads is 1025"));
}

TEST_F(EvaluateCommandTest, ARunWithoutValidationDataSaysSo) {
  model_.config.mutable_data()->set_validation_fraction(0);
  const std::string state = WriteState(InitialParameters(model_.layout, 5));
  EXPECT_EQ(Run({state, "--text", text_}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("holds no data out"));
}

}  // namespace
}  // namespace causeway
