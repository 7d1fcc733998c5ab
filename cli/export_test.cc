// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>
#include <csignal>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/testing/state.h"
#include "common/checkpoint/initial_values.h"
#include "common/checkpoint/tensor_files.h"
#include "common/os/file.h"
#include "common/tensors/model_layout.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

using testing::HasSubstr;

class ExportTest : public testing::Test {
 protected:
  ExportTest() {
    const absl::StatusOr<v1::RunConfig> config =
        ParseRunConfig(kTestConfig, "test");
    EXPECT_OK(config);
    layout_ = MakeModelLayout(config->model());
    parameters_ = InitialParameters(layout_, 3);
    EXPECT_OK(WriteTestState(state_, *config, parameters_));
  }

  std::string PathOf(absl::string_view name) const {
    return absl::StrCat(directory_.path(), "/", name);
  }
  int Run(std::vector<std::string> words) {
    words.insert(words.begin(), "export");
    out_.str("");
    err_.str("");
    return RunCommandLine(
        "causeway", "",
        {ExportCommand({.now = [] { return absl::UnixEpoch(); }})}, words, out_,
        err_);
  }
  nlohmann::json Config() const {
    return nlohmann::json::parse(ReadFile(out_path_ + "/config.json").value());
  }
  // Checks that the export has exactly the run's parameters.
  void ExpectParameters(absl::string_view dtype) {
    ASSERT_OK_AND_ASSIGN(const TensorFiles files, TensorFiles::Open(out_path_));
    ASSERT_EQ(files.tensors().size(), layout_.tensors.size());
    for (const TensorSpec& tensor : layout_.tensors) {
      const SafetensorsTensor& written = files.tensors().at(tensor.name);
      EXPECT_EQ(written.shape, tensor.shape) << tensor.name;
      EXPECT_EQ(written.dtype, dtype);
      std::vector<float> values(static_cast<size_t>(tensor.size));
      ASSERT_OK(ReadValues(written, 0, absl::MakeSpan(values)));
      for (size_t i = 0; i < values.size(); ++i) {
        const float want = parameters_[tensor.offset + i];
        // bf16 and fp16 have at least eight significant bits.
        EXPECT_NEAR(values[i], want,
                    dtype == "F32" ? 0 : std::abs(want) * 0x1p-8 + 1e-7);
      }
    }
  }

  TemporaryDirectory directory_ = *TemporaryDirectory::Make("export");
  const std::string state_ = PathOf("state");
  const std::string out_path_ = PathOf("model");
  ModelLayout layout_;
  std::vector<float> parameters_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST_F(ExportTest, WritesEveryTensorUnderItsLlamaName) {
  EXPECT_EQ(Run({state_, "--out", out_path_}), kExitOk) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("run test-1 at versions 0 to 1"));
  EXPECT_THAT(out_.str(), HasSubstr("model.safetensors, config.json"));
  ExpectParameters("F32");
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file,
                       SafetensorsFile::Open(out_path_ + "/model.safetensors"));
  EXPECT_THAT(file.contents().Metadata("format"), IsOkAndHolds("pt"));
  // The shape is [out, in]: two key heads of four values, from a width of
  // sixteen.
  EXPECT_THAT(
      (*file.contents().Find("model.layers.1.self_attn.k_proj.weight"))->shape,
      testing::ElementsAre(8, 16));
}

TEST_F(ExportTest, WritesOtherTypes) {
  for (const auto& [flag, dtype, torch] :
       {std::tuple("bf16", "BF16", "bfloat16"),
        std::tuple("fp16", "F16", "float16")}) {
    EXPECT_EQ(Run({state_, "--out", out_path_, "--force", "--dtype", flag}),
              kExitOk)
        << err_.str();
    ExpectParameters(dtype);
    EXPECT_EQ(Config()["torch_dtype"], torch);
  }
  EXPECT_EQ(Run({state_, "--out", out_path_, "--dtype", "int8"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("--dtype is int8; allowed: fp32"));
}

TEST_F(ExportTest, AnotherCutReplacesAllOfAnEarlierExport) {
  EXPECT_EQ(Run({state_, "--out", out_path_, "--shard_bytes", "8000"}), kExitOk)
      << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("model.safetensors.index.json"));
  ExpectParameters("F32");
  EXPECT_EQ(Run({state_, "--out", out_path_, "--force"}), kExitOk);
  EXPECT_THAT(ReadFile(out_path_ + "/model.safetensors.index.json"),
              IsNotFound());
  EXPECT_THAT(ReadFile(out_path_ + "/model-00001-of-00003.safetensors"),
              IsNotFound());
  ExpectParameters("F32");
}

TEST_F(ExportTest, AnEarlierExportOutlivesOneThatFails) {
  EXPECT_EQ(Run({state_, "--out", out_path_}), kExitOk) << err_.str();
  // No file may grow beyond this size, as on a full disk.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {.rlim_cur = 100, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_EQ(Run({state_, "--out", out_path_, "--force"}), kExitFailure);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ExpectParameters("F32");
  EXPECT_EQ(Config()["num_hidden_layers"], 2);
}

TEST_F(ExportTest, TheConfigurationIsThatOfTheModel) {
  EXPECT_EQ(Run({state_, "--out", out_path_}), kExitOk) << err_.str();
  const nlohmann::json config = Config();
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
  EXPECT_EQ(config["torch_dtype"], "float32");
  EXPECT_EQ(config["eos_token_id"], 257);
}

TEST_F(ExportTest, TakesTheTokenizerOfTheOriginal) {
  const std::string original = PathOf("original");
  ASSERT_OK(CreateDirectory(original));
  ASSERT_OK(WriteFileAtomically(original + "/config.json",
                                {R"({"eos_token_id": [7, 9]})"}));
  ASSERT_OK(WriteFileAtomically(original + "/tokenizer.json", {"{}"}));
  ASSERT_OK(WriteFileAtomically(original + "/merges.txt", {"a b"}));
  EXPECT_EQ(Run({state_, "--out", out_path_, "--like", original}), kExitOk)
      << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("2 files copied from "));
  EXPECT_THAT(ReadFile(out_path_ + "/merges.txt"), IsOkAndHolds("a b"));
  EXPECT_EQ(Config()["eos_token_id"], nlohmann::json({7, 9}));
  EXPECT_EQ(Run({state_, "--out", PathOf("other"), "--like", PathOf("none")}),
            kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("none/config.json"));
}

TEST_F(ExportTest, AnOriginalThatCannotBeReadLeavesNothingWritten) {
  const std::string original = PathOf("original");
  ASSERT_OK(CreateDirectory(original));
  const auto refuses = [&](absl::string_view problem) {
    EXPECT_EQ(Run({state_, "--out", out_path_, "--like", original}),
              kExitFailure);
    EXPECT_THAT(err_.str(), HasSubstr(std::string(problem)));
    EXPECT_THAT(ListDirectory(out_path_), IsNotFound());
  };
  ASSERT_OK(
      WriteFileAtomically(original + "/config.json",
                          {std::string(40000, '[') + std::string(40000, ']')}));
  refuses("config.json cannot be read: its JSON is nested deeper");
  ASSERT_OK(WriteFileAtomically(original + "/config.json", {"{}"}));
  ASSERT_OK(WriteFileAtomically(original + "/merges.txt", {"a b"}));
  ASSERT_OK(WriteFileAtomically(
      original + "/tokenizer.json",
      {"version https://git-lfs.github.com/spec/v1\nsize 1\n"}));
  refuses("tokenizer.json is a pointer of Git LFS");
  ASSERT_OK(RemoveFile(original + "/tokenizer.json"));
  ASSERT_EQ(mkfifo((original + "/tokenizer.json").c_str(), 0600), 0);
  refuses("tokenizer.json is not a regular file");
}

TEST_F(ExportTest, ARunOfTensorsKeepsTheirNames) {
  const absl::StatusOr<v1::RunConfig> config =
      ParseRunConfig(kTensorsConfig, "test");
  ASSERT_OK_AND_ASSIGN(layout_, NewRunLayout(*config, ""));
  parameters_ = InitialParameters(layout_, 3);
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i] = i;
  const std::string state = PathOf("tensors");
  ASSERT_OK(WriteTestState(state, *config, parameters_));
  EXPECT_EQ(Run({state, "--out", out_path_}), kExitOk) << err_.str();
  ExpectParameters("F32");
  EXPECT_THAT(out_.str(), HasSubstr("52 parameters in 3 tensors"));
  EXPECT_THAT(out_.str(), HasSubstr("no config.json: "));
  EXPECT_THAT(out_.str(), HasSubstr("excludes from its exchange (*.mask)"));
  EXPECT_THAT(ReadFile(out_path_ + "/config.json"), IsNotFound());

  const std::string original = PathOf("original");
  ASSERT_OK(CreateDirectory(original));
  ASSERT_OK(WriteFileAtomically(original + "/config.json", {"{\"a\": 1}"}));
  EXPECT_EQ(Run({state, "--out", out_path_, "--force", "--like", original}),
            kExitOk)
      << err_.str();
  EXPECT_THAT(ReadFile(out_path_ + "/config.json"), IsOkAndHolds("{\"a\": 1}"));
  EXPECT_THAT(out_.str(), HasSubstr("model.safetensors, config.json\n"));
}

TEST_F(ExportTest, ARunOfAnAdapterIsAFolderOfPeft) {
  const absl::StatusOr<v1::RunConfig> config =
      ParseRunConfig(kTensorsConfig, "test");
  ASSERT_OK_AND_ASSIGN(layout_, NewRunLayout(*config, ""));
  parameters_ = InitialParameters(layout_, 3);
  const std::string state = PathOf("tensors");
  ASSERT_OK(WriteTestState(state, *config, parameters_));
  const std::string adapter = PathOf("adapter");
  ASSERT_OK(CreateDirectory(adapter));
  ASSERT_OK(WriteFileAtomically(adapter + "/adapter_config.json", {"{}"}));
  // The base model may be in the same folder.
  ASSERT_OK(CreateDirectory(out_path_));
  ASSERT_OK(WriteFileAtomically(out_path_ + "/config.json", {"base"}));
  ASSERT_OK(WriteFileAtomically(out_path_ + "/model.safetensors", {"base"}));
  for (const char* force : {"--shard_bytes=8", "--force"}) {
    EXPECT_EQ(Run({state, "--out", out_path_, "--like", adapter, force}),
              kExitOk)
        << err_.str();
    EXPECT_THAT(out_.str(),
                HasSubstr("adapter_model.safetensors, adapter_config.json\n"));
    EXPECT_THAT(ReadFile(out_path_ + "/adapter_config.json"),
                IsOkAndHolds("{}"));
    EXPECT_THAT(ReadFile(out_path_ + "/config.json"), IsOkAndHolds("base"));
    EXPECT_THAT(ReadFile(out_path_ + "/model.safetensors"),
                IsOkAndHolds("base"));
  }
  EXPECT_EQ(Run({state, "--out", out_path_, "--like", adapter}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("exists; --force replaces"));
  // A run of a model is no adapter.
  EXPECT_EQ(Run({state_, "--out", PathOf("other"), "--like", adapter}),
            kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("adapter/config.json"));
}

TEST_F(ExportTest, OverwritesOnlyWhenTold) {
  ASSERT_OK(CreateDirectory(out_path_));
  ASSERT_OK(WriteFileAtomically(out_path_ + "/config.json", {"mine"}));
  ASSERT_OK(WriteFileAtomically(out_path_ + "/notes.txt", {"mine"}));
  const std::string other = out_path_ + "/optimizer.safetensors";
  ASSERT_OK(WriteFileAtomically(other, {"mine"}));
  EXPECT_EQ(Run({state_, "--out", out_path_}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("config.json exists"));
  EXPECT_THAT(ReadFile(out_path_ + "/config.json"), IsOkAndHolds("mine"));
  EXPECT_THAT(ReadFile(out_path_ + "/model.safetensors"), IsNotFound());
  EXPECT_EQ(Run({state_, "--out", out_path_, "--force"}), kExitOk);
  EXPECT_THAT(ReadFile(out_path_ + "/notes.txt"), IsOkAndHolds("mine"));
  EXPECT_THAT(ReadFile(other), IsOkAndHolds("mine"));
}

TEST_F(ExportTest, SaysWhatIsMissing) {
  EXPECT_EQ(Run({state_}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("--out DIR is missing"));
  EXPECT_EQ(Run({directory_.path(), "--out", out_path_}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("not a state directory"));
  EXPECT_EQ(Run({state_, "--out", PathOf("model.safetensors")}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("give a directory"));
}

TEST_F(ExportTest, TheFileNamesItsRunAndVersions) {
  ASSERT_EQ(Run({state_, "--out", out_path_}), kExitOk) << err_.str();
  ASSERT_OK_AND_ASSIGN(const SafetensorsFile file,
                       SafetensorsFile::Open(out_path_ + "/model.safetensors"));
  EXPECT_THAT(file.contents().Metadata("causeway.run_id"),
              IsOkAndHolds("test-1"));
  EXPECT_THAT(file.contents().Metadata("causeway.versions"),
              IsOkAndHolds("0,1"));
  ASSERT_OK(RemoveFile(out_path_ + "/config.json"));
  EXPECT_EQ(Run({state_, "--out", out_path_}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("model.safetensors exists"));
}

}  // namespace
}  // namespace causeway
