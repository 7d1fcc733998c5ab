// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests that ranks of one process on several GPUs take no memory, record
// nothing and load no code while NCCL may run: the driver could then wait for
// all GPUs, and one of them for this rank. Such calls are counted in the
// emulator only; on a GPU only the training is tested. Skipped without a
// device.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/config/run_config.h"
#include "common/tensors/model_layout.h"
#include "common/testing/cuda_device.h"
#include "common/testing/status_matchers.h"
#include "gtest/gtest.h"
#include "outer_optimizer/fragment_plan.h"
#include "proto/run_config.pb.h"
#include "quantization/codec.h"
#include "quantization/codec_config.h"
#include "worker/data/testing/files.h"
#include "worker/model/device.h"
#include "worker/replica/fragment_replica.h"
#include "worker/training/island_ranks.h"

namespace causeway {
namespace {

constexpr v1::TrainingConfig::InnerAlgorithm kAlgorithms[] = {
    v1::TrainingConfig::DDP, v1::TrainingConfig::ACCO};

// An island with a rank on each GPU, at most two.
class OverlapCudaTest : public testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_CUDA_DEVICE(); }

  void Start(v1::TrainingConfig::InnerAlgorithm algorithm,
             uint32_t hidden_size) {
    island_.reset();
    int devices = 0;
    ASSERT_EQ(cudaGetDeviceCount(&devices), cudaSuccess);
    const int ranks = devices > 1 ? 2 : 1;
    std::string text;
    for (int i = 0; i < 300; ++i) {
      absl::StrAppend(&text, "line ", i * i % 97, "\n");
    }
    IslandRanksOptions options;
    options.data = {WriteTestFile("text.txt", text)};
    options.now = SteadyWallClock();
    options.devices.clear();
    for (int i = 0; i < ranks; ++i) {
      options.devices.push_back({.kind = Device::Kind::kCuda, .index = i});
    }
    ASSERT_OK_AND_ASSIGN(config_, ParseRunConfig(
                                      R"pb(
                                        name: "overlap"
                                        model {
                                          layers: 1
                                          hidden_size: 32
                                          intermediate_size: 32
                                          heads: 2
                                          sequence_length: 8
                                        }
                                        training {
                                          total_steps: 20
                                          batch_size: 4
                                          micro_batch_size: 1
                                          warmup_steps: 2
                                          fixed_micro_batches: true
                                        }
                                        synchronization {
                                          inner_steps_per_round: 5
                                          fragments: 1
                                          uplink_format: E3M0
                                          downlink_format: E3M0
                                          entropy_coding: false
                                        }
                                      )pb",
                                      "test"));
    config_.mutable_training()->set_inner_algorithm(algorithm);
    config_.mutable_model()->set_hidden_size(hidden_size);
    ASSERT_OK_AND_ASSIGN(
        island_, MakeThreadedIsland(
                     config_, options, ranks,
                     InitialParameters(MakeModelLayout(config_.model()), 1)));
  }

  v1::RunConfig config_;
  std::unique_ptr<InnerTrainer> island_;
};

TEST_F(OverlapCudaTest, AfterTheFirstStepNothingWaitsForOtherGpus) {
  for (const auto algorithm : kAlgorithms) {
    SCOPED_TRACE(v1::TrainingConfig::InnerAlgorithm_Name(algorithm));
    ASSERT_NO_FATAL_FAILURE(Start(algorithm, 32));
    uint64_t step = 1;
    ASSERT_OK(island_->Step(step));
    const int64_t before = DeviceWideCalls();
    // By then vectors have been swapped in every way.
    while (step < 8) ASSERT_OK(island_->Step(++step));
    EXPECT_EQ(DeviceWideCalls(), before);
  }
}

TEST_F(OverlapCudaTest, TheOuterLoopLeasesReservedMemory) {
  // Each rank has whole strips and a part of one.
  ASSERT_NO_FATAL_FAILURE(Start(v1::TrainingConfig::ACCO, 256));
  v1::JoinResponse joined;
  *joined.mutable_config() = config_;
  ASSERT_OK_AND_ASSIGN(
      *joined.mutable_plan(),
      MakeFragmentPlan(MakeModelLayout(config_.model()), config_));
  ASSERT_OK_AND_ASSIGN(const auto replica, island_->MakeReplica(joined));
  ASSERT_OK(island_->Step(1));
  const CodecSpec spec = UplinkSpec(config_.synchronization());
  for (const auto& fragment : replica) {
    const int64_t before = DeviceWideCalls();
    ASSERT_OK(fragment->TakeSnapshot());
    ASSERT_OK(fragment->BeginContribution(0));
    std::string bytes(MaxEncodedBytes(spec, fragment->size()), 0);
    ASSERT_OK(fragment->Encode(bytes.size(),
                               absl::MakeSpan(&bytes[0], bytes.size())));
    ASSERT_OK(fragment->EndContribution(false));
    ASSERT_OK(fragment->Decode(bytes));
    ASSERT_OK(fragment->FinishUpdate(bytes));
    ASSERT_OK(fragment->Apply(/*includes_island=*/true));
    EXPECT_EQ(DeviceWideCalls(), before);
  }
}

}  // namespace
}  // namespace causeway
