// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/orthogonalize_cpu.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "quantization/formats/dense_kernels_cpu.h"
#include "worker/model/bf16_gemm.h"
#include "worker/model/gemm.h"

namespace causeway {
namespace {

// The rows that one thread computes at a time. The number is fixed, so that the
// products are the same on any number of threads.
constexpr int64_t kPanelRows = 64;

// Less work than this takes less time than waking a thread.
constexpr int64_t kWorkOfOneThread = int64_t{1} << 18;

// Smaller products gain little from matrix units.
constexpr int64_t kLeastBf16Rows = 128;

// The following functions take values of either type.

void Multiply(Transpose transpose_b, int64_t m, int64_t n, int64_t k,
              const float* a, int64_t lda, const float* b, int64_t ldb,
              float* c, int64_t ldc) {
  Gemm(Transpose::kNo, transpose_b, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
}
template <typename Sum>
void Multiply(Transpose transpose_b, int64_t m, int64_t n, int64_t k,
              const Bf16Bits* a, int64_t lda, const Bf16Bits* b, int64_t ldb,
              Sum* c, int64_t ldc) {
  Bf16Gemm(transpose_b, m, n, k, a, lda, b, ldb, c, ldc);
}

void Convert(const float* from, int64_t size, float* to) {
  if (from != to) std::copy_n(from, size, to);
}
void Convert(const float* from, int64_t size, Bf16Bits* to) {
  EncodeBf16(from, static_cast<size_t>(size), reinterpret_cast<char*>(to));
}
void Convert(const Bf16Bits* from, int64_t size, float* to) {
  DecodeBf16(reinterpret_cast<const char*>(from), static_cast<size_t>(size),
             to);
}

// row <- b gram + c row.
void Combine(const Quintic& quintic, const ModelKernels& kernels,
             const float* gram, int64_t size, float* row) {
  kernels.linear_combination(quintic.b, gram, quintic.c, row, size, row);
}
void Combine(const Quintic& quintic, const ModelKernels& kernels,
             const Bf16Bits* gram, int64_t size, float* row) {
  kernels.scale(quintic.c, size, row);
  DecodeAccumulateBf16(reinterpret_cast<const char*>(gram),
                       static_cast<size_t>(size), quintic.b, row);
}

// Transposes a matrix in place, by way of `scratch`.
void TransposeInPlace(int64_t rows, int64_t columns, ThreadPool* pool,
                      float* matrix, float* scratch) {
  pool->Run([&](int worker) {
    const Slice slice = SliceOf(rows, pool->threads(), worker);
    std::copy(matrix + slice.begin * columns, matrix + slice.end * columns,
              scratch + slice.begin * columns);
  });
  pool->Run([&](int worker) {
    const Slice slice = SliceOf(columns, pool->threads(), worker);
    for (int64_t i = slice.begin; i < slice.end; ++i) {
      for (int64_t r = 0; r < rows; ++r) {
        matrix[i * rows + r] = scratch[r * columns + i];
      }
    }
  });
}

// The steps of Newton-Schulz on X, a matrix of at most as many rows as columns.
template <typename Value>
class NewtonSchulz {
 public:
  NewtonSchulz(int64_t rows, int64_t columns, const ModelKernels& kernels,
               ThreadPool* pool)
      : rows_(rows), columns_(columns), kernels_(kernels), pool_(pool) {}

  // x <- x / (its Frobenius norm + 1e-7), where the order of x does not matter.
  void Normalize(float* x) {
    std::vector<double> squares(Panels());
    ForPanels(columns_, [&](Slice panel) {
      squares[panel.begin / kPanelRows] = kernels_.squared_norm(
          x + panel.begin * columns_, panel.size() * columns_);
    });
    double sum = 0;
    for (const double panel : squares) sum += panel;
    const auto factor = static_cast<float>(1 / (std::sqrt(sum) + 1e-7));
    ForPanels(columns_, [&](Slice panel) {
      kernels_.scale(factor, panel.size() * columns_,
                     x + panel.begin * columns_);
    });
  }

  // Copies X to values of the other type.
  template <typename From, typename To>
  void Copy(const From* from, To* to) {
    ForPanels(columns_, [&](Slice panel) {
      const int64_t at = panel.begin * columns_;
      Convert(from + at, panel.size() * columns_, to + at);
    });
  }

  // Applies the `iterations` to X.
  void Iterate(absl::Span<const Quintic> iterations, float* matrix,
               float* scratch) {
    const int64_t values = rows_ * columns_;
    float* const square = scratch + values;
    auto* const gram = reinterpret_cast<Value*>(square + rows_ * rows_);
    Value* from;
    Value* to;
    Value* polynomial;
    if constexpr (std::is_same_v<Value, float>) {
      from = matrix;
      to = scratch;
      polynomial = square;
    } else {
      from = reinterpret_cast<Value*>(scratch);
      to = from + values;
      polynomial = gram + rows_ * rows_;
      Copy(matrix, from);
    }
    for (const Quintic& quintic : iterations) {
      Gram(from, gram);
      Polynomial(quintic, gram, square, polynomial);
      Apply(polynomial, from, to);
      std::swap(from, to);
    }
    Copy(from, matrix);
  }

 private:
  // gram <- x x^T.
  void Gram(const Value* x, Value* gram) {
    ForPanels(rows_ * columns_, [&](Slice panel) {
      Multiply(Transpose::kYes, panel.size(), panel.end, columns_,
               x + panel.begin * columns_, columns_, x, columns_,
               gram + panel.begin * rows_, rows_);
      Mirror(panel, gram);
    });
  }

  // polynomial <- a I + b gram + c gram gram. `square` is memory for the last
  // term, and may be `polynomial`.
  void Polynomial(const Quintic& quintic, const Value* gram, float* square,
                  Value* polynomial) {
    ForPanels(rows_ * rows_, [&](Slice panel) {
      const int64_t begin = panel.begin * rows_;
      Multiply(Transpose::kNo, panel.size(), panel.end, rows_, gram + begin,
               rows_, gram, rows_, square + begin, rows_);
      for (int64_t r = panel.begin; r < panel.end; ++r) {
        float* const row = square + r * rows_;
        Combine(quintic, kernels_, gram + r * rows_, panel.end, row);
        row[r] += quintic.a;
        Convert(row, panel.end, polynomial + r * rows_);
      }
      Mirror(panel, polynomial);
    });
  }

  // to <- polynomial x.
  void Apply(const Value* polynomial, const Value* x, Value* to) {
    ForPanels(rows_ * columns_, [&](Slice panel) {
      Multiply(Transpose::kNo, panel.size(), columns_, rows_,
               polynomial + panel.begin * rows_, rows_, x, columns_,
               to + panel.begin * columns_, columns_);
    });
  }

  int64_t Panels() const { return (rows_ + kPanelRows - 1) / kPanelRows; }

  // Copies the rows of `panel` left of the diagonal to their mirrored places in
  // a symmetric matrix, which no other panel writes.
  void Mirror(Slice panel, Value* symmetric) const {
    for (int64_t column = 0; column < panel.begin; ++column) {
      Value* const to = symmetric + column * rows_;
      for (int64_t r = panel.begin; r < panel.end; ++r) {
        to[r] = symmetric[r * rows_ + column];
      }
    }
  }

  // Calls body for each panel of X's rows; a row takes `row_work` products. The
  // last panels come first, as they take longest in symmetric matrices.
  void ForPanels(int64_t row_work, absl::FunctionRef<void(Slice)> body) {
    std::atomic<int64_t> left = Panels();
    const auto work = [&](int /*worker*/) {
      for (int64_t i = --left; i >= 0; i = --left) {
        body({i * kPanelRows, std::min(rows_, (i + 1) * kPanelRows)});
      }
    };
    if (rows_ * row_work <= kWorkOfOneThread) return work(0);
    pool_->Run(work);
  }

  const int64_t rows_;
  const int64_t columns_;
  const ModelKernels& kernels_;
  ThreadPool* const pool_;
};

// Orthogonalizes X in place; rows <= columns.
template <typename Value>
void OrthogonalizeWide(absl::Span<const Quintic> iterations, int64_t rows,
                       int64_t columns, const ModelKernels& kernels,
                       ThreadPool* pool, float* x, float* scratch) {
  NewtonSchulz<Value> steps(rows, columns, kernels, pool);
  steps.Normalize(x);
  steps.Iterate(iterations, x, scratch);
}

}  // namespace

bool OrthogonalizesInBf16(int64_t rows, int64_t columns) {
  return std::min(rows, columns) >= kLeastBf16Rows && HasBf16Gemm();
}

void OrthogonalizeOnCpu(absl::Span<const Quintic> iterations, int64_t rows,
                        int64_t columns, const ModelKernels& kernels,
                        ThreadPool* pool, float* matrix, float* scratch) {
  const bool tall = rows > columns;
  const int64_t least = std::min(rows, columns);
  const int64_t most = std::max(rows, columns);
  if (tall) TransposeInPlace(rows, columns, pool, matrix, scratch);
  (OrthogonalizesInBf16(rows, columns)
       ? OrthogonalizeWide<Bf16Bits>
       : OrthogonalizeWide<float>)(iterations, least, most, kernels, pool,
                                   matrix, scratch);
  if (tall) TransposeInPlace(columns, rows, pool, matrix, scratch);
}

}  // namespace causeway
