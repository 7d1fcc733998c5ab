// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares small models on a device with the CPU backend.
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/tensors/model_layout.h"
#include "common/testing/cuda_device.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/run_config.pb.h"
#include "worker/model/cuda/ops_cuda.h"
#include "worker/model/device.h"
#include "worker/model/device_array.h"
#include "worker/model/ops_cpu.h"
#include "worker/model/testing/golden_models.h"
#include "worker/model/testing/random_values.h"
#include "worker/model/transformer.h"

namespace causeway {
namespace {

class ModelCudaTest : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_CUDA_DEVICE();
    ASSERT_OK_AND_ASSIGN(ops_, MakeCudaOps(0));
  }

  using Values = DeviceArray<float>;

  Values ToDevice(const Floats& host) {
    Values values = *Values::Create(ops_.get(), std::ssize(host));
    ops_->CopyToDevice(host.data(), host.size() * 4, values.data());
    return values;
  }
  Floats Host(const Values& values) {
    Floats host(static_cast<size_t>(values.size()));
    ops_->CopyToHost(values.data(), host.size() * 4, host.data());
    EXPECT_OK(ops_->Synchronize());
    return host;
  }

  std::unique_ptr<Ops> ops_;
};

v1::ModelConfig SmallModel() {
  v1::ModelConfig config;
  config.set_layers(2);
  config.set_hidden_size(64);
  config.set_intermediate_size(96);
  config.set_heads(4);
  config.set_kv_heads(2);
  config.set_vocab_size(258);
  config.set_sequence_length(40);
  config.set_rope_theta(10000);
  config.set_norm_epsilon(1e-5);
  return config;
}

// Returns the relative error of a tensor, which is a part of both vectors: the
// norm of the difference over the norm of `want`.
double RelativeError(const Floats& got, const Floats& want,
                     const TensorSpec& tensor) {
  double error = 0;
  double size = 0;
  for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
    error += std::pow(got[i] - want[i], 2);
    size += std::pow(want[i], 2);
  }
  return std::sqrt(error / size);
}

// Tests everything together: loss and gradients of a model equal those that the
// CPU computes in fp32, as closely as bf16 allows.
TEST_F(ModelCudaTest, AModelTrainsAsOnTheCpu) {
  const v1::ModelConfig config = SmallModel();
  const std::vector<int32_t> tokens = RandomTokens(80, 258, 1);
  const std::vector<int32_t> targets = RandomTokens(80, 258, 2);
  const ModelLayout layout = MakeModelLayout(config);
  const Floats parameters = InitialParameters(layout, 1);
  for (const bool recompute : {false, true}) {
    double losses[2] = {};
    Floats gradients[2];
    const std::unique_ptr<Ops> cpu = MakeCpuOps(1);
    Ops* const backends[] = {cpu.get(), ops_.get()};
    for (int i = 0; i < 2; ++i) {
      Ops* const ops = backends[i];
      ASSERT_OK_AND_ASSIGN(
          const auto model,
          Transformer::Create(
              config, {.micro_batch = 2, .recompute_activations = recompute},
              ops));
      ASSERT_OK_AND_ASSIGN(auto values,
                           DeviceArray<float>::Create(ops, layout.size));
      ASSERT_OK_AND_ASSIGN(auto sums,
                           DeviceArray<float>::Create(ops, layout.size));
      ops->CopyToDevice(parameters.data(), values.size_bytes(), values.data());
      ASSERT_OK_AND_ASSIGN(
          losses[i], model->ForwardBackward(values.data(), tokens, targets, 1,
                                            sums.data()));
      gradients[i].resize(layout.size);
      ops->CopyToHost(sums.data(), sums.size_bytes(), gradients[i].data());
    }
    EXPECT_NEAR(losses[1], losses[0], 1e-3 * losses[0]);
    for (const TensorSpec& tensor : layout.tensors) {
      SCOPED_TRACE(tensor.name);
      EXPECT_LT(RelativeError(gradients[1], gradients[0], tensor), 0.03);
    }
  }
}

// bf16 limits the relative errors of the loss and of each gradient in the file.
TEST_F(ModelCudaTest, LossAndGradientsAreThoseOfPyTorch) {
  int models = 0;
  ASSERT_OK_AND_ASSIGN(const std::vector<GoldenCase> cases, ReadGolden());
  for (const GoldenCase& golden : cases) {
    SCOPED_TRACE(golden.name);
    const Device cuda = {.kind = Device::Kind::kCuda};
    if (!CheckDeviceModel(cuda, golden.config).ok()) continue;
    ++models;
    ASSERT_OK_AND_ASSIGN(
        const auto model,
        Transformer::Create(golden.config, {.micro_batch = golden.batch},
                            ops_.get()));
    Values values = ToDevice(GoldenParameters(model->layout()));
    Values sums = ToDevice(Floats(model->layout().size));
    const Batch batch(golden.config, golden.batch);
    EXPECT_THAT(
        model->ForwardBackward(values.data(), batch.tokens, batch.targets, 1,
                               sums.data()),
        IsOkAndHolds(testing::DoubleNear(golden.loss, 0.01 * golden.loss)));
    const Floats gradients = Host(sums);
    for (size_t t = 0; t < golden.gradients.size(); ++t) {
      const TensorSpec& tensor = model->layout().tensors[t];
      SCOPED_TRACE(tensor.name);
      double error = 0;
      double size = 0;
      for (const auto& [index, want] : golden.gradients[t].values) {
        error += std::pow(gradients[tensor.offset + index] - want, 2);
        size += std::pow(want, 2);
      }
      EXPECT_LT(std::sqrt(error / size), 0.1);
    }
  }
  EXPECT_EQ(models, 4);
}

// From the second pass on a backend may repeat the operations that it recorded
// before. It must not have recorded tokens, parameters or gradients, and must
// need no more memory.
TEST_F(ModelCudaTest, RepeatedPassesFollowWhatIsInMemory) {
  v1::ModelConfig config = SmallModel();
  config.set_layers(1);
  config.set_sequence_length(8);
  const ModelLayout layout = MakeModelLayout(config);
  // Appends the gradients and the loss of each pass to `results`.
  const auto train = [&](int first, int last, std::vector<Floats>& results) {
    ASSERT_OK_AND_ASSIGN(
        const auto model,
        Transformer::Create(config, {.micro_batch = 1}, ops_.get()));
    Values values = ToDevice(Floats(layout.size));
    Values sums = ToDevice(Floats(layout.size));
    int64_t allocations = 0;
    for (int pass = first; pass <= last; ++pass) {
      const Floats parameters = InitialParameters(layout, pass);
      ops_->CopyToDevice(parameters.data(), parameters.size() * 4,
                         values.data());
      ops_->Zero(layout.size, sums.data());
      ASSERT_OK_AND_ASSIGN(
          const double loss,
          model->ForwardBackward(values.data(), RandomTokens(8, 258, pass),
                                 RandomTokens(8, 258, pass + 100), 1,
                                 sums.data()));
      if (pass == first) allocations = ops_->allocations();
      results.push_back(Host(sums));
      results.back().push_back(static_cast<float>(loss));
    }
    EXPECT_EQ(ops_->allocations(), allocations);
  };
  std::vector<Floats> repeated;
  train(0, 2, repeated);
  for (const int pass : {1, 2}) {
    std::vector<Floats> alone;
    train(pass, pass, alone);
    EXPECT_EQ(repeated[pass], alone[0]) << pass;
  }
}

// The host does not wait for the device while gradients are accumulated, which
// gives the same sums.
TEST_F(ModelCudaTest, LossesAreTakenWhenAllIsDone) {
  v1::ModelConfig config = SmallModel();
  config.set_sequence_length(8);
  const ModelLayout layout = MakeModelLayout(config);
  ASSERT_OK_AND_ASSIGN(
      const auto model,
      Transformer::Create(config, {.micro_batch = 2}, ops_.get()));
  Values values = ToDevice(InitialParameters(layout, 1));
  Values sums = ToDevice(Floats(layout.size));
  double want = 0;
  // The backend records during the first two passes, and repeats in the later
  // ones.
  for (int batch = 0; batch < 4; ++batch) {
    ASSERT_OK_AND_ASSIGN(
        const double loss,
        model->ForwardBackward(values.data(), RandomTokens(16, 258, batch),
                               RandomTokens(16, 258, batch + 100), 1,
                               sums.data()));
    want += loss;
  }
  Values together = ToDevice(Floats(layout.size));
  const int64_t waits = ops_->waits();
  for (int batch = 0; batch < 4; ++batch) {
    ASSERT_OK(model->AddGradients(values.data(), RandomTokens(16, 258, batch),
                                  RandomTokens(16, 258, batch + 100), 1,
                                  together.data()));
  }
  EXPECT_EQ(ops_->waits(), waits);
  ASSERT_OK_AND_ASSIGN(const double loss, model->TakeLoss());
  EXPECT_NEAR(loss, want, 1e-12 * want);
  EXPECT_EQ(Host(together), Host(sums));
  ASSERT_OK_AND_ASSIGN(const double nothing, model->TakeLoss());
  EXPECT_EQ(nothing, 0);
}

// The thread that communicates has operations of its own, mostly without matrix
// products.
TEST_F(ModelCudaTest, OnlyProductsTakeAWorkspace) {
  constexpr int64_t kWorkspace = int64_t{32} << 20;
  constexpr int64_t kSize = 16;
  const int64_t before = ops_->FreeBytes();
  ASSERT_OK_AND_ASSIGN(const auto other, MakeCudaOps(0));
  const int64_t unused = ops_->FreeBytes();
  EXPECT_LT(before - unused, kWorkspace);
  ASSERT_OK_AND_ASSIGN(auto values, DeviceArray<uint16_t>::Create(
                                        other.get(), 3 * kSize * kSize));
  uint16_t* const input = values.data();
  other->Linear(input, input + kSize * kSize,
                {.rows = kSize, .in = kSize, .out = kSize},
                input + 2 * kSize * kSize);
  ASSERT_OK(other->Synchronize());
  EXPECT_GE(unused - ops_->FreeBytes(), kWorkspace);
}

}  // namespace
}  // namespace causeway
