// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/export.h"

#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/testing/state.h"
#include "common/file.h"
#include "common/safetensors.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

using testing::HasSubstr;

class ExportTest : public testing::Test {
 protected:
  ExportTest()
      : directory_(absl::StrCat(
            testing::TempDir(), "/",
            testing::UnitTest::GetInstance()->current_test_info()->name())),
        state_(directory_ + "/state"),
        out_path_(directory_ + "/model.safetensors") {
    EXPECT_OK(CreateDirectory(directory_));
    const absl::StatusOr<v1::RunConfig> config =
        ParseRunConfig(kTestConfig, "test");
    EXPECT_OK(config);
    layout_ = MakeModelLayout(config->model());
    parameters_ = InitialParameters(layout_, 3);
    EXPECT_OK(WriteTestState(state_, *config, parameters_));
  }

  int Run(std::vector<std::string> words) {
    words.insert(words.begin(), "export");
    out_.str("");
    err_.str("");
    return RunCommandLine("causeway", "", {ExportCommand()}, words, out_, err_);
  }

  const std::string directory_;
  const std::string state_;
  const std::string out_path_;
  ModelLayout layout_;
  std::vector<float> parameters_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(ExportTest, WritesEveryTensorUnderItsLlamaName) {
  EXPECT_EQ(Run({state_, "--out", out_path_}), kExitOk) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("run test-1 at versions 0 to 1"));
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file,
                       SafetensorsFile::Open(out_path_));
  EXPECT_THAT(file.contents().Metadata("format"), IsOkAndHolds("pt"));
  ASSERT_EQ(file.contents().tensors.size(), 1 + 2 * 9 + 2);
  for (const TensorSpec& tensor : layout_.tensors) {
    ASSERT_OK_AND_ASSIGN(const SafetensorsTensor* written,
                         file.contents().Find(tensor.name));
    EXPECT_EQ(written->shape, tensor.shape) << tensor.name;
    EXPECT_THAT(file.contents().Floats(tensor.name),
                IsOkAndHolds(testing::ElementsAreArray(
                    parameters_.data() + tensor.offset, tensor.size)));
  }
  ASSERT_OK_AND_ASSIGN(
      const SafetensorsTensor* key,
      file.contents().Find("model.layers.1.self_attn.k_proj.weight"));
  // The shape is [out, in]: two key heads of four values, from a width of
  // sixteen.
  EXPECT_THAT(key->shape, testing::ElementsAre(8, 16));
}

TEST_F(ExportTest, TheConfigurationIsThatOfTheModel) {
  EXPECT_EQ(Run({state_, "--out", out_path_}), kExitOk) << err_.str();
  ASSERT_OK_AND_ASSIGN(const std::string text,
                       ReadFile(directory_ + "/config.json"));
  const nlohmann::json config = nlohmann::json::parse(text);
  EXPECT_EQ(config["architectures"][0], "LlamaForCausalLM");
  EXPECT_EQ(config["num_hidden_layers"], 2);
  EXPECT_EQ(config["num_attention_heads"], 4);
  EXPECT_EQ(config["num_key_value_heads"], 2);
  EXPECT_EQ(config["head_dim"], 4);
  EXPECT_EQ(config["vocab_size"], 258);
  EXPECT_EQ(config["max_position_embeddings"], 8);
  EXPECT_EQ(config["rope_theta"], 5000);
  EXPECT_EQ(config["rms_norm_eps"], 1e-5);
  EXPECT_EQ(config["tie_word_embeddings"], false);
  EXPECT_EQ(config["eos_token_id"], 257);
}

TEST_F(ExportTest, OverwritesOnlyWhenTold) {
  ASSERT_OK(WriteFileAtomically(directory_ + "/config.json", {"mine"}));
  EXPECT_EQ(Run({state_, "--out", out_path_}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("config.json exists"));
  EXPECT_THAT(ReadFile(directory_ + "/config.json"), IsOkAndHolds("mine"));
  EXPECT_THAT(ReadFile(out_path_), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(Run({state_, "--out", out_path_, "--force"}), kExitOk);
}

TEST_F(ExportTest, SaysWhatIsMissing) {
  EXPECT_EQ(Run({state_}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("--out FILE is missing"));
  EXPECT_EQ(Run({directory_, "--out", out_path_}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("not a state directory"));
}

}  // namespace
}  // namespace causeway
