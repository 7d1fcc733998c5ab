// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures the training speed of the CPU backend, in tokens per second of whole
// inner steps (forward, backward, clipping, AdamW) of a fixed 10.8M-parameter
// model, beside a bound: the time that the step's matrix products alone take
// with the same library on the same partition, plus AdamW's bytes at the speed
// of a plain copy. Both alternate within one run, so that a busy machine
// disturbs them alike. Prints the minimum and the median over repetitions.
//
//   bazel run //worker/model:train_benchmark -- --threads=2 --repetitions=9
//
// The model is fixed so that figures can be compared over time: 6 blocks, width
// 384, SwiGLU width 1024, 6 heads, byte vocabulary (258), 256 tokens a
// sequence, 8 sequences a step. tests/peers/pytorch_train.py measures the same
// model in PyTorch.
//
// With --muon, steps of AdamW and of Muon alternate, and the last line has the
// time that Muon adds.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/statusor.h"
#include "common/os/thread_pool.h"
#include "common/tensors/model_layout.h"
#include "common/testing/stopwatch.h"
#include "glog/logging.h"
#include "proto/run_config.pb.h"
#include "worker/model/device_array.h"
#include "worker/model/gemm.h"
#include "worker/model/ops.h"
#include "worker/model/ops_cpu.h"
#include "worker/model/transformer.h"
#include "worker/optimizer/muon.h"

ABSL_FLAG(int, threads, 2, "Threads of the CPU backend.");
ABSL_FLAG(int, repetitions, 9, "Steps to time, after two to warm up.");
ABSL_FLAG(bool, bound, true, "Also measure the bound.");
ABSL_FLAG(bool, muon, false, "Also measure steps with Muon.");
ABSL_FLAG(bool, recompute_activations, false,
          "Recompute activations in the backward pass.");

namespace causeway {
namespace {

constexpr int64_t kBatch = 8;
constexpr int64_t kLength = 256;
constexpr int64_t kRows = kBatch * kLength;
constexpr int64_t kLayers = 6;
constexpr int64_t kHidden = 384;
constexpr int64_t kIntermediate = 1024;
constexpr int64_t kHeads = 6;
constexpr int64_t kVocab = 258;

v1::ModelConfig BenchmarkModel() {
  v1::ModelConfig config;
  config.set_layers(kLayers);
  config.set_hidden_size(kHidden);
  config.set_intermediate_size(kIntermediate);
  config.set_heads(kHeads);
  config.set_kv_heads(kHeads);
  config.set_vocab_size(kVocab);
  config.set_sequence_length(kLength);
  return config;
}

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  CHECK(value.ok()) << value.status();
  return *std::move(value);
}

// Runs one inner step at a time.
class Training {
 public:
  Training()
      : ops_(MakeCpuOps(absl::GetFlag(FLAGS_threads))),
        model_(ValueOrDie(Transformer::Create(
            BenchmarkModel(),
            {.micro_batch = kBatch,
             .recompute_activations =
                 absl::GetFlag(FLAGS_recompute_activations)},
            ops_.get()))),
        parameters_(NewVector()),
        gradients_(NewVector()),
        first_moment_(NewVector()),
        second_moment_(NewVector()) {
    if (absl::GetFlag(FLAGS_muon)) {
      muon_config_.set_optimizer(v1::TrainingConfig::MUON);
      muon_ = ValueOrDie(
          Muon::Create(muon_config_, model_->layout().tensors, ops_.get()));
    }
    const std::vector<float> initial = InitialParameters(model_->layout(), 1);
    ops_->CopyToDevice(initial.data(), parameters_.size_bytes(),
                       parameters_.data());
    for (int64_t i = 0; i <= kRows; ++i) {
      stream_.push_back(static_cast<int32_t>((i * i * 31 + i) % kVocab));
    }
  }

  int64_t size() const { return model_->layout().size; }
  int64_t activation_bytes() const { return model_->activation_bytes(); }

  void Step(bool muon = false) {
    const absl::Span<const int32_t> stream = stream_;
    loss_ = ValueOrDie(
        model_->ForwardBackward(parameters_.data(), stream.first(kRows),
                                stream.last(kRows), 1, gradients_.data()));
    const double norm = std::sqrt(ops_->SquaredNorm(gradients_.data(), size()));
    const auto scale = static_cast<float>(std::min(1.0, 1 / norm));
    if (muon) {
      for (const TensorSpec& tensor : model_->layout().tensors) {
        UpdateByMuon(tensor, scale);
      }
    } else {
      UpdateByAdamW(scale, 0, size());
    }
    ops_->Zero(size(), gradients_.data());
  }

  double loss() const { return loss_; }

 private:
  void UpdateByAdamW(float scale, int64_t at, int64_t size) {
    ops_->AdamW({.gradient_scale = scale,
                 .beta1 = 0.9f,
                 .beta2 = 0.95f,
                 .step_size = 1e-4f,
                 .inverse_sqrt_correction2 = 1,
                 .epsilon = 1e-8f},
                gradients_.data() + at, size, parameters_.data() + at,
                first_moment_.data() + at, second_moment_.data() + at,
                /*estimate=*/nullptr);
  }
  void UpdateByMuon(const TensorSpec& tensor, float scale) {
    const int64_t at = tensor.offset;
    if (!IsMuonMatrix(muon_config_, tensor)) {
      return UpdateByAdamW(scale, at, tensor.size);
    }
    muon_->Update(1e-4, scale,
                  {.rows = tensor.shape[0],
                   .columns = tensor.shape[1],
                   .gradient = gradients_.data() + at,
                   .momentum = first_moment_.data() + at,
                   .parameters = parameters_.data() + at});
  }

  DeviceArray<float> NewVector() {
    return ValueOrDie(DeviceArray<float>::Create(ops_.get(), size()));
  }

  const std::unique_ptr<Ops> ops_;
  const std::unique_ptr<Transformer> model_;
  DeviceArray<float> parameters_;
  DeviceArray<float> gradients_;
  DeviceArray<float> first_moment_;
  DeviceArray<float> second_moment_;
  v1::TrainingConfig muon_config_;
  // Null without --muon.
  std::unique_ptr<Muon> muon_;
  std::vector<int32_t> stream_;
  double loss_ = 0;
};

// Runs the matrix products of a step and nothing else.
class Bound {
 public:
  explicit Bound(int64_t parameters)
      : parameters_(parameters),
        pool_(absl::GetFlag(FLAGS_threads)),
        a_(kRows * 2 * kIntermediate, 0.5f),
        b_(kRows * 2 * kIntermediate, 0.25f),
        c_(kRows * 2 * kIntermediate, 0.0f) {}

  double MatrixSeconds() {
    const double begin = Seconds();
    for (int layer = 0; layer < kLayers; ++layer) {
      Linear(kHidden, 3 * kHidden);
      Attention();
      Linear(kHidden, kHidden);
      Linear(kHidden, 2 * kIntermediate);
      Linear(kIntermediate, kHidden);
    }
    Linear(kHidden, kVocab);
    return Seconds() - begin;
  }

  // AdamW reads parameter, gradient and two moments and writes all but the
  // gradient: 28 bytes a parameter.
  double AdamWSeconds() {
    if (source_.empty()) {
      source_.resize(static_cast<size_t>(parameters_) * 14, 1);
      target_.resize(source_.size(), 2);
    }
    const double begin = Seconds();
    pool_.Run([&](int worker) {
      const Slice slice = SliceOf(static_cast<int64_t>(source_.size()),
                                  pool_.threads(), worker, 64);
      std::memcpy(target_.data() + slice.begin, source_.data() + slice.begin,
                  static_cast<size_t>(slice.size()));
    });
    return Seconds() - begin;
  }

 private:
  // Runs the forward product, and those for the gradients of input and weight.
  void Linear(int64_t in, int64_t out) {
    pool_.Run([&](int worker) {
      const Slice rows = SliceOf(kRows, pool_.threads(), worker, 16);
      Gemm(Transpose::kNo, Transpose::kYes, rows.size(), out, in, 1,
           &a_[rows.begin * in], in, b_.data(), in, 0, &c_[rows.begin * out],
           out);
    });
    pool_.Run([&](int worker) {
      const Slice rows = SliceOf(kRows, pool_.threads(), worker, 16);
      Gemm(Transpose::kNo, Transpose::kNo, rows.size(), in, out, 1,
           &a_[rows.begin * out], out, b_.data(), in, 0, &c_[rows.begin * in],
           in);
    });
    pool_.Run([&](int worker) {
      const Slice slice = SliceOf(out, pool_.threads(), worker, 16);
      Gemm(Transpose::kYes, Transpose::kNo, slice.size(), in, kRows, 1,
           &a_[slice.begin], out, b_.data(), in, 1, &c_[slice.begin * in], in);
    });
  }

  // Runs two products forward and four backward, on and below the diagonal in
  // blocks of 64. The recomputation of scores is not part of the bound.
  void Attention() {
    constexpr int64_t kBlock = 64;
    constexpr int64_t kDim = kHidden / kHeads;
    constexpr int64_t kStride = 3 * kHidden;
    pool_.Run([&](int worker) {
      const Slice heads = SliceOf(kBatch * kHeads, pool_.threads(), worker);
      float* scores = &c_[worker * kBlock * kLength];
      for (int64_t head = heads.begin; head < heads.end; ++head) {
        const int64_t at =
            head / kHeads * kLength * kStride + head % kHeads * kDim;
        const float* query = &a_[at];
        const float* key = &b_[at];
        float* output = &c_[kRows * kHidden + at];
        for (int64_t first = 0; first < kLength; first += kBlock) {
          const int64_t keys = first + kBlock;
          // The products are Q K^T and dO V^T; P V and dS K; P^T dO and dS^T Q.
          for (int i = 0; i < 2; ++i) {
            Gemm(Transpose::kNo, Transpose::kYes, kBlock, keys, kDim, 1,
                 query + first * kStride, kStride, key, kStride, 0, scores,
                 keys);
            Gemm(Transpose::kNo, Transpose::kNo, kBlock, kDim, keys, 1, scores,
                 keys, key, kStride, 0, output + first * kStride, kStride);
            Gemm(Transpose::kYes, Transpose::kNo, keys, kDim, kBlock, 1, scores,
                 keys, query + first * kStride, kStride, 0, output, kStride);
          }
        }
      }
    });
  }

  const int64_t parameters_;
  ThreadPool pool_;
  std::vector<float> a_;
  std::vector<float> b_;
  std::vector<float> c_;
  std::vector<char> source_;
  std::vector<char> target_;
};

// Returns the peak resident memory of this process, as the kernel counts it.
int64_t PeakMemoryBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

void Print(const char* name, std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  std::printf("%s: %.0f tokens/s best, %.0f median (%.1f ms a step, best)\n",
              name, kRows / seconds[0], kRows / median, 1e3 * seconds[0]);
}

void RunBenchmark() {
  Training training;
  for (int i = 0; i < 2; ++i) training.Step();
  const int64_t peak = PeakMemoryBytes();
  const bool with_bound = absl::GetFlag(FLAGS_bound);
  std::unique_ptr<Bound> bound;
  if (with_bound) {
    bound = std::make_unique<Bound>(training.size());
    bound->MatrixSeconds();
    bound->AdamWSeconds();
  }
  std::vector<double> step_seconds;
  std::vector<double> bound_seconds;
  std::vector<double> muon_seconds;
  for (int i = 0; i < absl::GetFlag(FLAGS_repetitions); ++i) {
    const double begin = Seconds();
    training.Step();
    step_seconds.push_back(Seconds() - begin);
    if (absl::GetFlag(FLAGS_muon)) {
      const double muon_begin = Seconds();
      training.Step(/*muon=*/true);
      muon_seconds.push_back(Seconds() - muon_begin);
    }
    if (with_bound) {
      bound_seconds.push_back(bound->MatrixSeconds() + bound->AdamWSeconds());
    }
  }
  std::printf("parameters: %lld, loss after the last step: %.4f\n",
              static_cast<long long>(training.size()), training.loss());
  std::printf("memory: %.1f MB peak, %.1f MB of it activations\n",
              static_cast<double>(peak) / 1e6,
              static_cast<double>(training.activation_bytes()) / 1e6);
  Print("causeway", step_seconds);
  if (!muon_seconds.empty()) {
    Print("with Muon", muon_seconds);
    std::printf(
        "Muon adds: %.3f of a step (best against best)\n",
        *std::min_element(muon_seconds.begin(), muon_seconds.end()) /
                *std::min_element(step_seconds.begin(), step_seconds.end()) -
            1);
  }
  if (!with_bound) return;
  Print("bound", bound_seconds);
  std::printf("share of the bound: %.3f (best against best)\n",
              *std::min_element(bound_seconds.begin(), bound_seconds.end()) /
                  *std::min_element(step_seconds.begin(), step_seconds.end()));
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  causeway::RunBenchmark();
  return 0;
}
