// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A run of tensors that no model of Causeway has: a real coordinator that knows
// only their names and shapes, and two islands that bring a trainer of their
// own.
#include <signal.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "common/checkpoint/tensor_files.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/tensors/safetensors.h"
#include "common/tensors/tensors_layout.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "outer_optimizer/fragment_plan.h"
#include "tests/end_to_end/process_test_fixture.h"
#include "worker/inner_trainer.h"
#include "worker/island.h"
#include "worker/replica/testing/host_replica.h"
#include "worker/sync/grpc_coordinator_client.h"

namespace causeway {
namespace {

using testing::HasSubstr;

constexpr char kConfig[] = R"pb(
  name: "gpt2"
  tensors {
    sequence_length: 8
    exclude: "*.attn.bias"
    exclude: "*.wpe.weight"
    mean_only: "*.wte.weight"
  }
  training { total_steps: 600 batch_size: 4 }
  outer_optimizer { algorithm: SGD learning_rate: 1 merge: RADIAL_DIRECTIONAL }
  synchronization { inner_steps_per_round: 10 fragments: 3 overlap_steps: 1 }
  membership { min_islands: 2 lease_seconds: 3 heartbeat_seconds: 0.2 }
  storage { record_contributions: true }
)pb";

// Both islands wait before this step.
constexpr uint64_t kHalfway = 300;

// Returns the optimum of a value.
float Wanted(const std::string& name, int64_t index) {
  return static_cast<float>(name.size() % 5) - 2 +
         static_cast<float>(index % 7) / 7;
}

struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  // The index of the first value among all parameters.
  int64_t offset = 0;
  std::vector<float> wanted;
};

// Least squares on every tensor W: the sum of |x_i W - x_i W*|^2 over the
// samples x_i = e_i + e_{i+1} / 2, of which an island has every second. Only
// all samples together determine W.
class LeastSquaresTrainer : public InnerTrainer {
 public:
  LeastSquaresTrainer(const ModelLayout& layout, int first_sample,
                      std::vector<float> parameters,
                      std::function<void(uint64_t)> before_step)
      : first_sample_(first_sample),
        parameters_(std::move(parameters)),
        before_step_(std::move(before_step)) {
    for (const TensorSpec& tensor : layout.tensors) {
      Matrix& matrix = matrices_.emplace_back();
      matrix.rows = tensor.shape[0];
      matrix.columns = tensor.size / matrix.rows;
      matrix.offset = tensor.offset;
      for (int64_t i = 0; i < tensor.size; ++i) {
        matrix.wanted.push_back(Wanted(tensor.name, i));
      }
    }
  }

  absl::StatusOr<std::vector<std::unique_ptr<FragmentReplica>>> MakeReplica(
      const v1::JoinResponse& joined) override {
    ASSIGN_OR_RETURN(const ModelLayout layout,
                     RunLayout(joined.config(), joined.plan()));
    ASSIGN_OR_RETURN(const FragmentMap map,
                     FragmentMap::Create(layout, joined.plan()));
    ASSIGN_OR_RETURN(
        replica_,
        HostReplica::Create(
            map, MakeReplicaOptions(joined.config().synchronization()),
            absl::MakeSpan(parameters_)));
    return replica_->Fragments();
  }

  absl::StatusOr<InnerStepResult> Step(uint64_t run_step) override {
    before_step_(run_step);
    InnerStepResult result{.tokens = 4 * 8};
    for (const Matrix& matrix : matrices_) Descend(matrix, result.loss);
    return result;
  }

 private:
  static constexpr float kRate = 0.4f;

  void Descend(const Matrix& matrix, double& loss) {
    float* const values = parameters_.data() + matrix.offset;
    for (int64_t row = first_sample_; row < matrix.rows; row += 2) {
      const int64_t next = (row + 1) % matrix.rows;
      for (int64_t column = 0; column < matrix.columns; ++column) {
        const int64_t at = row * matrix.columns + column;
        const int64_t after = next * matrix.columns + column;
        const float error =
            values[at] - matrix.wanted[static_cast<size_t>(at)] +
            (values[after] - matrix.wanted[static_cast<size_t>(after)]) / 2;
        values[at] -= kRate * error;
        values[after] -= kRate * error / 2;
        loss += static_cast<double>(error) * error;
      }
    }
  }

  const int first_sample_;
  std::vector<float> parameters_;
  const std::function<void(uint64_t)> before_step_;
  std::vector<Matrix> matrices_;
  std::unique_ptr<HostReplica> replica_;
};

class TensorsTest : public ProcessTestFixture {
 protected:
  // Writes a checkpoint with the names of GPT-2, and a mask.
  void WriteCheckpoint() {
    std::vector<std::pair<std::string, std::vector<int64_t>>> shapes = {
        {"transformer.wte.weight", {10, 4}},
        {"transformer.wpe.weight", {8, 4}}};
    for (const char* block : {"transformer.h.0", "transformer.h.1"}) {
      shapes.push_back({absl::StrCat(block, ".ln_1.weight"), {4}});
      shapes.push_back({absl::StrCat(block, ".attn.c_attn.weight"), {4, 12}});
      shapes.push_back({absl::StrCat(block, ".attn.c_attn.bias"), {12}});
      shapes.push_back({absl::StrCat(block, ".mlp.c_fc.weight"), {4, 16}});
      shapes.push_back({absl::StrCat(block, ".mlp.c_proj.weight"), {16, 4}});
    }
    shapes.push_back({"transformer.ln_f.weight", {4}});
    const std::vector<float> values(64, 10.0f);
    Safetensors contents;
    for (const auto& [name, shape] : shapes) {
      const int64_t size = shape[0] * (shape.size() > 1 ? shape[1] : 1);
      contents.tensors.push_back(FloatTensor(
          name, shape,
          absl::MakeConstSpan(values).first(static_cast<size_t>(size))));
    }
    contents.tensors.push_back({.name = "transformer.h.0.attn.bias",
                                .dtype = "U8",
                                .shape = {2, 2},
                                .bytes = "abcd"});
    ASSERT_OK(WriteSafetensors(Path("model.safetensors"), std::move(contents)));
  }

  std::unique_ptr<Process> Coordinator(int port = 0) {
    Write("run.textproto", kConfig);
    return StartServing(absl::StrCat("coordinator-", port),
                        CoordinatorCommand(port, "state",
                                           {"--initial_parameters=" +
                                            Path("model.safetensors")}));
  }

  // Trains an island to the end of the run.
  absl::Status RunIsland(const std::string& name, int first_sample, int port) {
    const auto client =
        NewGrpcCoordinatorClient({.address = absl::StrCat("127.0.0.1:", port),
                                  .now = SteadyWallClock()});
    Island::Options options{
        .make_trainer = [&](const v1::JoinResponse& joined,
                            std::vector<float> parameters)
            -> absl::StatusOr<std::unique_ptr<InnerTrainer>> {
          ASSIGN_OR_RETURN(const ModelLayout layout,
                           RunLayout(joined.config(), joined.plan()));
          return std::make_unique<LeastSquaresTrainer>(
              layout, first_sample, std::move(parameters), [&](uint64_t step) {
                if (step != kHalfway) return;
                halfway_.DecrementCount();
                go_on_.WaitForNotification();
              });
        },
        .now = SteadyWallClock()};
    // East has a copy of the checkpoint; west fetches version 0.
    if (name == "east") options.initial_parameters = Path("model.safetensors");
    options.join.set_island_id(name);
    options.join.set_instance_id(static_cast<uint64_t>(first_sample) + 1);
    return Island(std::move(options), client.get()).Run();
  }

  // Returns the largest difference from the optimum, and expects the tensors
  // that the run exchanges, and no others.
  double LargestError(const std::string& checkpoint) {
    const absl::StatusOr<TensorFiles> files = TensorFiles::Open(checkpoint);
    EXPECT_OK(files);
    if (!files.ok()) return 0;
    EXPECT_EQ(files->tensors().size(), 12);
    double largest = 0;
    for (const auto& [name, tensor] : files->tensors()) {
      EXPECT_FALSE(absl::EndsWith(name, ".attn.bias")) << name;
      std::vector<float> values(CountValues(tensor));
      EXPECT_OK(ReadValues(tensor, 0, absl::MakeSpan(values)));
      for (size_t i = 0; i < values.size(); ++i) {
        largest = std::max<double>(
            largest,
            std::abs(values[i] - Wanted(name, static_cast<int64_t>(i))));
      }
    }
    return largest;
  }

  absl::BlockingCounter halfway_{2};
  absl::Notification go_on_;
};

TEST_F(TensorsTest, TwoIslandsTrainWhatOnlyTheyKnow) {
  WriteCheckpoint();
  auto coordinator = Coordinator();
  const int port = Port();
  EXPECT_THAT(RunTool({"validate", Path("run.textproto"),
                       "--initial_parameters", Path("model.safetensors")}),
              HasSubstr("in 2 blocks"));
  absl::Status east, west;
  std::thread east_thread([&] { east = RunIsland("east", 0, port); });
  std::thread west_thread([&] { west = RunIsland("west", 1, port); });
  halfway_.Wait();

  EXPECT_THAT(RunTool({"status", "--coordinator", Address()}),
              HasSubstr("parameters, defined by their tensors"));
  auto native = Start("native", WorkerCommand("native", port));
  EXPECT_EQ(native->Wait(), 1);
  EXPECT_THAT(native->Output(),
              HasSubstr("is defined by its 12 tensors (transformer.h.0."));
  EXPECT_EQ(coordinator->End(SIGKILL), 128 + SIGKILL);
  coordinator = Coordinator(port);
  go_on_.Notify();
  east_thread.join();
  west_thread.join();
  EXPECT_OK(east);
  EXPECT_OK(west);
  EXPECT_EQ(coordinator->Wait(), 0) << coordinator->Output();

  RunTool({"export", Path("state"), "--out", Path("trained")});
  // The values were wrong by 7 to 12.
  EXPECT_LT(LargestError(Path("trained")), 0.1);
  EXPECT_THAT(RunTool({"replay", Path("state")}),
              HasSubstr("to 60 come out the same"));
  for (const char* command : {"evaluate", "sample"}) {
    std::vector<std::string> words = {command, Path("state")};
    if (words[0] == "evaluate") words.insert(words.end(), {"--data", kText});
    EXPECT_THAT(RunTool(std::move(words), 1),
                HasSubstr("defined by its tensors, not by a model"));
  }
}

}  // namespace
}  // namespace causeway
