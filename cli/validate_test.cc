// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/validate.h"

#include <sys/stat.h>

#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/testing/state.h"
#include "common/os/file.h"
#include "common/tensors/safetensors.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ValidateTest : public testing::Test {
 protected:
  std::string Write(absl::string_view name, absl::string_view content) {
    const std::string path = absl::StrCat(testing::TempDir(), "/", name);
    EXPECT_OK(WriteFileAtomically(path, {content}));
    return path;
  }

  int Run(std::vector<std::string> words) {
    words.insert(words.begin(), "validate");
    out_.str("");
    err_.str("");
    return RunCommandLine("causeway", "", {ValidateCommand()}, words, out_,
                          err_);
  }

  std::ostringstream out_;
  std::ostringstream err_;
};

// Returns the configuration, in which fragments are sent one after the other.
std::string WithOverlap(absl::string_view config) {
  return absl::StrReplaceAll(
      config, {{"fragments: 2", "fragments: 2 overlap_steps: 1"}});
}

TEST_F(ValidateTest, SaysWhatTheRunWillBe) {
  const std::string config = Write("run.textproto", WithOverlap(kTestConfig));
  EXPECT_EQ(Run({config}), kExitOk) << err_.str();
  // Parameters: 2 * 258 * 16 embedding and head, 16 final norm, and per block
  // 2 * 16 norms, 2 * 256 + 2 * 128 attention, 3 * 16 * 24 in the MLP.
  // Memory: 4 bytes a parameter, 8 of fragment 1; then a contribution of every
  // island, twice the 8 bytes, and the update. Disk: 8 bytes a parameter; then
  // two versions and eight updates, and one more of fragment 1.
  // Rounds: every 10 of 100 steps; fragment 1 is sent 5 steps later, and once
  // more at the end.
  EXPECT_EQ(
      out_.str(),
      "model     12.2k parameters in 2 layers\n"
      "training  100 steps of 16 tokens on each island: 1.60k tokens\n"
      "rounds    20, one every 10 steps for each of 2 fragments\n"
      "memory    coordinator: at most 3.19 MiB with 64 islands, "
      "and connections\n"
      "disk      coordinator: 95.1 KiB to begin; at most 1.86 MiB, and the "
      "log\n"
      "\n"
      "FRAGMENT  TENSORS  VALUES  SENT AT  ROUNDS  CONTRIBUTION    "
      "UPDATE\n"
      "       0       18   3.90k       +0      10      15.2 KiB  15.2 "
      "KiB\n"
      "       1        3   8.27k       +5      10      32.3 KiB  32.3 "
      "KiB\n");
}

TEST_F(ValidateTest, NamesTheFewestBitsOfAnUplink) {
  std::string config(kTestConfig);
  const std::string formats = "uplink_format: FP32";
  config.replace(config.find(formats), formats.size(),
                 "uplink_format: ECQ ecq_bits: 4 overlap_steps: 2 "
                 "uplink_bits_floor: 0.75");
  EXPECT_EQ(Run({Write("run.textproto", config)}), kExitOk) << err_.str();
  EXPECT_THAT(
      out_.str(),
      HasSubstr("\nuplinks   4 bits per value, and down to 0.75 where"));
}

TEST_F(ValidateTest, ChecksTheData) {
  const std::string config = Write("run.textproto", kTestConfig);
  const std::string text = Write("text", std::string(20000, 'a'));
  EXPECT_EQ(Run({config, "--text", text}), kExitOk) << err_.str();
  EXPECT_THAT(out_.str(), AllOf(HasSubstr("20.0k tokens"),
                                HasSubstr("1 shard of"), HasSubstr("epochs")));
  const std::string tiny = Write("tiny", "abc");
  EXPECT_EQ(Run({config, "--text", tiny}), kExitFailure);
  EXPECT_NE(err_.str(), "");
  EXPECT_EQ(Run({config, "--data", text, text + ".missing"}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr(text + ".missing"));
}

TEST_F(ValidateTest, ShowsThePlanOfARunOfTensors) {
  const std::string config =
      Write("run.textproto", WithOverlap(kTensorsConfig));
  EXPECT_EQ(Run({config}), kExitOk) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("model     52 parameters in 2 blocks\n"
                                    "training  100 steps of 16 tokens"));
  EXPECT_THAT(out_.str(), HasSubstr("\n       0        2      32       +0"));
  EXPECT_THAT(out_.str(), HasSubstr("\n       1        1      20       +5"));
  EXPECT_EQ(Run({config, "--text", config}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("read their own data"));
}

TEST_F(ValidateTest, ACheckpointTellsTheTensors) {
  const std::string config = Write("run.textproto",
                                   R"(name: "tensors"
               tensors { sequence_length: 8 }
               training { total_steps: 100 batch_size: 2 }
               synchronization { inner_steps_per_round: 10 })");
  EXPECT_EQ(Run({config}), kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("--initial_parameters"));
  const std::string checkpoint = testing::TempDir() + "/model.safetensors";
  const std::vector<float> values(6);
  ASSERT_OK(WriteSafetensors(
      checkpoint, {.tensors = {FloatTensor("h.0.w", {3, 2}, values)}}));
  EXPECT_EQ(Run({config, "--initial_parameters", checkpoint}), kExitOk)
      << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("6 parameters in 1 block\n"));
  EXPECT_EQ(Run({Write("llama.textproto", kTestConfig), "--initial_parameters",
                 checkpoint}),
            kExitFailure);
  EXPECT_THAT(err_.str(), HasSubstr("does not fit the run's model"));
}

TEST_F(ValidateTest, MistakesNameFileLineAndField) {
  const std::string config =
      Write("bad.textproto", absl::StrCat(kTestConfig, "\nsynchronisation {}"));
  EXPECT_EQ(Run({config}), kExitFailure);
  EXPECT_THAT(err_.str(),
              AllOf(HasSubstr("bad.textproto:"), HasSubstr("synchronisation")));
  EXPECT_EQ(out_.str(), "");
}

// These files are endless.
TEST_F(ValidateTest, PipesAndDevicesAreRefused) {
  const std::string pipe = absl::StrCat(testing::TempDir(), "/pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string config = Write("run.textproto", kTestConfig);
  for (const std::string& path : {pipe, std::string("/dev/zero")}) {
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{path},
          {config, "--initial_parameters", path},
          {config, "--text", path}}) {
      EXPECT_EQ(Run(words), kExitFailure);
      EXPECT_THAT(err_.str(), HasSubstr(path + " is not a regular file"));
    }
  }
}

TEST_F(ValidateTest, AMessageOfMistakesIsBounded) {
  std::string text = kTestConfig;
  for (int i = 0; i < 10000; ++i) {
    absl::StrAppend(&text, "tensors { block: \"", std::string(1000, '\x1b'),
                    "\" }");
  }
  EXPECT_EQ(Run({Write("many.textproto", text)}), kExitFailure);
  EXPECT_LT(err_.str().size(), 40 << 10);
  EXPECT_THAT(err_.str(), testing::Not(HasSubstr("\x1b")));
}

TEST_F(ValidateTest, ShowsTheDataAndBothDirections) {
  const std::string config = Write(
      "run.textproto",
      absl::StrReplaceAll(kTestConfig,
                          {{"downlink_format: FP32", "downlink_format: BF16"},
                           {"training {",
                            "data { shards: 2 validation_fraction: 0.1 } "
                            "training {"}}));
  const std::string text = Write("text", std::string(20000, 'a'));
  EXPECT_EQ(Run({config, "--text", text}), kExitOk) << err_.str();
  // An island trains on 100 * 2 sequences.
  EXPECT_THAT(out_.str(), HasSubstr("tokens, the largest below 258; "));
  EXPECT_THAT(out_.str(), HasSubstr("; 2 shards of "));
  EXPECT_THAT(out_.str(), HasSubstr("reads its shard 0.17"));
  EXPECT_THAT(out_.str(), HasSubstr("15.2 KiB  7.62 KiB\n"));
}

}  // namespace
}  // namespace causeway
