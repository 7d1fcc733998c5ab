// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Implements the operations of worker/model/ops.h by the kernels of this
// directory, with activations in bf16. The device (ops_cuda.cu) provides
// memory, copies and matrix products.
//
// Besides ops.h, the kernels require that the widths of rows (of the model, of
// projections and of SwiGLU) are multiples of 8, that normalized rows have at
// most 32768 values, that heads have a multiple of 16 values and at most 128,
// and that memory is aligned to 16 bytes. With such widths,
// common/tensors/model_layout.h aligns tensors so. worker/model/device.h
// refuses other models.
#ifndef WORKER_MODEL_CUDA_KERNEL_OPS_H_
#define WORKER_MODEL_CUDA_KERNEL_OPS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "worker/model/cuda/attention_kernels.h"
#include "worker/model/cuda/device_code.h"
#include "worker/model/cuda/matrix_product.h"
#include "worker/model/cuda/projection_kernels.h"
#include "worker/model/cuda/row_kernels.h"
#include "worker/model/cuda/vector_kernels.h"
#include "worker/model/ops.h"

namespace causeway {

class KernelOps : public Ops {
 public:
  int64_t activation_bytes() const override { return sizeof(Bf16); }
  // 512 MiB hold thousands of rows, so that a product's last, partial tiles do
  // not matter.
  int64_t logits_at_a_time() const override { return int64_t{1} << 28; }

  void RoundToActivations(const float* from, int64_t size, void* to) override {
    Launch("rounding", RoundKernel, BlocksFor(size / kVector + kVector),
           kThreads, 0, from, size, AsBf16(to));
  }

  void AddSum(const float* values, int64_t size, double scale,
              double* total) override {
    const PartialSums partial = SumParts(SumKernel<false>, values, size);
    Launch("a sum", AddPartialSumsKernel, {.x = 1}, kWarpSize, 0,
           static_cast<const double*>(partial.sums), int64_t{partial.count},
           scale, total);
  }
  double SquaredNorm(const float* values, int64_t size) override {
    const PartialSums partial = SumParts(SumKernel<true>, values, size);
    double sums[kSumBlocks];
    CopyToHost(partial.sums, partial.count * sizeof(double), sums);
    if (!ok()) return std::numeric_limits<double>::quiet_NaN();
    double sum = 0;
    for (uint32_t i = 0; i < partial.count; ++i) sum += sums[i];
    return sum;
  }

  void AddActivations(const void* x, const void* y, int64_t size,
                      void* to) override {
    Launch("a sum of activations", AddKernel, BlocksFor(size / kVector),
           kThreads, 0, AsBf16(x), AsBf16(y), size, AsBf16(to));
  }

  void Embedding(const int32_t* tokens, const float* table, int64_t rows,
                 int64_t width, void* output) override {
    Launch("embedding", EmbeddingKernel, BlocksFor(rows * width / kVector),
           kThreads, 0, tokens, table, rows, width, AsBf16(output));
  }

  void EmbeddingBackward(const int32_t* tokens, const void* d_output,
                         int64_t rows, int64_t width, float* d_table) override {
    auto* const sorted_tokens =
        static_cast<int32_t*>(Scratch(2 * rows * sizeof(int32_t)));
    int32_t* const sorted_rows = sorted_tokens + rows;
    Launch("sorting tokens", SortTokensKernel, {.x = Blocks(rows, kSortRows)},
           kSortThreads, 0, tokens, rows, sorted_tokens, sorted_rows);
    Launch("the embedding's gradient", EmbeddingBackwardKernel,
           {.x = static_cast<uint32_t>(rows), .y = Blocks(width, kWarpValues)},
           kEmbeddingThreads, 0, sorted_tokens, sorted_rows, AsBf16(d_output),
           rows, width, d_table);
  }

  void RmsNorm(const void* x, const void* delta, const float* gain,
               int64_t rows, int64_t width, float epsilon, void* sum,
               float* inverse_rms, void* normalized) override {
    const auto launch = [&]<int kRows, int kParts>() {
      Launch("RMSNorm",
             delta == nullptr ? RmsNormKernel<false, kRows, kParts>
                              : RmsNormKernel<true, kRows, kParts>,
             {.x = Blocks(rows, kRows)}, RowThreads(width), 0, AsBf16(x),
             AsBf16(delta), gain, rows, width, epsilon, AsBf16(sum),
             inverse_rms, AsBf16(normalized));
    };
    InParts("RMSNorm", width, launch);
  }

  void RmsNormBackward(const void* d_normalized, const void* x,
                       const float* inverse_rms, const float* gain,
                       int64_t rows, int64_t width, bool accumulate, void* d_x,
                       float* d_gain, void* normalized) override {
    RmsNormBackwardOf(AsBf16(d_normalized), AsBf16(x), inverse_rms, gain, rows,
                      width, {.d = width, .x = width}, accumulate, AsBf16(d_x),
                      d_gain, AsBf16(normalized));
  }

  void Linear(const void* input, const void* weight, const LinearShape& shape,
              void* output) override {
    Multiply({.rows = shape.rows,
              .columns = shape.out,
              .inner = shape.in,
              .transpose_b = true},
             AsBf16(input), AsBf16(weight), output);
  }
  void LinearInputGradient(const void* d_output, const void* weight,
                           const LinearShape& shape, void* d_input) override {
    Multiply({.rows = shape.rows, .columns = shape.in, .inner = shape.out},
             AsBf16(d_output), AsBf16(weight), d_input);
  }
  void LinearWeightGradient(const void* d_output, const void* input,
                            const LinearShape& shape,
                            float* d_weight) override {
    Multiply({.rows = shape.out,
              .columns = shape.in,
              .inner = shape.rows,
              .transpose_a = true,
              .accumulate = true},
             AsBf16(d_output), AsBf16(input), d_weight);
  }

  void AddBias(const float* bias, int64_t rows, int64_t width,
               void* values) override {
    Launch("a bias", AddBiasKernel, BlocksFor(rows * width / kVector), kThreads,
           0, bias, rows, width, AsBf16(values));
  }
  void AddBiasBackward(const void* d_values, int64_t rows, int64_t width,
                       float* d_bias) override {
    const uint32_t blocks = PartialSumBlocks(rows);
    auto* const partial_sums =
        static_cast<float*>(Scratch(blocks * width * sizeof(float)));
    Launch("sums of rows", PartialColumnSumKernel, {.x = blocks}, kThreads, 0,
           AsBf16(d_values), rows, width, partial_sums);
    AddColumnSums("the gradient of a bias", partial_sums, blocks, width,
                  d_bias);
  }

  void QkNorm(const QkNormShape& shape, const float* gains, float epsilon,
              void* qkv, void* raw, float* inverse_rms) override {
    Launch("QK-norm", QkNormKernel,
           {.x = Blocks(shape.rows * shape.groups(), kThreads / kWarpSize)},
           kThreads, 0, shape, gains, epsilon, AsBf16(qkv), AsBf16(raw),
           inverse_rms);
  }
  void QkNormBackward(const QkNormShape& shape, const void* raw,
                      const float* inverse_rms, const float* gains, void* d_qkv,
                      float* d_gains) override {
    if (std::max(shape.query.width, shape.key.width) > kMostHeadDim) {
      // Only normalization across heads has such wide groups.
      for (const QkNormPart& part : {shape.query, shape.key}) {
        Bf16* const d = AsBf16(d_qkv) + part.offset;
        RmsNormBackwardOf(d, AsBf16(raw) + part.offset,
                          inverse_rms + part.first_group, gains + part.gain,
                          shape.rows, part.width,
                          {.d = shape.row_width,
                           .x = shape.qk_width,
                           .inverse_rms = shape.groups()},
                          /*accumulate=*/false, d, d_gains + part.gain,
                          /*normalized=*/nullptr);
      }
      return;
    }
    const uint32_t blocks = PartialSumBlocks(
        Blocks(shape.rows, kQkNormBackwardThreads / kWarpSize));
    auto* const partial_gains =
        static_cast<float*>(Scratch(blocks * shape.gains() * sizeof(float)));
    Launch("the gradient of QK-norm", QkNormBackwardKernel, {.x = blocks},
           kQkNormBackwardThreads, 0, shape, AsBf16(raw), inverse_rms, gains,
           AsBf16(d_qkv), partial_gains);
    AddColumnSums("the gradient of QK-norm's gains", partial_gains, blocks,
                  shape.gains(), d_gains);
  }

  void Rope(const AttentionShape& shape, const RopeTable& table,
            RopeDirection direction, void* qkv) override {
    Launch("RoPE", RopeKernel,
           BlocksFor(shape.rows() * shape.qk_width() / 2 / kVector), kThreads,
           0, shape, table, direction == RopeDirection::kForward ? 1.0f : -1.0f,
           AsBf16(qkv));
  }

  void Attention(const AttentionShape& shape, const void* qkv, void* output,
                 float* log_sum_exp) override {
    if (shape.head_dim <= 64) {
      AttentionOf<64>(shape, qkv, output, log_sum_exp);
    } else {
      AttentionOf<128>(shape, qkv, output, log_sum_exp);
    }
  }
  void AttentionBackward(const AttentionShape& shape, const void* qkv,
                         const void* output, const float* log_sum_exp,
                         const void* d_output, void* d_qkv) override {
    if (shape.head_dim <= 64) {
      AttentionBackwardOf<64>(shape, qkv, output, log_sum_exp, d_output, d_qkv);
    } else {
      AttentionBackwardOf<128>(shape, qkv, output, log_sum_exp, d_output,
                               d_qkv);
    }
  }

  void SwiGlu(const void* gate_up, int64_t rows, int64_t width,
              void* output) override {
    Launch("SwiGLU", SwiGluKernel, BlocksFor(rows * width / kVector), kThreads,
           0, AsBf16(gate_up), rows, width, AsBf16(output));
  }
  void SwiGluBackward(const void* gate_up, const void* d_output, int64_t rows,
                      int64_t width, void* d_gate_up, void* output) override {
    Launch("the gradient of SwiGLU", SwiGluBackwardKernel,
           BlocksFor(rows * width / kVector), kThreads, 0, AsBf16(gate_up),
           AsBf16(d_output), rows, width, AsBf16(d_gate_up), AsBf16(output));
  }

  void CrossEntropy(const int32_t* targets, int64_t rows, int64_t vocab_size,
                    std::optional<float> gradient_scale, void* logits,
                    float* losses) override {
    const bool vectors = vocab_size % kVector == 0;
    // Take the fewest threads that need no more rounds than
    // kCrossEntropyThreads.
    const int64_t of_thread = vectors ? kVector : 1;
    const int64_t rounds = Blocks(vocab_size, kCrossEntropyThreads * of_thread);
    const uint32_t threads =
        Blocks(vocab_size, rounds * of_thread * kWarpSize) * kWarpSize;
    const auto with_gradient = vectors ? CrossEntropyKernel<true, kVector>
                                       : CrossEntropyKernel<true, 1>;
    const auto without = vectors ? CrossEntropyKernel<false, kVector>
                                 : CrossEntropyKernel<false, 1>;
    Launch("cross-entropy",
           gradient_scale.has_value() ? with_gradient : without,
           {.x = static_cast<uint32_t>(rows)}, threads, 0, targets, vocab_size,
           gradient_scale.value_or(0), AsBf16(logits), losses);
  }

  void AdamW(const AdamWCoefficients& coefficients, const float* gradients,
             int64_t size, float* parameters, float* first_moment,
             float* second_moment, float* estimate) override {
    if (estimate != nullptr) {
      UpdateBy(AdamWKernel<true, 4>, AdamWKernel<true, 1>, coefficients,
               gradients, size, parameters, first_moment, second_moment,
               estimate);
    } else {
      UpdateBy(AdamWKernel<false, 4>, AdamWKernel<false, 1>, coefficients,
               gradients, size, parameters, first_moment, second_moment,
               parameters);
    }
  }

  void LinearCombination(float a, const float* x, float b, const float* y,
                         int64_t size, float* to) override {
    Launch("a linear combination", LinearCombinationKernel, BlocksFor(size),
           kThreads, 0, a, x, b, y, size, to);
  }

  void Orthogonalize(absl::Span<const Quintic> iterations, int64_t rows,
                     int64_t columns, float* matrix, float* scratch) override {
    const bool wide = rows <= columns;
    const int64_t least = std::min(rows, columns);
    const int64_t size = rows * columns;
    Bf16* from = AsBf16(scratch);
    Bf16* to = from + size;
    Bf16* const gram = to + size;
    Bf16* const square = gram + least * least;
    const PartialSums squares = SumParts(SumKernel<true>, matrix, size);
    Launch("normalizing a matrix", NormalizeKernel, BlocksFor(size), kThreads,
           0, static_cast<const double*>(squares.sums), int64_t{squares.count},
           static_cast<const float*>(matrix), size, from);
    for (const Quintic& quintic : iterations) {
      Multiply({.rows = least,
                .columns = least,
                .inner = wide ? columns : rows,
                .transpose_a = !wide,
                .transpose_b = wide},
               from, from, gram);
      Multiply({.rows = least, .columns = least, .inner = least}, gram, gram,
               square);
      Launch("a polynomial", QuinticKernel, BlocksFor(least * least), kThreads,
             0, quintic, static_cast<const Bf16*>(gram), least, square);
      Multiply({.rows = rows, .columns = columns, .inner = least},
               wide ? square : from, wide ? from : square, to);
      std::swap(from, to);
    }
    Launch("widening", WidenKernel, BlocksFor(size / kVector + kVector),
           kThreads, 0, static_cast<const Bf16*>(from), size, matrix);
  }

 protected:
  static const Bf16* AsBf16(const void* memory) {
    return static_cast<const Bf16*>(memory);
  }
  static Bf16* AsBf16(void* memory) { return static_cast<Bf16*>(memory); }

  virtual cudaStream_t stream() const = 0;
  // Returns whether nothing has failed so far.
  virtual bool ok() const = 0;
  // Keeps the first error. `doing` is a noun.
  virtual void Record(cudaError_t error, const char* doing) = 0;
  // Returns device memory for one operation, or null after an error. Replaces
  // it by a larger piece if it is too small.
  virtual void* Scratch(size_t bytes) = 0;
  virtual void Multiply(const MatrixProduct& product, const Bf16* a,
                        const Bf16* b, void* c) = 0;
  // Returns whether scratch memory has to grow to `bytes`, and counts that as
  // an allocation.
  bool CountScratch(size_t bytes) {
    if (bytes <= most_scratch_) return false;
    most_scratch_ = bytes;
    CountAllocation();
    return true;
  }

 private:
  static constexpr uint32_t kThreads = 256;
  // More blocks than any device runs at a time; their threads advance by a
  // stride.
  static constexpr int64_t kMostBlocks = 4096;
  // The number is fixed, so that sums are the same on every device.
  static constexpr int64_t kSumBlocks = 512;
  static constexpr int64_t kPartialSumBlocks = 512;

  static uint32_t Blocks(int64_t size, int64_t of_block) {
    return static_cast<uint32_t>((size + of_block - 1) / of_block);
  }
  // Returns the grid for kernels that advance by its stride.
  static GridSize BlocksFor(int64_t size) {
    return {.x = Blocks(
                std::min(std::max<int64_t>(size, 1), kMostBlocks * kThreads),
                kThreads)};
  }

  // Returns how many blocks sum `groups` of rows, at least one group each.
  static uint32_t PartialSumBlocks(int64_t groups) {
    return static_cast<uint32_t>(std::min(groups, kPartialSumBlocks));
  }

  template <typename Kernel, typename... Arguments>
  void Launch(const char* doing, Kernel* kernel, const GridSize& blocks,
              uint32_t threads, size_t shared_bytes, Arguments... arguments) {
    if (!ok() || blocks.x == 0) return;
    Record(LaunchKernel(kernel, blocks, threads, shared_bytes, stream(),
                        arguments...),
           doing);
  }

  // sums += the sums over `rows` rows of fp32.
  void AddColumnSums(const char* doing, const float* values, int64_t rows,
                     int64_t width, float* sums) {
    Launch(doing, ColumnSumKernel, {.x = Blocks(width, kWarpSize)},
           kColumnSumThreads, 0, values, rows, width, sums);
  }

  // Returns the number of threads of a block that takes whole rows.
  static uint32_t RowThreads(int64_t width) {
    return static_cast<uint32_t>(
        std::min<int64_t>(kThreads, Blocks(width, kWarpValues) * kWarpSize));
  }
  // Calls `launch` with the numbers of rows of a block at a time, and of
  // vectors of each row in a thread.
  template <typename Launch>
  void InParts(const char* doing, int64_t width, const Launch& launch) {
    const uint32_t parts = Blocks(width, int64_t{kThreads} * kVector);
    if (parts <= 1) return launch.template operator()<4, 1>();
    if (parts <= 2) return launch.template operator()<2, 2>();
    if (parts <= 4) return launch.template operator()<1, 4>();
    if (parts <= 8) return launch.template operator()<1, 8>();
    if (parts <= 16) return launch.template operator()<1, 16>();
    Record(cudaErrorNotSupported, doing);
  }

  void RmsNormBackwardOf(const Bf16* d_normalized, const Bf16* x,
                         const float* inverse_rms, const float* gain,
                         int64_t rows, int64_t width, const RowStrides& strides,
                         bool accumulate, Bf16* d_x, float* d_gain,
                         Bf16* normalized) {
    const uint32_t blocks = PartialSumBlocks(rows);
    auto* const partial_gains =
        static_cast<float*>(Scratch(blocks * width * sizeof(float)));
    const auto launch = [&]<int kRows, int kParts>() {
      Launch("the gradient of RMSNorm", RmsNormBackwardKernel<kRows, kParts>,
             {.x = blocks}, RowThreads(width), 0, d_normalized, x, inverse_rms,
             gain, rows, width, strides, accumulate, d_x, partial_gains,
             normalized);
    };
    InParts("the gradient of RMSNorm", width, launch);
    AddColumnSums("the gradient of RMSNorm's gain", partial_gains, blocks,
                  width, d_gain);
  }

  // Partial sums in scratch memory.
  struct PartialSums {
    double* sums = nullptr;
    uint32_t count = 0;
  };
  PartialSums SumParts(void (*kernel)(const float*, int64_t, double*),
                       const float* values, int64_t size) {
    // More blocks would have nothing to add.
    const auto blocks = static_cast<uint32_t>(
        std::clamp<int64_t>((size + kThreads - 1) / kThreads, 1, kSumBlocks));
    auto* const sums =
        static_cast<double*>(Scratch(kSumBlocks * sizeof(double)));
    Launch("a sum", kernel, {.x = blocks}, kThreads, 0, values, size, sums);
    return {sums, blocks};
  }

  // The factor turns exp(x) into 2^(x log2(e)), which the hardware computes.
  static float ScoreScale(const AttentionShape& shape) {
    return kLog2E / std::sqrt(static_cast<float>(shape.head_dim));
  }
  static GridSize AttentionGrid(const AttentionShape& shape, int64_t heads,
                                int64_t tile) {
    return {.x = Blocks(shape.length, tile),
            .y = static_cast<uint32_t>(heads),
            .z = static_cast<uint32_t>(shape.batch)};
  }

  template <int kHeadDim>
  void AttentionOf(const AttentionShape& shape, const void* qkv, void* output,
                   float* log_sum_exp) {
    using Tiles = ForwardTiles<kHeadDim>;
    Launch("attention", AttentionKernel<kHeadDim>,
           AttentionGrid(shape, shape.heads, Tiles::kOwn), kAttentionThreads,
           Tiles::kSharedBytes, shape, ScoreScale(shape), AsBf16(qkv),
           AsBf16(output), log_sum_exp);
  }

  template <int kHeadDim>
  void AttentionBackwardOf(const AttentionShape& shape, const void* qkv,
                           const void* output, const float* log_sum_exp,
                           const void* d_output, void* d_qkv) {
    using KeyTiles = KeyGradientTiles<kHeadDim>;
    using QueryTiles = QueryGradientTiles<kHeadDim>;
    const int64_t heads = shape.rows() * shape.heads;
    auto* const delta = static_cast<float*>(Scratch(heads * sizeof(float)));
    Launch("attention's delta", AttentionDeltaKernel,
           {.x = Blocks(heads, kThreads / kWarpSize)}, kThreads, 0, shape,
           AsBf16(output), AsBf16(d_output), delta);
    Launch("the gradient of keys and values",
           AttentionKeyGradientKernel<kHeadDim>,
           AttentionGrid(shape, shape.kv_heads, KeyTiles::kOwn),
           kAttentionThreads, KeyTiles::kSharedBytes, shape, ScoreScale(shape),
           AsBf16(qkv), AsBf16(d_output), log_sum_exp, delta, AsBf16(d_qkv));
    Launch("the gradient of queries", AttentionQueryGradientKernel<kHeadDim>,
           AttentionGrid(shape, shape.heads, QueryTiles::kOwn),
           kAttentionThreads, QueryTiles::kSharedBytes, shape,
           ScoreScale(shape), AsBf16(qkv), AsBf16(d_output), log_sum_exp, delta,
           AsBf16(d_qkv));
  }

  // Updates four values at a time, and the rest one at a time.
  template <typename Kernel>
  void UpdateBy(Kernel* by_fours, Kernel* by_ones,
                const AdamWCoefficients& coefficients, const float* gradients,
                int64_t size, const float* parameters, float* first_moment,
                float* second_moment, float* to) {
    uintptr_t bits = 0;
    for (const float* const array :
         {gradients, parameters, static_cast<const float*>(first_moment),
          static_cast<const float*>(second_moment),
          static_cast<const float*>(to)}) {
      bits |= reinterpret_cast<uintptr_t>(array);
    }
    const int64_t fours = bits % 16 == 0 ? size / 4 * 4 : 0;
    if (fours > 0) {
      Launch("AdamW", by_fours, BlocksFor(fours / 4), kThreads, 0, coefficients,
             gradients, fours, parameters, first_moment, second_moment, to);
    }
    if (fours < size) {
      Launch("AdamW", by_ones, BlocksFor(size - fours), kThreads, 0,
             coefficients, gradients + fours, size - fours, parameters + fours,
             first_moment + fours, second_moment + fours, to + fours);
    }
  }

  size_t most_scratch_ = 0;
};

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_KERNEL_OPS_H_
