// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/ops_cpu.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/os/huge_pages.h"
#include "common/os/thread_pool.h"
#include "glog/logging.h"
#include "worker/model/attention_cpu.h"
#include "worker/model/gemm.h"
#include "worker/model/kernels_cpu.h"
#include "worker/model/orthogonalize_cpu.h"

namespace causeway {
namespace {

constexpr size_t kCacheLineBytes = 64;
constexpr int64_t kCacheLineValues = 16;

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Activations are fp32 here.
const float* Fp32(const void* memory) {
  return static_cast<const float*>(memory);
}
float* Fp32(void* memory) { return static_cast<float*>(memory); }

// Products up to this size take less time than waking a thread.
constexpr int64_t kProductsOfOneThread = int64_t{1} << 18;

// The number of logits at a time: about what a second-level cache holds.
constexpr int64_t kLogits = int64_t{1} << 20;

class CpuOps final : public Ops {
 public:
  explicit CpuOps(int threads) : pool_(threads) {}

  absl::StatusOr<void*> Allocate(size_t bytes) override {
    CountAllocation();
    const bool huge = bytes >= kHugePageBytes;
    const size_t alignment = huge ? kHugePageBytes : kCacheLineBytes;
    const size_t rounded = RoundUp(std::max<size_t>(bytes, 1), alignment);
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("not enough memory for ", bytes, " bytes"));
    }
    AdviseHugePages(memory, rounded);
    // This also takes all page faults now rather than in the first step.
    std::memset(memory, 0, rounded);
    return memory;
  }

  void Free(void* memory, size_t /*bytes*/) override { std::free(memory); }

  void CopyToDevice(const void* host, size_t bytes, void* device) override {
    std::memcpy(device, host, bytes);
  }
  void CopyToHost(const void* device, size_t bytes, void* host) override {
    // An empty vector has no address, which memcpy would refuse.
    if (bytes > 0) std::memcpy(host, device, bytes);
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }

  int64_t activation_bytes() const override { return sizeof(float); }
  int64_t logits_at_a_time() const override { return kLogits; }
  void RoundToActivations(const float* from, int64_t size, void* to) override {
    Copy(from, size, Fp32(to));
  }
  void CopyActivationsToHost(const void* from, int64_t size,
                             float* host) override {
    std::copy_n(Fp32(from), size, host);
  }

  void Copy(const float* from, int64_t size, float* to) override {
    ForSlices(size, kCacheLineValues, [&](Slice slice, int) {
      std::copy(from + slice.begin, from + slice.end, to + slice.begin);
    });
  }

  void Zero(int64_t size, float* values) override {
    ForSlices(size, kCacheLineValues, [&](Slice slice, int) {
      std::fill(values + slice.begin, values + slice.end, 0.0f);
    });
  }

  void AddSum(const float* values, int64_t size, double scale,
              double* total) override {
    *total += scale * SumSlices(size, [&](Slice slice) {
                return kernels_.sum(values + slice.begin, slice.size());
              });
  }
  double SquaredNorm(const float* values, int64_t size) override {
    return SumSlices(size, [&](Slice slice) {
      return kernels_.squared_norm(values + slice.begin, slice.size());
    });
  }

  void AddActivations(const void* x, const void* y, int64_t size,
                      void* to) override {
    LinearCombination(1, Fp32(x), 1, Fp32(y), size, Fp32(to));
  }

  void Embedding(const int32_t* tokens, const float* table, int64_t rows,
                 int64_t width, void* output) override {
    ForSlices(rows, 1, [&](Slice slice, int) {
      for (int64_t r = slice.begin; r < slice.end; ++r) {
        std::copy_n(table + tokens[r] * width, width, Fp32(output) + r * width);
      }
    });
  }

  // Divides by columns: each value of the table has one writer, which adds the
  // rows in order.
  void EmbeddingBackward(const int32_t* tokens, const void* d_output,
                         int64_t rows, int64_t width, float* d_table) override {
    ForSlices(width, kCacheLineValues, [&](Slice slice, int) {
      for (int64_t r = 0; r < rows; ++r) {
        kernels_.add(Fp32(d_output) + r * width + slice.begin, slice.size(),
                     d_table + tokens[r] * width + slice.begin);
      }
    });
  }

  void RmsNorm(const void* x, const void* delta, const float* gain,
               int64_t rows, int64_t width, float epsilon, void* sum,
               float* inverse_rms, void* normalized) override {
    ForSlices(rows, 1, [&](Slice slice, int) {
      const int64_t first = slice.begin * width;
      kernels_.rms_norm_rows(
          Fp32(x) + first, delta == nullptr ? nullptr : Fp32(delta) + first,
          gain, slice.size(), width, epsilon,
          sum == nullptr ? nullptr : Fp32(sum) + first,
          inverse_rms + slice.begin, Fp32(normalized) + first);
    });
  }

  void RmsNormBackward(const void* d_normalized, const void* x,
                       const float* inverse_rms, const float* gain,
                       int64_t rows, int64_t width, bool accumulate, void* d_x,
                       float* d_gain, void* normalized) override {
    float* partial_gains = ZeroedScratch(pool_.threads() * width);
    ForSlices(rows, 1, [&](Slice slice, int worker) {
      const int64_t first = slice.begin * width;
      float* partial = partial_gains + worker * width;
      kernels_.rms_norm_backward_rows(
          Fp32(d_normalized) + first, Fp32(x) + first,
          inverse_rms + slice.begin, gain, slice.size(), width, accumulate,
          Fp32(d_x) + first, partial, Fp32(normalized) + first);
    });
    for (int worker = 0; worker < pool_.threads(); ++worker) {
      kernels_.add(partial_gains + worker * width, width, d_gain);
    }
  }

  void Linear(const void* input, const void* weight, const LinearShape& shape,
              void* output) override {
    ForRowsOrColumns(
        shape.rows, shape.out, shape.in, [&](Slice rows, Slice columns) {
          Gemm(Transpose::kNo, Transpose::kYes, rows.size(), columns.size(),
               shape.in, 1, Fp32(input) + rows.begin * shape.in, shape.in,
               Fp32(weight) + columns.begin * shape.in, shape.in, 0,
               Fp32(output) + rows.begin * shape.out + columns.begin,
               shape.out);
        });
  }

  void LinearInputGradient(const void* d_output, const void* weight,
                           const LinearShape& shape, void* d_input) override {
    ForRowsOrColumns(
        shape.rows, shape.in, shape.out, [&](Slice rows, Slice columns) {
          Gemm(Transpose::kNo, Transpose::kNo, rows.size(), columns.size(),
               shape.out, 1, Fp32(d_output) + rows.begin * shape.out, shape.out,
               Fp32(weight) + columns.begin, shape.in, 0,
               Fp32(d_input) + rows.begin * shape.in + columns.begin, shape.in);
        });
  }

  void LinearWeightGradient(const void* d_output, const void* input,
                            const LinearShape& shape,
                            float* d_weight) override {
    ForRowsOrColumns(
        shape.out, shape.in, shape.rows, [&](Slice rows, Slice columns) {
          Gemm(Transpose::kYes, Transpose::kNo, rows.size(), columns.size(),
               shape.rows, 1, Fp32(d_output) + rows.begin, shape.out,
               Fp32(input) + columns.begin, shape.in, 1,
               d_weight + rows.begin * shape.in + columns.begin, shape.in);
        });
  }

  void AddBias(const float* bias, int64_t rows, int64_t width,
               void* values) override {
    ForSlices(rows, 1, [&](Slice slice, int) {
      for (int64_t r = slice.begin; r < slice.end; ++r) {
        kernels_.add(bias, width, Fp32(values) + r * width);
      }
    });
  }

  // Divides by columns: each sum has one writer, which adds the rows in order.
  void AddBiasBackward(const void* d_values, int64_t rows, int64_t width,
                       float* d_bias) override {
    ForSlices(width, kCacheLineValues, [&](Slice slice, int) {
      for (int64_t r = 0; r < rows; ++r) {
        kernels_.add(Fp32(d_values) + r * width + slice.begin, slice.size(),
                     d_bias + slice.begin);
      }
    });
  }

  void QkNorm(const QkNormShape& shape, const float* gains, float epsilon,
              void* qkv, void* raw, float* inverse_rms) override {
    ForSlices(shape.rows, 1, [&](Slice slice, int) {
      for (int64_t r = slice.begin; r < slice.end; ++r) {
        float* const row = Fp32(qkv) + r * shape.row_width;
        float* const kept = Fp32(raw) + r * shape.qk_width;
        std::copy_n(row, shape.qk_width, kept);
        for (const QkNormPart& part : {shape.query, shape.key}) {
          kernels_.rms_norm_rows(
              kept + part.offset, nullptr, gains + part.gain, part.groups,
              part.width, epsilon, nullptr,
              inverse_rms + r * shape.groups() + part.first_group,
              row + part.offset);
        }
      }
    });
  }

  void QkNormBackward(const QkNormShape& shape, const void* raw,
                      const float* inverse_rms, const float* gains, void* d_qkv,
                      float* d_gains) override {
    const int64_t gain_size = shape.gains();
    // Each worker has sums of its own, and a scratch row of heads.
    const int64_t scratch_size = gain_size + shape.qk_width;
    float* scratch = ZeroedScratch(pool_.threads() * scratch_size);
    ForSlices(shape.rows, 1, [&](Slice slice, int worker) {
      float* const partial = scratch + worker * scratch_size;
      for (int64_t r = slice.begin; r < slice.end; ++r) {
        for (const QkNormPart& part : {shape.query, shape.key}) {
          float* const d = Fp32(d_qkv) + r * shape.row_width + part.offset;
          kernels_.rms_norm_backward_rows(
              d, Fp32(raw) + r * shape.qk_width + part.offset,
              inverse_rms + r * shape.groups() + part.first_group,
              gains + part.gain, part.groups, part.width,
              /*accumulate=*/false, d, partial + part.gain,
              partial + gain_size);
        }
      }
    });
    for (int worker = 0; worker < pool_.threads(); ++worker) {
      kernels_.add(scratch + worker * scratch_size, gain_size, d_gains);
    }
  }

  void Rope(const AttentionShape& shape, const RopeTable& table,
            RopeDirection direction, void* qkv) override {
    const float sign = direction == RopeDirection::kForward ? 1.0f : -1.0f;
    const int64_t half = shape.head_dim / 2;
    ForSlices(shape.rows(), 1, [&](Slice slice, int) {
      for (int64_t r = slice.begin; r < slice.end; ++r) {
        const int64_t angles = r % shape.length * half;
        kernels_.rope_heads(table.cosine + angles, table.sine + angles,
                            shape.qk_heads(), shape.head_dim, sign,
                            Fp32(qkv) + r * shape.qkv_width());
      }
    });
  }

  void Attention(const AttentionShape& shape, const void* qkv, void* output,
                 float* log_sum_exp) override {
    const int64_t scratch_size = AttentionScratchSize(shape);
    float* scratch = Scratch(pool_.threads() * scratch_size);
    // A single query is too little work for other threads.
    const int64_t heads = shape.batch * shape.heads;
    const int64_t granularity = shape.first + 1 == shape.length ? heads : 1;
    ForSlices(heads, granularity, [&](Slice slice, int worker) {
      for (int64_t i = slice.begin; i < slice.end; ++i) {
        AttendHead(shape, i / shape.heads, i % shape.heads, Fp32(qkv),
                   Fp32(output), log_sum_exp, scratch + worker * scratch_size);
      }
    });
  }

  void AttentionBackward(const AttentionShape& shape, const void* qkv,
                         const void* output, const float* log_sum_exp,
                         const void* d_output, void* d_qkv) override {
    const int64_t scratch_size = AttentionScratchSize(shape);
    float* scratch = Scratch(pool_.threads() * scratch_size);
    ForSlices(shape.batch * shape.kv_heads, 1, [&](Slice slice, int worker) {
      for (int64_t i = slice.begin; i < slice.end; ++i) {
        AttendGroupBackward(shape, i / shape.kv_heads, i % shape.kv_heads,
                            Fp32(qkv), Fp32(output), log_sum_exp,
                            Fp32(d_output), Fp32(d_qkv),
                            scratch + worker * scratch_size);
      }
    });
  }

  void SwiGlu(const void* gate_up, int64_t rows, int64_t width,
              void* output) override {
    ForSlices(rows, 1, [&](Slice slice, int) {
      kernels_.swiglu_rows(Fp32(gate_up) + 2 * slice.begin * width,
                           slice.size(), width,
                           Fp32(output) + slice.begin * width);
    });
  }

  void SwiGluBackward(const void* gate_up, const void* d_output, int64_t rows,
                      int64_t width, void* d_gate_up, void* output) override {
    ForSlices(rows, 1, [&](Slice slice, int) {
      const int64_t first = slice.begin * width;
      kernels_.swiglu_backward_rows(
          Fp32(gate_up) + 2 * first, Fp32(d_output) + first, slice.size(),
          width, Fp32(d_gate_up) + 2 * first, Fp32(output) + first);
    });
  }

  void CrossEntropy(const int32_t* targets, int64_t rows, int64_t vocab_size,
                    std::optional<float> gradient_scale, void* logits,
                    float* losses) override {
    ForSlices(rows, 1, [&](Slice slice, int) {
      kernels_.cross_entropy_rows(
          targets + slice.begin, slice.size(), vocab_size,
          gradient_scale.has_value(), gradient_scale.value_or(0),
          Fp32(logits) + slice.begin * vocab_size, losses + slice.begin);
    });
  }

  void AdamW(const AdamWCoefficients& coefficients, const float* gradients,
             int64_t size, float* parameters, float* first_moment,
             float* second_moment, float* estimate) override {
    ForSlices(size, kCacheLineValues, [&](Slice slice, int) {
      kernels_.adamw(coefficients, gradients + slice.begin, slice.size(),
                     parameters + slice.begin, first_moment + slice.begin,
                     second_moment + slice.begin,
                     estimate == nullptr ? nullptr : estimate + slice.begin);
    });
  }

  void LinearCombination(float a, const float* x, float b, const float* y,
                         int64_t size, float* to) override {
    ForSlices(size, kCacheLineValues, [&](Slice slice, int) {
      kernels_.linear_combination(a, x + slice.begin, b, y + slice.begin,
                                  slice.size(), to + slice.begin);
    });
  }
  void Orthogonalize(absl::Span<const Quintic> iterations, int64_t rows,
                     int64_t columns, float* matrix, float* scratch) override {
    OrthogonalizeOnCpu(iterations, rows, columns, kernels_, &pool_, matrix,
                       scratch);
  }

 private:
  void ForSlices(int64_t size, int64_t granularity,
                 absl::FunctionRef<void(Slice, int worker)> body) {
    // One slice is not worth waking the other threads.
    if (size <= granularity) return body({0, size}, 0);
    pool_.Run([&](int worker) {
      body(SliceOf(size, pool_.threads(), worker, granularity), worker);
    });
  }

  // Divides a matrix by rows, or by columns if there are too few rows. Each
  // value is a sum of `depth` products.
  void ForRowsOrColumns(int64_t rows, int64_t columns, int64_t depth,
                        absl::FunctionRef<void(Slice, Slice)> body) {
    if (rows * columns * depth <= kProductsOfOneThread) {
      return body({0, rows}, {0, columns});
    }
    const bool by_rows = rows >= std::min(columns, 16l * pool_.threads());
    pool_.Run([&](int worker) {
      const Slice slice = SliceOf(by_rows ? rows : columns, pool_.threads(),
                                  worker, kCacheLineValues);
      if (by_rows) {
        body(slice, {0, columns});
      } else {
        body({0, rows}, slice);
      }
    });
  }

  double SumSlices(int64_t size, absl::FunctionRef<double(Slice)> sum_of) {
    std::vector<double> partial(static_cast<size_t>(pool_.threads()));
    ForSlices(size, kCacheLineValues, [&](Slice slice, int worker) {
      partial[static_cast<size_t>(worker)] = sum_of(slice);
    });
    double sum = 0;
    for (const double value : partial) sum += value;
    return sum;
  }

  // Returns memory for one operation.
  float* Scratch(int64_t size) {
    if (static_cast<int64_t>(scratch_.size()) < size) {
      scratch_.resize(static_cast<size_t>(size));
    }
    return scratch_.data();
  }

  // Returns scratch space for sums, to which some threads may add nothing.
  float* ZeroedScratch(int64_t size) {
    float* const scratch = Scratch(size);
    std::fill_n(scratch, size, 0.0f);
    return scratch;
  }

  const ModelKernels& kernels_ = CpuModelKernels();
  ThreadPool pool_;
  std::vector<float> scratch_;
};

}  // namespace

std::unique_ptr<Ops> MakeCpuOps(int threads) {
  CHECK_GE(threads, 1);
  return std::make_unique<CpuOps>(threads);
}

}  // namespace causeway
