// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/bf16_gemm.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "quantization/formats/dense_reference.h"

namespace causeway {
namespace {

constexpr int64_t kStride = 150;

// Small integers, whose products and sums are exact.
float Integer(int64_t i) { return static_cast<float>(i * i * 7 % 5 - 2); }

std::vector<Bf16Bits> Matrix(int64_t seed) {
  std::vector<Bf16Bits> matrix;
  for (int64_t i = 0; i < kStride * kStride; ++i) {
    matrix.push_back(Bf16FromFloat(Integer(i + seed)));
  }
  return matrix;
}

TEST(Bf16GemmTest, MultipliesPartsOfMatrices) {
  if (!HasBf16Gemm()) GTEST_SKIP() << "this machine has no matrix units";
  const std::vector<Bf16Bits> a = Matrix(1);
  const std::vector<Bf16Bits> b = Matrix(2);
  constexpr int64_t kM = 37;
  constexpr int64_t kN = 130;
  constexpr int64_t kK = 65;
  for (const Transpose transpose : {Transpose::kNo, Transpose::kYes}) {
    constexpr float kUntouched = 99;
    std::vector<float> sums(kStride * kStride, kUntouched);
    std::vector<Bf16Bits> rounded(sums.size());
    Bf16Gemm(transpose, kM, kN, kK, a.data(), kStride, b.data(), kStride,
             sums.data(), kStride);
    Bf16Gemm(transpose, kM, kN, kK, a.data(), kStride, b.data(), kStride,
             rounded.data(), kStride);
    for (int64_t r = 0; r < kM; ++r) {
      for (int64_t i = 0; i < kN; ++i) {
        float want = 0;
        for (int64_t k = 0; k < kK; ++k) {
          want +=
              FloatFromBf16(a[r * kStride + k]) *
              FloatFromBf16(transpose == Transpose::kYes ? b[i * kStride + k]
                                                         : b[k * kStride + i]);
        }
        ASSERT_EQ(sums[r * kStride + i], want) << r << ", " << i;
        ASSERT_EQ(rounded[r * kStride + i], Bf16FromFloat(want));
      }
      EXPECT_EQ(sums[r * kStride + kN], kUntouched);
    }
  }
}

}  // namespace
}  // namespace causeway
