// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures training speed on device 0: whole inner steps (forward, backward,
// clipping, AdamW) of two models in the Llama layout, and the attention kernels
// and AdamW by themselves. tests/gpu/pytorch.py reads the JSON and measures the
// same in PyTorch.
//
//   ops_cuda_benchmark [--json FILE] [--peak_tflops N]
//
// Model FLOP utilization counts 6 operations for each token and parameter of a
// matrix product, and causal attention's 6 * layers * width * length for each
// token; recomputation does not count. Figures are from the medians over the
// repetitions. Exits with 77 if there is no GPU.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "common/model_layout.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"
#include "proto/run_config.pb.h"
#include "worker/model/cuda/ops_cuda.h"
#include "worker/model/device_array.h"
#include "worker/model/ops.h"
#include "worker/model/transformer.h"

ABSL_FLAG(std::string, json, "", "file to write the figures to");
ABSL_FLAG(double, peak_tflops, 989,
          "dense bf16 operations of the device in 1e12 per second; the default "
          "is that of an H100 or H200 SXM");

namespace causeway {
namespace {

constexpr int kRepetitions = 15;
constexpr int kSkipped = 77;

struct Model {
  const char* name;
  int layers;
  int hidden;
  int intermediate;
  int heads;
  int length;
  // The sequences in a micro-batch, and whether activations are recomputed.
  int micro_batch;
  bool recompute;
};

// The sizes of GPT-2 and of GPT-3 with 1.3 billion parameters, in the Llama
// layout.
constexpr Model kModels[] = {
    {"124M", 12, 768, 2048, 12, 1024, 32, false},
    {"1.3B", 24, 2048, 5504, 16, 2048, 8, false},
};
// A multiple of 128 above GPT-2's 50257.
constexpr int kVocab = 50304;

v1::ModelConfig ConfigOf(const Model& model) {
  v1::ModelConfig config;
  config.set_layers(model.layers);
  config.set_hidden_size(model.hidden);
  config.set_intermediate_size(model.intermediate);
  config.set_heads(model.heads);
  config.set_kv_heads(model.heads);
  config.set_vocab_size(kVocab);
  config.set_sequence_length(model.length);
  config.set_rope_theta(10000);
  config.set_norm_epsilon(1e-5);
  config.set_tie_embeddings(true);
  return config;
}

// Returns the median seconds of `step`, after two steps to warm up.
absl::StatusOr<double> MedianSeconds(
    const std::function<absl::Status()>& step) {
  std::vector<double> seconds;
  for (int i = 0; i < kRepetitions + 2; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(step());
    const std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - begin;
    if (i >= 2) seconds.push_back(elapsed.count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRepetitions / 2,
                   seconds.end());
  return seconds[kRepetitions / 2];
}

// Fills the array with repeated normal values; the repetition makes no
// difference to a kernel, while zeros would be faster.
template <typename T>
void Randomize(float deviation, Ops* ops, DeviceArray<T>& array) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<T> some(1 << 20);
  for (T& value : some) {
    const float number = normal(random);
    if constexpr (std::is_same_v<T, float>) {
      value = number;
    } else {
      value = static_cast<T>(std::bit_cast<uint32_t>(number) >> 16);
    }
  }
  for (int64_t begin = 0; begin < array.size(); begin += 1 << 20) {
    const int64_t part = std::min<int64_t>(1 << 20, array.size() - begin);
    ops->CopyToDevice(some.data(), part * sizeof(T), array.data() + begin);
  }
}

constexpr AdamWCoefficients kCoefficients = {.beta1 = 0.9f,
                                             .beta2 = 0.95f,
                                             .step_size = 1e-4f,
                                             .inverse_sqrt_correction2 = 1,
                                             .epsilon = 1e-8f};

absl::StatusOr<nlohmann::json> MeasureTraining(const Model& model, Ops* ops) {
  const v1::ModelConfig config = ConfigOf(model);
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Transformer> transformer,
      Transformer::Create(config,
                          {.micro_batch = model.micro_batch,
                           .recompute_activations = model.recompute},
                          ops));
  const int64_t size = transformer->layout().size;
  ASSIGN_OR_RETURN(auto parameters, DeviceArray<float>::Create(ops, size));
  ASSIGN_OR_RETURN(auto gradients, DeviceArray<float>::Create(ops, size));
  ASSIGN_OR_RETURN(auto first_moment, DeviceArray<float>::Create(ops, size));
  ASSIGN_OR_RETURN(auto second_moment, DeviceArray<float>::Create(ops, size));
  const std::vector<float> initial =
      InitialParameters(transformer->layout(), 1);
  ops->CopyToDevice(initial.data(), parameters.size_bytes(), parameters.data());
  const int64_t tokens = int64_t{model.micro_batch} * model.length;
  std::vector<int32_t> stream;
  for (int64_t i = 0; i <= tokens; ++i) {
    stream.push_back(static_cast<int32_t>((i * i * 31 + i) % kVocab));
  }
  const absl::Span<const int32_t> span = stream;
  double loss = 0;
  ASSIGN_OR_RETURN(
      const double seconds, MedianSeconds([&]() -> absl::Status {
        ASSIGN_OR_RETURN(loss, transformer->ForwardBackward(
                                   parameters.data(), span.first(tokens),
                                   span.last(tokens), 1, gradients.data()));
        const double norm = std::sqrt(ops->SquaredNorm(gradients.data(), size));
        AdamWCoefficients coefficients = kCoefficients;
        coefficients.gradient_scale =
            static_cast<float>(std::min(1.0, 1 / norm));
        ops->AdamW(coefficients, gradients.data(), size, parameters.data(),
                   first_moment.data(), second_moment.data(),
                   /*estimate=*/nullptr);
        ops->Zero(size, gradients.data());
        return ops->Synchronize();
      }));
  // As the input the embedding is only looked up, but as the head it is
  // multiplied.
  const double of_token =
      6.0 * static_cast<double>(size) +
      6.0 * model.layers * model.hidden * static_cast<double>(model.length);
  const double rate = static_cast<double>(tokens) / seconds;
  const double utilization =
      rate * of_token / (1e12 * absl::GetFlag(FLAGS_peak_tflops));
  std::cout << absl::StrFormat(
      "training %-5s %5.0f M parameters  %9.0f tokens/s  %5.1f %% of peak  "
      "%.1f GiB of activations  loss %.3f\n",
      model.name, static_cast<double>(size) / 1e6, rate, 100 * utilization,
      static_cast<double>(transformer->activation_bytes()) / (1 << 30), loss);
  return nlohmann::json{{"model", model.name},
                        {"layers", model.layers},
                        {"hidden", model.hidden},
                        {"intermediate", model.intermediate},
                        {"heads", model.heads},
                        {"length", model.length},
                        {"micro_batch", model.micro_batch},
                        {"vocab", kVocab},
                        {"parameters", size},
                        {"tokens_per_second", rate},
                        {"utilization", utilization},
                        {"activation_bytes", transformer->activation_bytes()},
                        {"loss", loss}};
}

absl::StatusOr<nlohmann::json> MeasureAttention(const AttentionShape& shape,
                                                Ops* ops) {
  using Activations = DeviceArray<uint16_t>;
  ASSIGN_OR_RETURN(Activations qkv,
                   Activations::Create(ops, shape.rows() * shape.qkv_width()));
  ASSIGN_OR_RETURN(auto d_qkv, Activations::Create(ops, qkv.size()));
  ASSIGN_OR_RETURN(auto output, Activations::Create(
                                    ops, shape.rows() * shape.query_width()));
  ASSIGN_OR_RETURN(auto d_output, Activations::Create(ops, output.size()));
  ASSIGN_OR_RETURN(auto log_sum_exp,
                   DeviceArray<float>::Create(ops, shape.rows() * shape.heads));
  Randomize(1, ops, qkv);
  Randomize(1, ops, d_output);
  ASSIGN_OR_RETURN(const double forward, MedianSeconds([&] {
                     ops->Attention(shape, qkv.data(), output.data(),
                                    log_sum_exp.data());
                     return ops->Synchronize();
                   }));
  ASSIGN_OR_RETURN(const double backward, MedianSeconds([&] {
                     ops->AttentionBackward(shape, qkv.data(), output.data(),
                                            log_sum_exp.data(), d_output.data(),
                                            d_qkv.data());
                     return ops->Synchronize();
                   }));
  // There are two products of length by length, half of which is masked.
  const double operations =
      2.0 *
      static_cast<double>(shape.rows() * shape.length * shape.query_width());
  std::cout << absl::StrFormat(
      "attention of %d heads of %d, length %d: forward %.0f TFLOP/s, "
      "backward %.0f\n",
      shape.heads, shape.head_dim, shape.length, operations / forward / 1e12,
      2.5 * operations / backward / 1e12);
  return nlohmann::json{{"batch", shape.batch},
                        {"heads", shape.heads},
                        {"kv_heads", shape.kv_heads},
                        {"head_size", shape.head_dim},
                        {"length", shape.length},
                        {"forward_seconds", forward},
                        {"backward_seconds", backward},
                        {"forward_flops", operations / forward},
                        {"backward_flops", 2.5 * operations / backward}};
}

// Compares AdamW with a copy that moves as many bytes.
absl::StatusOr<nlohmann::json> MeasureAdamW(Ops* ops) {
  constexpr int64_t kSize = int64_t{256} << 20;
  std::vector<DeviceArray<float>> arrays;
  for (int i = 0; i < 4; ++i) {
    ASSIGN_OR_RETURN(auto array, DeviceArray<float>::Create(ops, kSize));
    // Array 3, the second moment, is not negative and stays 0.
    if (i < 3) Randomize(1e-3f, ops, array);
    arrays.push_back(std::move(array));
  }
  ASSIGN_OR_RETURN(const double update, MedianSeconds([&] {
                     ops->AdamW(kCoefficients, arrays[0].data(), kSize,
                                arrays[1].data(), arrays[2].data(),
                                arrays[3].data(), /*estimate=*/nullptr);
                     return ops->Synchronize();
                   }));
  ASSIGN_OR_RETURN(const double copy, MedianSeconds([&] {
                     ops->Copy(arrays[0].data(), kSize, arrays[1].data());
                     return ops->Synchronize();
                   }));
  // AdamW moves 28 bytes for each value, the copy 8.
  const double ratio = 28 * copy / (8 * update);
  std::cout << absl::StrFormat("AdamW: %.0f GB/s, %.2f of a copy's\n",
                               28.0 * kSize / update / 1e9, ratio);
  return nlohmann::json{{"values", kSize},
                        {"bytes_per_second", 28.0 * kSize / update},
                        {"ratio_to_copy", ratio}};
}

absl::Status Run(Ops* ops) {
  nlohmann::json figures;
  for (const Model& model : kModels) {
    ASSIGN_OR_RETURN(nlohmann::json training, MeasureTraining(model, ops));
    figures["training"].push_back(std::move(training));
  }
  for (const AttentionShape& shape : {AttentionShape{32, 1024, 12, 12, 64},
                                      AttentionShape{8, 2048, 16, 16, 128},
                                      AttentionShape{8, 4096, 32, 8, 128}}) {
    ASSIGN_OR_RETURN(nlohmann::json attention, MeasureAttention(shape, ops));
    figures["attention"].push_back(std::move(attention));
  }
  ASSIGN_OR_RETURN(figures["adamw"], MeasureAdamW(ops));
  if (!absl::GetFlag(FLAGS_json).empty()) {
    std::ofstream(absl::GetFlag(FLAGS_json)) << figures << "\n";
  }
  return absl::OkStatus();
}

int RunBenchmark() {
  const absl::StatusOr<std::unique_ptr<Ops>> ops = MakeCudaOps(0);
  if (absl::IsFailedPrecondition(ops.status())) {
    std::cout << "skipped: " << ops.status().message() << "\n";
    return kSkipped;
  }
  const absl::Status status = ops.ok() ? Run(ops->get()) : ops.status();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return causeway::RunBenchmark();
}
