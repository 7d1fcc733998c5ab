// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The tensor operations of a transformer's training step
// (worker/model/transformer.cc). Each backend implements them, the CPU in
// ops_cpu.cc. The scalar code of the same name in ops_reference.h defines what
// each operation computes; backends are tested against it.
//
// Conventions
// * Every pointer except in the Copy functions is device memory from Allocate
//   of the same object. The CPU backend's device is the host, so any host
//   pointer will do there.
// * Matrices are row-major and dense. A "row" is one token; rows of a batch are
//   ordered sequence by sequence. Sizes are in values, not bytes.
// * `float` arguments are fp32. Activations, their gradients and the weights of
//   Linear are `void`: fp32 or bf16, as the backend's activation_bytes() says;
//   sums over them are always fp32.
// * Operations run in the order they are called. They may be asynchronous;
//   Synchronize, the copies to the host and SquaredNorm wait for everything
//   before them.
// * Gradients of parameters are accumulated (+=), gradients of
//   activations are written (=), unless the operation says otherwise.
// * Arguments are the caller's contract: a violation is a bug and is CHECKed
//   where that is cheap. Allocate can fail, and so can a device: after its
//   first error, which Synchronize reports, operations do nothing, and sums are
//   NaN.
// * One thread at a time uses an Ops object. Results depend on the arguments
//   and on the backend's thread count only.
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
#include "absl/types/span.h"
#include "glog/logging.h"

namespace causeway {

// The shape of causal self-attention over the output of a fused projection:
// each row is [query heads | key heads | value heads], head_dim values each.
// Query head h reads key and value head h / (heads / kv_heads) (grouped-query
// attention, Ainslie et al. 2023).
struct AttentionShape {
  int64_t batch = 0;
  int64_t length = 0;
  int64_t heads = 0;
  // A divisor of heads.
  int64_t kv_heads = 0;
  // Even.
  int64_t head_dim = 0;
  // Attention must compute the output of rows [first, length) of each sequence;
  // it may compute earlier rows as well.
  int64_t first = 0;
  // Device memory: for each row, the position in its sequence at which its
  // document begins. A row sees only its document. If null, a sequence is one
  // document.
  const int32_t* document_begin = nullptr;

  // constexpr makes these callable on devices.
  constexpr int64_t rows() const { return batch * length; }
  constexpr int64_t query_width() const { return heads * head_dim; }
  constexpr int64_t kv_width() const { return kv_heads * head_dim; }
  // The query and key heads, which RoPE and QkNorm change, begin a row.
  constexpr int64_t qk_heads() const { return heads + kv_heads; }
  constexpr int64_t qk_width() const { return qk_heads() * head_dim; }
  constexpr int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
};

// Groups of values in a row of the fused projection that QkNorm normalizes one
// by one, with the same gain.
struct QkNormPart {
  int64_t groups = 0;
  // The values of a group, and of the gain.
  int64_t width = 0;
  // The place in the row of the first group, and of its first value.
  int64_t first_group = 0;
  int64_t offset = 0;
  // The place of the gain in the gains.
  int64_t gain = 0;
};

// The groups that QkNorm normalizes: each head or, across heads, all query
// heads of a row as one group, and all its key heads as another.
struct QkNormShape {
  constexpr QkNormShape(const AttentionShape& shape, bool across_heads)
      : rows(shape.rows()),
        row_width(shape.qkv_width()),
        qk_width(shape.qk_width()) {
    query.groups = across_heads ? 1 : shape.heads;
    key.groups = across_heads ? 1 : shape.kv_heads;
    query.width = shape.query_width() / query.groups;
    key.width = shape.kv_width() / key.groups;
    key.first_group = query.groups;
    key.offset = shape.query_width();
    key.gain = query.width;
  }

  constexpr int64_t groups() const { return query.groups + key.groups; }
  constexpr int64_t gains() const { return query.width + key.width; }

  int64_t rows = 0;
  int64_t row_width = 0;
  int64_t qk_width = 0;
  QkNormPart query;
  QkNormPart key;
};

// The cosines and sines of the rotary embedding: [length][head_dim / 2] each.
struct RopeTable {
  const float* cosine = nullptr;
  const float* sine = nullptr;
};

enum class RopeDirection {
  kForward,
  // The transpose of the rotation, which turns gradients of the output into
  // gradients of the input.
  kBackward,
};

// The shape of y <- x W^T; weight is [out, in], as in ModelLayout.
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

// One iteration of Newton-Schulz: each singular value s of a matrix becomes
// a s + b s^3 + c s^5, and the singular vectors stay.
struct Quintic {
  float a = 0;
  float b = 0;
  float c = 0;
};

// Returns how many fp32 values of scratch memory Ops::Orthogonalize takes.
constexpr int64_t OrthogonalizeScratchSize(int64_t rows, int64_t columns) {
  const int64_t least = rows < columns ? rows : columns;
  return rows * columns + 2 * least * least;
}

// Identifies a series of operations by everything that they depend on except
// the contents of device memory: addresses and numbers.
using ReplayKey = std::array<uint64_t, 5>;

class Ops {
 public:
  virtual ~Ops() = default;

  // Returns memory that is aligned to at least 64 bytes and zeroed. `bytes` may
  // be 0.
  //   RESOURCE_EXHAUSTED  there is not enough; names the size.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  // Frees memory from Allocate after the earlier operations; `bytes` is its
  // size.
  virtual void Free(void* memory, size_t bytes) = 0;

  // Returns how many bytes Allocate can still give, or the largest number if
  // that is unknown.
  virtual int64_t FreeBytes() const {
    return std::numeric_limits<int64_t>::max();
  }
  // Returns how often Allocate and operations have allocated memory. Training
  // steps allocate none after the first ones.
  int64_t allocations() const { return allocations_; }
  // Returns how often the host has waited for all earlier operations.
  int64_t waits() const { return waits_; }

  // Copies from the host; `host` may change when this returns. Short copies do
  // not wait.
  virtual void CopyToDevice(const void* host, size_t bytes, void* device) = 0;
  virtual void CopyToHost(const void* device, size_t bytes, void* host) = 0;
  // Waits for the earlier operations. Returns their first error, with what to
  // do about it; later calls return the same.
  virtual absl::Status Synchronize() = 0;

  // Runs `operations`, which calls operations of this object that neither
  // allocate or free memory, nor copy from or to the host, nor wait. A backend
  // may record the operations of a key, and later repeat the recording without
  // calling `operations`. So the operations of a key must always be the same on
  // the device, and `operations` must have no other necessary effect.
  virtual void Replay(const ReplayKey& /*key*/,
                      absl::FunctionRef<void()> operations) {
    operations();
  }

  // Prepares to repeat the operations of a key without running them, if the
  // backend records. The same operations must have run with other addresses.
  virtual void PrepareReplay(const ReplayKey& /*key*/,
                             absl::FunctionRef<void()> /*operations*/) {}

  // Returns the bytes of an activation: 4 (fp32) or 2 (bf16).
  virtual int64_t activation_bytes() const = 0;
  // Returns how many logits should exist at a time: enough for matrix products
  // to be efficient, and few enough for the caches or for memory.
  virtual int64_t logits_at_a_time() const = 0;
  // to[0, size) <- from, rounded to activations, to nearest, ties to even.
  virtual void RoundToActivations(const float* from, int64_t size,
                                  void* to) = 0;
  virtual void CopyActivationsToHost(const void* from, int64_t size,
                                     float* host) = 0;

  // to[0, size) <- from[0, size).
  virtual void Copy(const float* from, int64_t size, float* to) = 0;
  // values[0, size) <- 0.
  virtual void Zero(int64_t size, float* values) = 0;
  // total += scale * the sum of the values, in double.
  virtual void AddSum(const float* values, int64_t size, double scale,
                      double* total) = 0;
  // Returns the sum of squares, in double.
  virtual double SquaredNorm(const float* values, int64_t size) = 0;

  // to[0, size) <- x + y, which are activations. `to` may be x or y.
  virtual void AddActivations(const void* x, const void* y, int64_t size,
                              void* to) = 0;

  // output[r] <- table[tokens[r]]; table is [vocabulary, width].
  virtual void Embedding(const int32_t* tokens, const float* table,
                         int64_t rows, int64_t width, void* output) = 0;
  // d_table[tokens[r]] += d_output[r], rows in order.
  virtual void EmbeddingBackward(const int32_t* tokens, const void* d_output,
                                 int64_t rows, int64_t width,
                                 float* d_table) = 0;

  // Computes the residual stream and its norm in one pass (Zhang & Sennrich
  // 2019):
  //   sum[r] <- x[r] + delta[r]      (delta null: neither added nor written)
  //   inverse_rms[r] <- 1 / sqrt(mean(sum[r]^2) + epsilon)
  //   normalized[r] <- sum[r] * inverse_rms[r] * gain
  // `sum` may be `x` or `delta`.
  virtual void RmsNorm(const void* x, const void* delta, const float* gain,
                       int64_t rows, int64_t width, float epsilon, void* sum,
                       float* inverse_rms, void* normalized) = 0;
  // Computes the backward pass of normalized = norm(x):
  //   d_x += or = gradient of x (accumulate: +=) d_gain += gradient of gain
  //   normalized <- the forward's output again, so that it need not be kept.
  // No two arrays may overlap.
  virtual void RmsNormBackward(const void* d_normalized, const void* x,
                               const float* inverse_rms, const float* gain,
                               int64_t rows, int64_t width, bool accumulate,
                               void* d_x, float* d_gain, void* normalized) = 0;

  // output[rows, out] <- input[rows, in] weight^T.
  virtual void Linear(const void* input, const void* weight,
                      const LinearShape& shape, void* output) = 0;
  // d_input[rows, in] <- d_output[rows, out] weight.
  virtual void LinearInputGradient(const void* d_output, const void* weight,
                                   const LinearShape& shape, void* d_input) = 0;
  // d_weight[out, in] += d_output^T input.
  virtual void LinearWeightGradient(const void* d_output, const void* input,
                                    const LinearShape& shape,
                                    float* d_weight) = 0;

  // values[r] += bias; rows have `width` values.
  virtual void AddBias(const float* bias, int64_t rows, int64_t width,
                       void* values) = 0;
  // d_bias += the sum of the rows of d_values.
  virtual void AddBiasBackward(const void* d_values, int64_t rows,
                               int64_t width, float* d_bias) = 0;

  // Normalizes the query and key heads of qkv in place, group by group, as
  // RmsNorm does a row (Henry et al. 2020; by heads in the form of Qwen3,
  // across heads in that of OLMo 2). gains is [query | key], a gain for the
  // groups of each. For the backward pass it also writes
  //   raw[rows][qk_width] <- the heads as they were
  //   inverse_rms[rows][groups].
  virtual void QkNorm(const QkNormShape& shape, const float* gains,
                      float epsilon, void* qkv, void* raw,
                      float* inverse_rms) = 0;
  // Turns the query and key heads of d_qkv, the gradient of the normalized
  // heads, into the gradient of `raw` in place.
  //   d_gains += gradient of gains.
  virtual void QkNormBackward(const QkNormShape& shape, const void* raw,
                              const float* inverse_rms, const float* gains,
                              void* d_qkv, float* d_gains) = 0;

  // Rotates the query and key heads of each row of qkv (or of its gradient) in
  // place: pairs (i, i + head_dim / 2) by the angle of (position, i); position
  // is the row's index in its sequence (Su et al. 2021, in the half-split order
  // of Hugging Face's Llama).
  virtual void Rope(const AttentionShape& shape, const RopeTable& table,
                    RopeDirection direction, void* qkv) = 0;

  // output[r, h] <- sum_s softmax_s(q_r k_s / sqrt(head_dim)) v_s over the
  // positions s <= r that r sees.
  // output is [rows, query_width]. log_sum_exp is [batch][heads][length]: the
  // logarithm of each softmax's denominator, which is all that the backward
  // pass needs of the softmax.
  virtual void Attention(const AttentionShape& shape, const void* qkv,
                         void* output, float* log_sum_exp) = 0;
  virtual void AttentionBackward(const AttentionShape& shape, const void* qkv,
                                 const void* output, const float* log_sum_exp,
                                 const void* d_output, void* d_qkv) = 0;

  // Each row of gate_up is [gate | up], `width` values each:
  //   output <- silu(gate) * up, silu(x) = x / (1 + exp(-x))  (Shazeer 2020).
  virtual void SwiGlu(const void* gate_up, int64_t rows, int64_t width,
                      void* output) = 0;
  // Computes the gradient, and writes the forward's output again. d_gate_up may
  // be gate_up, and output may be d_output.
  virtual void SwiGluBackward(const void* gate_up, const void* d_output,
                              int64_t rows, int64_t width, void* d_gate_up,
                              void* output) = 0;

  // losses[r] <- -log softmax(logits[r])[targets[r]], or 0 if the target is
  // negative. With `gradient_scale`, logits become gradient_scale * the
  // gradient of losses[r]; without it they become unspecified.
  virtual void CrossEntropy(const int32_t* targets, int64_t rows,
                            int64_t vocab_size,
                            std::optional<float> gradient_scale, void* logits,
                            float* losses) = 0;

  // Updates parameters and moments in place. With `estimate`, which may be
  // `gradients`, writes the updated parameters only there, and nothing else.
  virtual void AdamW(const AdamWCoefficients& coefficients,
                     const float* gradients, int64_t size, float* parameters,
                     float* first_moment, float* second_moment,
                     float* estimate) = 0;

  // to[0, size) <- a x + b y. `to` may be x or y.
  virtual void LinearCombination(float a, const float* x, float b,
                                 const float* y, int64_t size, float* to) = 0;
  // Divides `matrix`, which is [rows, columns], by its Frobenius norm + 1e-7,
  // and then applies the `iterations` to each singular value, in order:
  //   X <- (a I + b A + c A A) X, A = X X^T         (rows <= columns)
  //   X <- X (a I + b A + c A A), A = X^T X         (rows > columns)
  // Products and intermediate values are fp32 or bf16, as is fastest on the
  // backend, and sums are fp32. The result does not depend on the number of
  // threads. `scratch` is OrthogonalizeScratchSize(rows, columns) values of
  // device memory.
  virtual void Orthogonalize(absl::Span<const Quintic> iterations, int64_t rows,
                             int64_t columns, float* matrix,
                             float* scratch) = 0;

 protected:
  void CountAllocation() { ++allocations_; }
  void CountWait() { ++waits_; }

 private:
  int64_t allocations_ = 0;
  int64_t waits_ = 0;
};

}  // namespace causeway

#endif  // WORKER_MODEL_OPS_H_
