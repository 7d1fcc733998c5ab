// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/orthogonalize_cpu.h"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/os/thread_pool.h"
#include "gtest/gtest.h"
#include "worker/model/kernels_cpu.h"
#include "worker/model/testing/ops_reference.h"
#include "worker/model/testing/random_values.h"

namespace causeway {
namespace {

const std::vector<Quintic>& Jordan() {
  static const auto* const kIterations =
      new std::vector<Quintic>(5, {3.4445f, -4.7750f, 2.0315f});
  return *kIterations;
}

// Smaller and larger than a panel, wide, tall and square.
constexpr std::pair<int64_t, int64_t> kShapes[] = {
    {1, 1},    {1, 7},     {9, 1},     {16, 16},
    {63, 100}, {127, 126}, {130, 129}, {129, 200},
};

Floats Orthogonalized(Floats matrix, int64_t rows, int64_t columns,
                      const std::vector<Quintic>& iterations = Jordan(),
                      int threads = 2) {
  ThreadPool pool(threads);
  // Finds writes beyond the end.
  constexpr float kGuard = 1234;
  Floats scratch(OrthogonalizeScratchSize(rows, columns) + 1, kGuard);
  OrthogonalizeOnCpu(iterations, rows, columns, CpuModelKernels(), &pool,
                     matrix.data(), scratch.data());
  EXPECT_EQ(scratch.back(), kGuard);
  return matrix;
}

// Returns [rows, columns] whose columns are orthonormal (columns <= rows).
Doubles OrthonormalColumns(int64_t rows, int64_t columns, uint64_t seed) {
  Doubles matrix = Widen(Random(rows * columns, seed));
  const auto dot = [&](int64_t a, int64_t b) {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) {
      sum += matrix[r * columns + a] * matrix[r * columns + b];
    }
    return sum;
  };
  for (int64_t i = 0; i < columns; ++i) {
    // The second pass removes what the first one's rounding left.
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t before = 0; before < i; ++before) {
        const double along = dot(before, i);
        for (int64_t r = 0; r < rows; ++r) {
          matrix[r * columns + i] -= along * matrix[r * columns + before];
        }
      }
      const double norm = std::sqrt(dot(i, i));
      for (int64_t r = 0; r < rows; ++r) matrix[r * columns + i] /= norm;
    }
  }
  return matrix;
}

TEST(OrthogonalizeCpuTest, IsThePolynomialAsItIsWritten) {
  for (const auto& [rows, columns] : kShapes) {
    const Floats matrix = Random(rows * columns, 1);
    for (const size_t iterations : {0, 1, 2, 5}) {
      const std::vector<Quintic> first(Jordan().begin(),
                                       Jordan().begin() + iterations);
      Doubles want = Widen(matrix);
      reference::Orthogonalize<double>(first, rows, columns, want);
      // bf16 has 8 bits, and errors carry over from product to product.
      ExpectNear(Orthogonalized(matrix, rows, columns, first), want,
                 OrthogonalizesInBf16(rows, columns) ? 0.06 : 1e-4);
    }
  }
}

// In the bases of the singular vectors the result is a diagonal matrix of the
// polynomials of the singular values.
TEST(OrthogonalizeCpuTest, SingularVectorsStayAndValuesFollowThePolynomial) {
  constexpr int64_t kRows = 80;
  constexpr int64_t kColumns = 70;
  const Doubles left = OrthonormalColumns(kRows, kColumns, 1);
  const Doubles right = OrthonormalColumns(kColumns, kColumns, 2);
  Doubles values;
  Doubles scaled = left;
  double squares = 0;
  for (int64_t i = 0; i < kColumns; ++i) {
    values.push_back(std::pow(0.9, i));
    squares += values[i] * values[i];
    for (int64_t r = 0; r < kRows; ++r) scaled[r * kColumns + i] *= values[i];
  }
  const Doubles product = reference::MatrixProduct(
      scaled, reference::Transposed(right, kColumns, kColumns), kRows, kColumns,
      kColumns);
  const Doubles got =
      Widen(Orthogonalized({product.begin(), product.end()}, kRows, kColumns));
  const Doubles diagonal = reference::MatrixProduct(
      reference::MatrixProduct(reference::Transposed(left, kRows, kColumns),
                               got, kColumns, kRows, kColumns),
      right, kColumns, kColumns, kColumns);
  for (int64_t r = 0; r < kColumns; ++r) {
    double want = values[r] / std::sqrt(squares);
    for (const Quintic& q : Jordan()) {
      want = q.a * want + q.b * std::pow(want, 3) + q.c * std::pow(want, 5);
    }
    for (int64_t i = 0; i < kColumns; ++i) {
      ASSERT_NEAR(diagonal[r * kColumns + i], r == i ? want : 0, 1e-4)
          << r << ", " << i;
    }
    // The published band, for values that are not tiny.
    if (values[r] > 0.05) {
      EXPECT_GT(want, 0.65);
      EXPECT_LT(want, 1.25);
    }
  }
}

TEST(OrthogonalizeCpuTest, AnOrthogonalMatrixStaysItselfButForScale) {
  constexpr int64_t kSize = 96;
  const Doubles rotation = OrthonormalColumns(kSize, kSize, 3);
  Floats matrix(rotation.begin(), rotation.end());
  for (float& value : matrix) value *= 1e-3f;
  const Floats got = Orthogonalized(matrix, kSize, kSize);
  const float scale = got[0] / matrix[0];
  EXPECT_NEAR(scale * 1e-3, 1, 0.3);
  Doubles want = Widen(matrix);
  for (double& value : want) value *= scale;
  ExpectNear(got, want, 1e-4);
}

TEST(OrthogonalizeCpuTest, TheTransposeOfAMatrixGivesTheTranspose) {
  constexpr int64_t kRows = 70;
  constexpr int64_t kColumns = 150;
  const Floats matrix = Random(kRows * kColumns, 4);
  const Floats wide = Orthogonalized(matrix, kRows, kColumns);
  const Floats tall = Orthogonalized(
      reference::Transposed(matrix, kRows, kColumns), kColumns, kRows);
  EXPECT_EQ(tall, reference::Transposed(wide, kRows, kColumns));
}

TEST(OrthogonalizeCpuTest, TheBitsDoNotDependOnTheNumberOfThreads) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{200, 330}, {330, 200}, {129, 129}}) {
    const Floats matrix = Random(rows * columns, 5);
    const Floats one = Orthogonalized(matrix, rows, columns, Jordan(), 1);
    for (const int threads : {2, 3, 7}) {
      EXPECT_EQ(Orthogonalized(matrix, rows, columns, Jordan(), threads), one);
    }
  }
}

TEST(OrthogonalizeCpuTest, NoGradientIsNoDirection) {
  const Floats zeros(12 * 20);
  EXPECT_EQ(Orthogonalized(zeros, 12, 20), zeros);
}

}  // namespace
}  // namespace causeway
