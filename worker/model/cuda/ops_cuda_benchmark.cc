// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures training speed on device 0: whole inner steps (forward, backward,
// clipping, AdamW) of two models in the Llama layout, and where their time
// goes; their matrix products, attention and AdamW by themselves. Attention is
// measured by our kernels and by cuDNN. tests/gpu/pytorch.py reads the JSON and
// measures the same in PyTorch.
//
//   ops_cuda_benchmark [--json FILE] [--peak_tflops N] [--small]
//
// A micro-batch is smaller where memory is short, and a case that does not fit
// at all is left out; the JSON says so. Model FLOP utilization counts 6
// operations for each token and parameter of a matrix product, and causal
// attention's 6 * layers * width * length for each token; recomputation does
// not count. Figures are from the medians over the repetitions. Exits with 77
// if there is no GPU.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "nlohmann/json.hpp"
#include "proto/run_config.pb.h"
#include "worker/model/cuda/ops_cuda.h"
#include "worker/model/cuda/testing/models_benchmark.h"
#include "worker/model/cuda/testing/products_benchmark.h"
#include "worker/model/device_array.h"
#include "worker/model/ops.h"
#include "worker/model/transformer.h"

ABSL_FLAG(std::string, json, "", "file to write the figures to");
ABSL_FLAG(double, peak_tflops, 989,
          "dense bf16 operations of the device in 1e12 per second; the default "
          "is that of an H100 or H200 SXM");
ABSL_FLAG(bool, small, false, "tiny sizes, to try the program in the emulator");

namespace causeway {
namespace {

constexpr int kSkipped = 77;

// The sizes of GPT-2 and of GPT-3 with 1.3 billion parameters, in the Llama
// layout, with a multiple of 128 tokens above GPT-2's 50257.
const std::vector<BenchmarkModel> kModels = {
    {"124M", 12, 768, 2048, 12, 1024, 50304, 32},
    {"1.3B", 24, 2048, 5504, 16, 2048, 50304, 8},
};
const std::vector<AttentionShape> kAttention = {
    {32, 1024, 12, 12, 64}, {8, 2048, 16, 16, 128}, {8, 4096, 32, 8, 128}};
const std::vector<BenchmarkModel> kSmallModels = {
    {"small", 2, 32, 64, 2, 16, 256, 2}};
const std::vector<AttentionShape> kSmallAttention = {{1, 32, 2, 1, 16}};

// A training step takes this besides the model and the vectors: for scratch
// memory, libraries and graphs.
constexpr int64_t kSpareBytes = int64_t{1} << 30;
// The steps whose operations are timed.
constexpr int kTimedSteps = 5;

v1::ModelConfig ConfigOf(const BenchmarkModel& model) {
  v1::ModelConfig config;
  config.set_layers(model.layers);
  config.set_hidden_size(model.hidden);
  config.set_intermediate_size(model.intermediate);
  config.set_heads(model.heads);
  config.set_kv_heads(model.heads);
  config.set_vocab_size(model.vocab);
  config.set_sequence_length(model.length);
  config.set_rope_theta(10000);
  config.set_norm_epsilon(1e-5);
  config.set_tie_embeddings(true);
  return config;
}

// to[0, size) <- the values, repeated.
template <typename T>
void Fill(const std::vector<T>& values, int64_t size, Ops* ops, T* to) {
  const auto most = static_cast<int64_t>(values.size());
  for (int64_t begin = 0; begin < size; begin += most) {
    const int64_t part = std::min(most, size - begin);
    ops->CopyToDevice(values.data(), part * sizeof(T), to + begin);
  }
}

void Randomize(float deviation, Ops* ops, DeviceArray<float>& array) {
  Fill(SomeNormalValues(deviation), array.size(), ops, array.data());
}
void Randomize(float deviation, Ops* ops, DeviceArray<uint16_t>& array) {
  Fill(AsBf16Bits(SomeNormalValues(deviation)), array.size(), ops,
       array.data());
}

constexpr AdamWCoefficients kCoefficients = {.beta1 = 0.9f,
                                             .beta2 = 0.95f,
                                             .step_size = 1e-4f,
                                             .inverse_sqrt_correction2 = 1,
                                             .epsilon = 1e-8f};

// A model in training, with all that an inner step needs.
class Training {
 public:
  // RESOURCE_EXHAUSTED if not even one sequence fits in the device's memory.
  static absl::StatusOr<std::unique_ptr<Training>> Create(
      const BenchmarkModel& model, Ops* ops) {
    auto training = std::make_unique<Training>();
    training->ops_ = ops;
    const v1::ModelConfig config = ConfigOf(model);
    const ModelLayout layout = MakeModelLayout(config);
    const int64_t size = layout.size;
    const int64_t vectors = 4 * size * int64_t{sizeof(float)};
    int64_t batch = model.micro_batch;
    while (batch > 1 &&
           Transformer::BytesNeeded(config, {.micro_batch = batch}, ops) +
                   vectors + kSpareBytes >
               ops->FreeBytes()) {
      batch /= 2;
    }
    ASSIGN_OR_RETURN(training->model_,
                     Transformer::Create(config, {.micro_batch = batch}, ops));
    for (DeviceArray<float>& vector : training->vectors_) {
      ASSIGN_OR_RETURN(vector, DeviceArray<float>::Create(ops, size));
    }
    // InitialParameters would take longer than all steps.
    float* const parameters = training->vectors_[0].data();
    const std::vector<float> weights = SomeNormalValues(0.02f);
    const std::vector<float> gains(static_cast<size_t>(model.hidden), 1);
    for (const TensorSpec& tensor : layout.tensors) {
      Fill(tensor.size == model.hidden ? gains : weights, tensor.size, ops,
           parameters + tensor.offset);
    }
    training->batch_ = batch;
    for (int64_t i = 0; i <= batch * model.length; ++i) {
      training->stream_.push_back(
          static_cast<int32_t>((i * i * 31 + i) % model.vocab));
    }
    return training;
  }

  absl::Status Step() {
    auto& [parameters, gradients, first_moment, second_moment] = vectors_;
    const absl::Span<const int32_t> span = stream_;
    ASSIGN_OR_RETURN(loss_, model_->ForwardBackward(
                                parameters.data(), span.first(tokens()),
                                span.last(tokens()), 1, gradients.data()));
    const double norm =
        std::sqrt(ops_->SquaredNorm(gradients.data(), gradients.size()));
    AdamWCoefficients coefficients = kCoefficients;
    coefficients.gradient_scale = static_cast<float>(std::min(1.0, 1 / norm));
    ops_->AdamW(coefficients, gradients.data(), gradients.size(),
                parameters.data(), first_moment.data(), second_moment.data(),
                /*estimate=*/nullptr);
    ops_->Zero(gradients.size(), gradients.data());
    return ops_->Synchronize();
  }

  const Transformer& model() const { return *model_; }
  int64_t size() const { return vectors_[0].size(); }
  int64_t batch() const { return batch_; }
  size_t tokens() const { return stream_.size() - 1; }
  double loss() const { return loss_; }

 private:
  Ops* ops_ = nullptr;
  std::unique_ptr<Transformer> model_;
  // Parameters, gradients, and AdamW's moments.
  std::array<DeviceArray<float>, 4> vectors_;
  int64_t batch_ = 0;
  std::vector<int32_t> stream_;
  double loss_ = 0;
};

absl::StatusOr<nlohmann::json> MeasureTraining(const BenchmarkModel& model,
                                               Ops* ops) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Training> training,
                   Training::Create(model, ops));
  ASSIGN_OR_RETURN(const double seconds,
                   MedianSeconds([&] { return training->Step(); }));
  // As the input the embedding is only looked up, but as the head it is
  // multiplied.
  const auto size = static_cast<double>(training->size());
  const double of_token = 6.0 * size + 6.0 * model.layers * model.hidden *
                                           static_cast<double>(model.length);
  const double rate = static_cast<double>(training->tokens()) / seconds;
  const double utilization =
      rate * of_token / (1e12 * absl::GetFlag(FLAGS_peak_tflops));
  const int64_t bytes = training->model().activation_bytes();
  std::cout << absl::StrFormat(
      "training %-5s %5.0f M parameters  %9.0f tokens/s  %5.1f %% of peak  "
      "%.1f GiB of activations  loss %.3f  micro-batch %d\n",
      model.name, size / 1e6, rate, 100 * utilization,
      static_cast<double>(bytes) / (1 << 30), training->loss(),
      training->batch());
  return nlohmann::json{{"model", model.name},
                        {"layers", model.layers},
                        {"hidden", model.hidden},
                        {"intermediate", model.intermediate},
                        {"heads", model.heads},
                        {"length", model.length},
                        {"micro_batch", training->batch()},
                        {"vocab", model.vocab},
                        {"parameters", training->size()},
                        {"tokens_per_second", rate},
                        {"utilization", utilization},
                        {"activation_bytes", bytes},
                        {"loss", training->loss()}};
}

// Measures where the time of a step goes, without graphs.
absl::StatusOr<nlohmann::json> MeasureOperations(const BenchmarkModel& model) {
  OperationTimes times;
  ASSIGN_OR_RETURN(const std::unique_ptr<Ops> ops,
                   MakeCudaOps(0, {.times = &times}));
  ASSIGN_OR_RETURN(const std::unique_ptr<Training> training,
                   Training::Create(model, ops.get()));
  RETURN_IF_ERROR(training->Step());
  times.clear();
  for (int i = 0; i < kTimedSteps; ++i) RETURN_IF_ERROR(training->Step());
  std::vector<std::pair<double, std::string>> slowest_first;
  double total = 0;
  double of_products = 0;
  for (const auto& [name, time] : times) {
    slowest_first.push_back({time.seconds, name});
    total += time.seconds;
  }
  std::sort(slowest_first.rbegin(), slowest_first.rend());
  nlohmann::json list;
  for (const auto& [seconds, name] : slowest_first) {
    const OperationTime& time = times[name];
    const double operations = time.floating_point_operations;
    if (operations > 0) of_products += seconds;
    std::cout << absl::StrFormat("%s %5.1f %%  %8.3f ms  %4d calls  %s",
                                 model.name, 100 * seconds / total,
                                 1e3 * seconds / kTimedSteps,
                                 time.calls / kTimedSteps, name);
    if (operations > 0) {
      std::cout << absl::StrFormat(": %.0f TFLOP/s",
                                   operations / seconds / 1e12);
    }
    std::cout << "\n";
    list.push_back({{"name", name},
                    {"seconds", seconds / kTimedSteps},
                    {"calls", time.calls / kTimedSteps},
                    {"floating_point_operations", operations / kTimedSteps}});
  }
  std::cout << absl::StrFormat(
      "%s a step: %.3f ms, %.1f %% in matrix products\n", model.name,
      1e3 * total / kTimedSteps, 100 * of_products / total);
  return nlohmann::json{{"model", model.name},
                        {"micro_batch", training->batch()},
                        {"seconds", total / kTimedSteps},
                        {"operations", list}};
}

absl::StatusOr<nlohmann::json> MeasureAttention(const AttentionShape& shape,
                                                const std::string& by,
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
      "attention of %d heads of %d, length %d, by %s: forward %.0f TFLOP/s, "
      "backward %.0f\n",
      shape.heads, shape.head_dim, shape.length, by,
      operations / forward / 1e12, 2.5 * operations / backward / 1e12);
  return nlohmann::json{{"by", by},
                        {"batch", shape.batch},
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
absl::StatusOr<nlohmann::json> MeasureAdamW(int64_t size, Ops* ops) {
  std::vector<DeviceArray<float>> arrays;
  for (int i = 0; i < 4; ++i) {
    ASSIGN_OR_RETURN(auto array, DeviceArray<float>::Create(ops, size));
    // Array 3, the second moment, is not negative and stays 0.
    if (i < 3) Randomize(1e-3f, ops, array);
    arrays.push_back(std::move(array));
  }
  ASSIGN_OR_RETURN(const double update, MedianSeconds([&] {
                     ops->AdamW(kCoefficients, arrays[0].data(), size,
                                arrays[1].data(), arrays[2].data(),
                                arrays[3].data(), /*estimate=*/nullptr);
                     return ops->Synchronize();
                   }));
  ASSIGN_OR_RETURN(const double copy, MedianSeconds([&] {
                     ops->Copy(arrays[0].data(), size, arrays[1].data());
                     return ops->Synchronize();
                   }));
  // AdamW moves 28 bytes for each value, the copy 8.
  const double bytes = 28 * static_cast<double>(size);
  const double ratio = 28 * copy / (8 * update);
  std::cout << absl::StrFormat("AdamW: %.0f GB/s, %.2f of a copy's\n",
                               bytes / update / 1e9, ratio);
  return nlohmann::json{{"values", size},
                        {"bytes_per_second", bytes / update},
                        {"ratio_to_copy", ratio}};
}

// Measures cases one by one, so that a case that fails does not end the others.
class Cases {
 public:
  using Measure = absl::FunctionRef<absl::StatusOr<nlohmann::json>(Ops*)>;

  // Adds figures to the list `kind`.
  void Run(const char* kind, absl::string_view name, Measure measure) {
    // Operations that have failed once do nothing afterwards.
    const absl::StatusOr<std::unique_ptr<Ops>> ops = MakeCudaOps(0);
    const absl::StatusOr<nlohmann::json> figures =
        ops.ok() ? measure(ops->get()) : ops.status();
    if (figures.ok()) {
      figures_[kind].push_back(*figures);
    } else {
      const std::string reason(figures.status().message());
      std::cout << kind << " " << name << " is left out: " << reason << "\n";
      figures_["left_out"].push_back(
          {{"kind", kind}, {"name", name}, {"reason", reason}});
      // FAILED_PRECONDITION means that there is no cuDNN.
      has_failed_ |= !absl::IsResourceExhausted(figures.status()) &&
                     !absl::IsFailedPrecondition(figures.status());
    }
    std::cout << std::flush;
    // The file exists even if a later case ends the program.
    if (!absl::GetFlag(FLAGS_json).empty()) {
      std::ofstream(absl::GetFlag(FLAGS_json)) << figures_ << "\n";
    }
  }

  // Returns whether a case has failed that could run here.
  bool has_failed() const { return has_failed_; }

 private:
  nlohmann::json figures_;
  bool has_failed_ = false;
};

int RunBenchmark() {
  const absl::StatusOr<int> devices = CountCudaDevices();
  if (absl::IsFailedPrecondition(devices.status())) {
    std::cout << "skipped: " << devices.status().message() << "\n";
    return kSkipped;
  }
  const bool small = absl::GetFlag(FLAGS_small);
  Cases cases;
  for (const BenchmarkModel& model : small ? kSmallModels : kModels) {
    cases.Run("training", model.name,
              [&](Ops* ops) { return MeasureTraining(model, ops); });
    cases.Run("operations", model.name,
              [&](Ops*) { return MeasureOperations(model); });
    cases.Run("products", model.name, [&](Ops* ops) {
      const int64_t rows = int64_t{model.micro_batch} * model.length;
      return MeasureProducts(
          model, std::min(rows, ops->logits_at_a_time() / model.vocab));
    });
  }
  for (const AttentionShape& shape : small ? kSmallAttention : kAttention) {
    const std::string name = absl::StrCat("of length ", shape.length);
    cases.Run("attention", name, [&](Ops*) -> absl::StatusOr<nlohmann::json> {
      ASSIGN_OR_RETURN(const std::unique_ptr<Ops> kernels,
                       MakeCudaOps(0, {.may_use_cudnn = false}));
      return MeasureAttention(shape, "kernels", kernels.get());
    });
    cases.Run("attention", absl::StrCat(name, " by cuDNN"),
              [&](Ops* ops) -> absl::StatusOr<nlohmann::json> {
                RETURN_IF_ERROR(PrepareCudnn(shape, *ops));
                return MeasureAttention(shape, "cuDNN", ops);
              });
  }
  cases.Run("adamw", "", [&](Ops* ops) {
    return MeasureAdamW(small ? 1000 : int64_t{256} << 20, ops);
  });
  return cases.has_failed() ? 1 : 0;
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return causeway::RunBenchmark();
}
