// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/commands.h"
#include "common/checkpoint/tensor_files_writer.h"
#include "common/config/run_config.h"
#include "common/os/file.h"
#include "common/tensors/model_layout.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::HasSubstr;

constexpr char kConfig[] = R"({"model_type": "mistral", "hidden_size": 8,
  "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
  "num_key_value_heads": 1, "vocab_size": 20, "max_position_embeddings": 64,
  "rms_norm_eps": 1e-5, "tie_word_embeddings": false})";

class ImportTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(CreateDirectory(model_));
    Write("config.json", kConfig);
    v1::ModelConfig config;
    config.set_layers(2);
    config.set_hidden_size(8);
    config.set_intermediate_size(12);
    config.set_heads(2);
    config.set_kv_heads(1);
    config.set_vocab_size(20);
    const ModelLayout layout = MakeModelLayout(config);
    const std::vector<float> parameters = InitialParameters(layout, 1);
    std::vector<NamedTensor> tensors;
    for (const TensorSpec& spec : layout.tensors) {
      tensors.push_back({spec.name, spec.shape,
                         absl::MakeConstSpan(parameters)
                             .subspan(static_cast<size_t>(spec.offset),
                                      static_cast<size_t>(spec.size))});
    }
    ASSERT_OK(WriteTensorFiles(model_, tensors, {.dtype = "BF16"}));
  }

  void Write(absl::string_view name, absl::string_view text) {
    ASSERT_OK(WriteFileAtomically(absl::StrCat(model_, "/", name), {text}));
  }
  int Run(std::vector<std::string> more) {
    std::vector<std::string> words = {"import", model_, "--out", out_path_};
    words.insert(words.end(), more.begin(), more.end());
    err_.str("");
    return RunCommandLine("causeway", "", {ImportCommand()}, words, out_, err_);
  }

  TemporaryDirectory directory_ = *TemporaryDirectory::Make("import");
  const std::string model_ = absl::StrCat(directory_.path(), "/Tiny_Model.1");
  const std::string out_path_ =
      absl::StrCat(directory_.path(), "/run.textproto");
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(ImportTest, WritesAConfigurationThatIsValid) {
  ASSERT_EQ(Run({}), kExitOk) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("21 tensors"));
  EXPECT_THAT(out_.str(),
              HasSubstr(absl::StrCat("--initial_parameters ", model_)));
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig config, LoadRunConfig(out_path_));
  EXPECT_EQ(config.name(), "tiny-model-1");
  EXPECT_EQ(config.model().hidden_size(), 8);
  EXPECT_EQ(config.model().sequence_length(), 64);
  EXPECT_EQ(config.data().tokenizer(), v1::DataConfig::PRETOKENIZED);
  EXPECT_EQ(config.training().total_steps(), 1000);
}

TEST_F(ImportTest, FlagsDecide) {
  Write("tokenizer.model", "a SentencePiece model");
  ASSERT_EQ(Run({"--name", "tuning", "--sequence_length", "32", "--total_steps",
                 "50", "--batch_size", "3"}),
            kExitOk)
      << err_.str();
  ASSERT_OK_AND_ASSIGN(const v1::RunConfig config, LoadRunConfig(out_path_));
  EXPECT_EQ(config.name(), "tuning");
  EXPECT_EQ(config.model().sequence_length(), 32);
  EXPECT_EQ(config.data().tokenizer(), v1::DataConfig::SENTENCEPIECE);
  EXPECT_EQ(config.training().total_steps(), 50);
  EXPECT_EQ(config.training().batch_size(), 3);
  EXPECT_EQ(config.synchronization().inner_steps_per_round(), 50);
}

TEST_F(ImportTest, OverwritesOnlyWhenTold) {
  ASSERT_EQ(Run({}), kExitOk);
  EXPECT_EQ(Run({"--name", "other"}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("exists; --force replaces it"));
  EXPECT_EQ(LoadRunConfig(out_path_)->name(), "tiny-model-1");
  EXPECT_EQ(Run({"--name", "other", "--force"}), kExitOk);
  EXPECT_EQ(LoadRunConfig(out_path_)->name(), "other");
}

TEST_F(ImportTest, RefusesWhatDoesNotFitBeforeItWrites) {
  Write("config.json", absl::StrReplaceAll(kConfig, {{"12,", "16,"}}));
  EXPECT_EQ(Run({}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("gate_proj.weight has the shape [12, 8], "
                                    "the model [16, 8]"));
  Write("config.json", absl::StrReplaceAll(kConfig, {{"mistral", "gpt2"}}));
  EXPECT_EQ(Run({}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("\"model_type\" is \"gpt2\""));
  ASSERT_OK(RemoveFile(absl::StrCat(model_, "/config.json")));
  EXPECT_EQ(Run({}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("config.json"));
  EXPECT_THAT(ReadFile(out_path_), IsNotFound());
}

TEST_F(ImportTest, RefusesForeignFilesThatHarm) {
  const std::string config = absl::StrCat(model_, "/config.json");
  const auto refuses = [&](absl::string_view problem) {
    EXPECT_EQ(Run({}), kExitFailure);
    EXPECT_THAT(err_.str(), HasSubstr(std::string(problem)));
    EXPECT_LT(err_.str().size(), 2000);
    for (const char c : err_.str()) EXPECT_TRUE(c == '\n' || c >= ' ');
    EXPECT_THAT(ReadFile(out_path_), IsNotFound());
  };
  Write("config.json",
        absl::StrCat("{\"model_type\": ", std::string(40000, '['),
                     std::string(40000, ']'), "}"));
  refuses("nested deeper");
  Write("config.json",
        absl::StrReplaceAll(kConfig, {{"mistral", "\\u001b[2Jllama"}}));
  refuses("\"model_type\" is \"\\u001b[2Jllama\"");
  ASSERT_OK(RemoveFile(config));
  ASSERT_EQ(mkfifo(config.c_str(), 0600), 0);
  refuses("is not a regular file");
  ASSERT_OK(RemoveFile(config));
  Write("config.json", kConfig);

  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
  Write("tokenizer.model", pointer);
  refuses("tokenizer.model is a pointer of Git LFS");
  ASSERT_OK(RemoveFile(absl::StrCat(model_, "/tokenizer.model")));
  Write("model.safetensors", pointer);
  refuses("run `git lfs pull`");
  // Names are printed on the terminal.
  const std::string name = "\\u001b]0;owned\\u0007";
  const std::string header = absl::StrCat(
      "{\"", name, std::string(100000, 'x'),
      "\": {\"dtype\": \"F31\", \"shape\": [0], \"data_offsets\": [0, 0]}}");
  const uint64_t length = header.size();
  Write("model.safetensors",
        absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&length),
                                       sizeof(length)),
                     header));
  refuses("tensor \"\\x1b]0;owned\\x07xxx");
  Write("model.safetensors.index.json",
        absl::StrCat(std::string(40000, '['), std::string(40000, ']')));
  refuses("model.safetensors.index.json is not an index");
}

}  // namespace
}  // namespace causeway
