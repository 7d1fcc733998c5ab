// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The tensor operations that a transformer's training step is written over
// (worker/model/transformer.cc) and that each backend implements: the CPU in
// ops_cpu.cc. What each operation computes is defined by the scalar code of the
// same name in ops_reference.h; a backend is tested against it.
//
// Conventions
// * Every pointer except in the Copy functions is device memory from Allocate
//   of the same object. The CPU backend's device is the host, so any host
//   pointer will do there.
// * Matrices are row-major and dense. A "row" is one token; rows of a batch are
//   ordered sequence by sequence. Sizes are in values, not bytes.
// * What is declared `float` is fp32. Activations, their gradients and the
//   weights of Linear are declared `void`: fp32 or bf16, as the backend's
//   activation_bytes() says; sums over them are fp32 in any case.
// * Operations run in the order they are called. They may be asynchronous;
//   Synchronize, the copies to the host and SquaredNorm wait for everything
//   before them.
// * Gradients of parameters are accumulated (+=; GradientSum), gradients of
//   activations are written (=), unless the operation says otherwise.
// * Arguments are the caller's contract: a violation is a bug and is CHECKed
//   where that is cheap. Allocate can fail, and so can a device: after its
//   first error, which Synchronize reports, nothing more is done, and sums are
//   not a number.
// * An Ops object is used by one thread at a time. Results depend on the
//   arguments and on the backend's thread count only.
#ifndef WORKER_MODEL_OPS_H_
#define WORKER_MODEL_OPS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "glog/logging.h"

namespace causeway {

// Causal self-attention over the output of a fused projection: each row is
// [query heads | key heads | value heads], head_dim values each. Query head h
// reads key and value head h / (heads / kv_heads) (grouped-query attention,
// Ainslie et al. 2023).
struct AttentionShape {
  int64_t batch = 0;
  int64_t length = 0;
  int64_t heads = 0;
  // A divisor of heads.
  int64_t kv_heads = 0;
  // Even.
  int64_t head_dim = 0;

  // constexpr is what makes them callable on devices.
  constexpr int64_t rows() const { return batch * length; }
  constexpr int64_t query_width() const { return heads * head_dim; }
  constexpr int64_t kv_width() const { return kv_heads * head_dim; }
  constexpr int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
};

// Cosines and sines of the rotary embedding: [length][head_dim / 2] each.
struct RopeTable {
  const float* cosine = nullptr;
  const float* sine = nullptr;
};

enum class RopeDirection {
  kForward,
  // The transpose of the rotation: gradients of the output to the input.
  kBackward,
};

// y <- x W^T; weight is [out, in], as in ModelLayout.
struct LinearShape {
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out = 0;
};

// One AdamW update (Loshchilov & Hutter 2019, algorithm 2, as torch.optim.AdamW
// with t = the update's number from 1):
//   g <- gradient_scale * gradient
//   m <- beta1 m + (1 - beta1) g;    v <- beta2 v + (1 - beta2) g^2
//   p <- p (1 - learning_rate weight_decay)
//        - step_size m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
struct AdamWCoefficients {
  float gradient_scale = 1;
  float beta1 = 0;
  float beta2 = 0;
  // learning_rate / (1 - beta1^t).
  float step_size = 0;
  // 1 / sqrt(1 - beta2^t).
  float inverse_sqrt_correction2 = 0;
  float epsilon = 0;
  // 1 - learning_rate * weight_decay.
  float decay = 1;
};

// Where gradients of parameters are added up: fp32, or, where activations are
// bf16, bf16, too. That takes half of the memory and of the traffic; each sum
// is made in fp32 and rounded, to nearest, ties to even.
class GradientSum {
 public:
  // Implicit: fp32 is what there is nearly everywhere.
  GradientSum(float* values)  // NOLINT(google-explicit-constructor)
      : values_(values) {}
  static GradientSum Bf16(void* values) {
    GradientSum sum(nullptr);
    sum.values_ = values;
    sum.value_bytes_ = 2;
    return sum;
  }

  GradientSum operator+(int64_t offset) const {
    GradientSum sum = *this;
    sum.values_ = static_cast<char*>(values_) + offset * value_bytes_;
    return sum;
  }

  void* data() const { return values_; }
  bool is_bf16() const { return value_bytes_ == 2; }
  // Not of one in bf16.
  float* fp32() const {
    CHECK(!is_bf16());
    return static_cast<float*>(values_);
  }

 private:
  void* values_ = nullptr;
  int64_t value_bytes_ = sizeof(float);
};

// Names a series of operations by all that they depend on but the contents of
// device memory: addresses and numbers.
using ReplayKey = std::array<uint64_t, 5>;

class Ops {
 public:
  virtual ~Ops() = default;

  // Memory, aligned to 64 bytes at least and set to zero bytes. `bytes` may be
  // 0. RESOURCE_EXHAUSTED with the size asked for if there is not enough.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  // Frees memory of Allocate, after the operations that were called before;
  // `bytes` is what was asked for.
  virtual void Free(void* memory, size_t bytes) = 0;

  // Bytes that Allocate can still give; the most there are if nobody knows.
  virtual int64_t FreeBytes() const {
    return std::numeric_limits<int64_t>::max();
  }
  // How often memory was taken, by Allocate and by operations for themselves.
  // A training step, but for the first ones, takes none.
  int64_t allocations() const { return allocations_; }
  // How often the host has waited for everything before.
  int64_t waits() const { return waits_; }

  // `host` may change when it returns. Short copies do not wait.
  virtual void CopyToDevice(const void* host, size_t bytes, void* device) = 0;
  virtual void CopyToHost(const void* device, size_t bytes, void* host) = 0;
  // Waits for the operations before. The first error of any of them, with what
  // to do about it; it stays.
  virtual absl::Status Synchronize() = 0;

  // Does what `operations` does, which calls operations of this object that
  // neither take or free memory, nor copy from or to the host, nor wait. A
  // backend may note what the operations with a key are, and from then on do
  // that without calling `operations`: with the same key they must be the same
  // on the device, and have no other effect that anybody needs.
  virtual void Replay(const ReplayKey& /*key*/,
                      absl::FunctionRef<void()> operations) {
    operations();
  }

  // Size of an activation: 4 (fp32) or 2 (bf16).
  virtual int64_t activation_bytes() const = 0;
  // Logits that should exist at a time: enough of them for matrix products to
  // be efficient, and few enough for the caches or for memory.
  virtual int64_t logits_at_a_time() const = 0;
  // to[0, size) <- from, rounded to activations, to nearest, ties to even.
  virtual void RoundToActivations(const float* from, int64_t size,
                                  void* to) = 0;
  // The same, but each value goes to one of its two neighbours at random, such
  // that its mean is the value: by the random numbers of ops_reference.h, which
  // `seed` and the value's place decide. Values that activations can hold, and
  // all where they are fp32, stay as they are.
  virtual void RoundToActivationsAtRandom(const float* from, int64_t size,
                                          uint64_t seed, void* to) = 0;
  // to[0, size) <- from, which are activations.
  virtual void WidenActivations(const void* from, int64_t size, float* to) = 0;
  virtual void CopyActivationsToHost(const void* from, int64_t size,
                                     float* host) = 0;

  // to[0, size) <- from[0, size).
  virtual void Copy(const float* from, int64_t size, float* to) = 0;
  // values[0, size) <- 0.
  virtual void Zero(int64_t size, float* values) = 0;
  // total += scale * the sum of the values, in double.
  virtual void AddSum(const float* values, int64_t size, double scale,
                      double* total) = 0;
  // The sum of squares, in double.
  virtual double SquaredNorm(const float* values, int64_t size) = 0;

  // output[r] <- table[tokens[r]]; table is [vocabulary, width].
  virtual void Embedding(const int32_t* tokens, const float* table,
                         int64_t rows, int64_t width, void* output) = 0;
  // d_table[tokens[r]] += d_output[r], rows in order.
  virtual void EmbeddingBackward(const int32_t* tokens, const void* d_output,
                                 int64_t rows, int64_t width,
                                 GradientSum d_table) = 0;

  // The residual stream and its norm in one pass (Zhang & Sennrich 2019):
  //   sum[r] <- x[r] + delta[r]      (delta null: nothing is added nor written)
  //   inverse_rms[r] <- 1 / sqrt(mean(sum[r]^2) + epsilon)
  //   normalized[r] <- sum[r] * inverse_rms[r] * gain
  // `sum` may be `x` or `delta`.
  virtual void RmsNorm(const void* x, const void* delta, const float* gain,
                       int64_t rows, int64_t width, float epsilon, void* sum,
                       float* inverse_rms, void* normalized) = 0;
  // Backward of normalized = norm(x):
  //   d_x += or = gradient of x    (accumulate: +=)
  //   d_gain += gradient of gain
  //   normalized <- the forward's output again, so that nobody has to keep it.
  // No two arrays may overlap.
  virtual void RmsNormBackward(const void* d_normalized, const void* x,
                               const float* inverse_rms, const float* gain,
                               int64_t rows, int64_t width, bool accumulate,
                               void* d_x, GradientSum d_gain,
                               void* normalized) = 0;

  // output[rows, out] <- input[rows, in] weight^T.
  virtual void Linear(const void* input, const void* weight,
                      const LinearShape& shape, void* output) = 0;
  // d_input[rows, in] <- d_output[rows, out] weight.
  virtual void LinearInputGradient(const void* d_output, const void* weight,
                                   const LinearShape& shape, void* d_input) = 0;
  // d_weight[out, in] += d_output^T input.
  virtual void LinearWeightGradient(const void* d_output, const void* input,
                                    const LinearShape& shape,
                                    GradientSum d_weight) = 0;

  // Rotates the query and key heads of each row of qkv (or of its gradient) in
  // place: pairs (i, i + head_dim / 2) by the angle of (position, i); position
  // is the row's index in its sequence (Su et al. 2021, in the half-split order
  // of Hugging Face's Llama).
  virtual void Rope(const AttentionShape& shape, const RopeTable& table,
                    RopeDirection direction, void* qkv) = 0;

  // output[r, h] <- sum_{s <= r} softmax_s(q_r k_s / sqrt(head_dim)) v_s.
  // output is [rows, query_width]; log_sum_exp is [batch][heads][length], the
  // logarithm of each softmax's denominator, all that the backward needs of it.
  virtual void Attention(const AttentionShape& shape, const void* qkv,
                         void* output, float* log_sum_exp) = 0;
  virtual void AttentionBackward(const AttentionShape& shape, const void* qkv,
                                 const void* output, const float* log_sum_exp,
                                 const void* d_output, void* d_qkv) = 0;

  // Each row of gate_up is [gate | up], `width` values each:
  //   output <- silu(gate) * up, silu(x) = x / (1 + exp(-x))  (Shazeer 2020).
  virtual void SwiGlu(const void* gate_up, int64_t rows, int64_t width,
                      void* output) = 0;
  // Also writes the forward's output again. d_gate_up may be gate_up, and
  // output may be d_output.
  virtual void SwiGluBackward(const void* gate_up, const void* d_output,
                              int64_t rows, int64_t width, void* d_gate_up,
                              void* output) = 0;

  // losses[r] <- -log softmax(logits[r])[targets[r]]. Logits become
  // gradient_scale * the gradient of losses[r] to them, or, without it, values
  // that are not specified.
  virtual void CrossEntropy(const int32_t* targets, int64_t rows,
                            int64_t vocab_size,
                            std::optional<float> gradient_scale, void* logits,
                            float* losses) = 0;

  // Updates parameters and moments in place. With `estimate`, which may be
  // `gradients`, only writes there where the parameters would go.
  virtual void AdamW(const AdamWCoefficients& coefficients,
                     const float* gradients, int64_t size, float* parameters,
                     float* first_moment, float* second_moment,
                     float* estimate) = 0;

 protected:
  void CountAllocation() { ++allocations_; }
  void CountWait() { ++waits_; }

 private:
  int64_t allocations_ = 0;
  int64_t waits_ = 0;
};

}  // namespace causeway

#endif  // WORKER_MODEL_OPS_H_
