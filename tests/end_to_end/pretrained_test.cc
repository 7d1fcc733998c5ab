// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests a run that continues from another run's model, with real processes.
#include <signal.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/checkpoint/tensor_files.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/process_test_fixture.h"

namespace causeway {
namespace {

using testing::HasSubstr;
using testing::Not;

// A model like Qwen3: heads of their own width, with norms.
constexpr char kConfig[] = R"pb(
  name: "pretraining"
  model {
    layers: 2
    hidden_size: 32
    intermediate_size: 64
    heads: 2
    sequence_length: 32
    head_dim: 24
    qk_norm: true
  }
  training {
    total_steps: 20
    batch_size: 4
    learning_rate: 5e-3
    warmup_steps: 10
  }
  synchronization { inner_steps_per_round: 10 fragments: 2 }
  membership { lease_seconds: 60 heartbeat_seconds: 0.2 }
)pb";

class PretrainedTest : public ProcessTestFixture {
 protected:
  // Starts a coordinator for `config` that keeps its state in Path(state).
  // States have names of their own, because logs are appended to.
  std::unique_ptr<Process> Coordinator(const std::string& config,
                                       const std::string& state,
                                       const std::string& checkpoint) {
    Write("run.textproto", config);
    return StartServing(
        state,
        CoordinatorCommand(
            0, state, {absl::StrCat("--initial_parameters=", checkpoint)}));
  }

  // Writes the model of Path(state) to the directory Path(out).
  void Export(absl::string_view state, absl::string_view out,
              const std::string& dtype = "fp32") {
    RunTool({"export", Path(state), "--out", Path(out), "--dtype", dtype});
  }

  // Trains a model, and exports it to Path(out).
  void Pretrain(absl::string_view out, const std::string& dtype = "fp32") {
    const std::string state = absl::StrCat("of-", out);
    auto coordinator = Coordinator(kConfig, state, "");
    auto east = Start(state + "-east", WorkerCommand("east", Port()));
    ExpectOk(*east, *coordinator);
    Export(state, out, dtype);
  }

  void ExpectSameTensors(absl::string_view directory, absl::string_view other) {
    ASSERT_OK_AND_ASSIGN(const TensorFiles a,
                         TensorFiles::Open(Path(directory)));
    ASSERT_OK_AND_ASSIGN(const TensorFiles b, TensorFiles::Open(Path(other)));
    ASSERT_EQ(a.tensors().size(), 25);
    for (const auto& [name, tensor] : a.tensors()) {
      const SafetensorsTensor& same = b.tensors().at(name);
      EXPECT_EQ(tensor.shape, same.shape) << name;
      EXPECT_EQ(tensor.dtype, same.dtype) << name;
      EXPECT_TRUE(tensor.bytes == same.bytes) << name;
    }
  }
};

TEST_F(PretrainedTest, ImportAndExportGiveTheSameBytes) {
  for (const std::string dtype : {"bf16", "fp16"}) {
    const std::string original = absl::StrCat("original-", dtype);
    const std::string state = absl::StrCat("tuning-", dtype);
    const std::string exported = absl::StrCat("exported-", dtype);
    Pretrain(original, dtype);
    RunTool(
        {"import", Path(original), "--out", Path("run.textproto"), "--force"});
    const std::string imported = FileText(Path("run.textproto"));
    EXPECT_THAT(imported, HasSubstr(absl::StrCat("name: \"", original)));
    auto coordinator = Coordinator(imported, state, Path(original));
    Export(state, exported, dtype);
    ExpectSameTensors(original, exported);
    EXPECT_EQ(coordinator->End(SIGTERM), 0) << coordinator->Output();
  }
}

TEST_F(PretrainedTest, ARunGoesOnFromAnotherRunsModel) {
  Pretrain("model");
  auto coordinator = Coordinator(
      absl::StrReplaceAll(kConfig,
                          {{"pretraining", "tuning"},
                           {"membership {", "membership { min_islands: 2"}}),
      "second", Path("model"));
  Export("second", "begun");
  ExpectSameTensors("model", "begun");

  // One island has a copy of the checkpoint, the other downloads it.
  auto east = Start(
      "east",
      WorkerCommand("east", Port(),
                    {absl::StrCat("--initial_parameters=", Path("model"))}));
  auto west = Start("west", WorkerCommand("west", Port()));
  ExpectOk(*east, *west, *coordinator);
  EXPECT_THAT(east->Output(), Not(HasSubstr("fetched fragment")));
  for (const char* fragment : {"0", "1"}) {
    EXPECT_THAT(west->Output(),
                HasSubstr(absl::StrCat("fetched fragment ", fragment,
                                       " at version 0")));
  }
}

TEST_F(PretrainedTest, AnIslandWithAnotherCheckpointDownloadsTheRuns) {
  Pretrain("trained");
  { auto coordinator = Coordinator(kConfig, "new", ""); }
  Export("new", "untrained");
  auto coordinator = Coordinator(kConfig, "second", Path("trained"));
  auto east = Start("east", WorkerCommand("east", Port(),
                                          {absl::StrCat("--initial_parameters=",
                                                        Path("untrained"))}));
  ExpectOk(*east, *coordinator);
  EXPECT_THAT(east->Output(), HasSubstr("is not the one that the run began"));
  EXPECT_THAT(east->Output(), HasSubstr("fetched fragment 0 at version 0"));
}

}  // namespace
}  // namespace causeway
