// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_MODEL_CUDA_MATRIX_PRODUCT_H_
#define WORKER_MODEL_CUDA_MATRIX_PRODUCT_H_

#include <cstdint>
#include <utility>

namespace causeway {

// The product c = a b of two dense row-major matrices of bf16, with sums in
// fp32. c is [rows, columns]; a is [rows, inner] or, transposed, [inner, rows];
// b is [inner, columns] or, transposed, [columns, inner].
struct MatrixProduct {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t inner = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  // If true, the product is added to c, which is fp32; otherwise it overwrites
  // c, which is bf16.
  bool accumulate = false;

  bool operator==(const MatrixProduct&) const = default;

  template <typename H>
  friend H AbslHashValue(H hash, const MatrixProduct& p) {
    return H::combine(std::move(hash), p.rows, p.columns, p.inner,
                      p.transpose_a, p.transpose_b, p.accumulate);
  }
};

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_MATRIX_PRODUCT_H_
