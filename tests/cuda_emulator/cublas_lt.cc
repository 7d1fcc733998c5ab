// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions of cuBLASLt that this project calls: products of bf16 matrices
// in column-major order, with sums in fp32 and results in fp32 or bf16.
#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/cuda_emulator/bf16.h"
#include "tests/cuda_emulator/cuda_state.h"

using causeway::ptx::DeviceMemory;
using causeway::ptx::FromBf16;
using causeway::ptx::TheRuntime;
using causeway::ptx::ToBf16;

namespace {

struct Operation {
  cublasOperation_t first = CUBLAS_OP_N;
  cublasOperation_t second = CUBLAS_OP_N;
};
struct Layout {
  cudaDataType type;
  uint64_t rows;
  uint64_t columns;
  int64_t stride;
};

// Marks algorithms that cannot run.
constexpr uint64_t kCannotRun = 1;

template <typename T, typename Opaque>
T& As(Opaque* opaque) {
  return *reinterpret_cast<T*>(opaque);
}
template <typename T, typename Opaque>
const T& As(const Opaque* opaque) {
  return *reinterpret_cast<const T*>(opaque);
}

// One product, as the caller asked for it.
struct Product {
  Operation operation;
  Layout first;
  Layout second;
  Layout result;
  const uint16_t* a;
  const uint16_t* b;
  void* c;
  float alpha;
  float beta;

  // Returns op(a), or op(b) transposed, as a row-major [rows, inner].
  static std::vector<float> Rows(const uint16_t* values, const Layout& layout,
                                 bool rows_are_columns) {
    std::vector<float> rows(layout.rows * layout.columns);
    for (uint64_t column = 0; column < layout.columns; ++column) {
      for (uint64_t row = 0; row < layout.rows; ++row) {
        const float value = FromBf16(
            values[row + column * static_cast<uint64_t>(layout.stride)]);
        rows[rows_are_columns ? column * layout.rows + row
                              : row * layout.columns + column] = value;
      }
    }
    return rows;
  }

  void Do() const {
    const std::vector<float> left =
        Rows(a, first, operation.first == CUBLAS_OP_T);
    // The right matrix is [inner, columns].
    const std::vector<float> right =
        Rows(b, second, operation.second == CUBLAS_OP_T);
    const uint64_t m = result.rows;
    const uint64_t n = result.columns;
    const uint64_t k = left.size() / m;
    std::vector<float> sums(n);
    for (uint64_t row = 0; row < m; ++row) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (uint64_t i = 0; i < k; ++i) {
        const float factor = left[row * k + i];
        const float* const values = right.data() + i * n;
        for (uint64_t column = 0; column < n; ++column) {
          sums[column] += factor * values[column];
        }
      }
      for (uint64_t column = 0; column < n; ++column) {
        const uint64_t at = row + column * static_cast<uint64_t>(result.stride);
        if (result.type == CUDA_R_32F) {
          float& to = static_cast<float*>(c)[at];
          to = alpha * sums[column] + (beta == 0 ? 0 : beta * to);
        } else {
          uint16_t& to = static_cast<uint16_t*>(c)[at];
          // An H100 rounds the product, and then the sum with what is there.
          const uint16_t product = ToBf16(alpha * sums[column]);
          to = beta == 0 ? product
                         : ToBf16(FromBf16(product) + beta * FromBf16(to));
        }
      }
    }
  }
};

template <typename T, typename Opaque>
cublasStatus_t Make(Opaque** opaque, const T& value) {
  *opaque = reinterpret_cast<Opaque*>(new T(value));
  return CUBLAS_STATUS_SUCCESS;
}
template <typename T, typename Opaque>
cublasStatus_t Delete(Opaque* opaque) {
  delete reinterpret_cast<T*>(opaque);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return Make(handle, 0);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return Delete<int>(handle);
}
const char* cublasLtGetStatusString(cublasStatus_t) {
  return "an error of the emulator";
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return Make(operation, Operation());
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  return Delete<Operation>(operation);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
    const void* value, size_t bytes) {
  if (bytes != sizeof(cublasOperation_t)) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      std::memcpy(&As<Operation>(operation).first, value, bytes);
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      std::memcpy(&As<Operation>(operation).second, value, bytes);
      return CUBLAS_STATUS_SUCCESS;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
cublasStatus_t cublasLtMatmulPreferenceCreate(
    cublasLtMatmulPreference_t* preference) {
  return Make(preference, uint32_t{CUBLASLT_REDUCTION_SCHEME_MASK});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(
    cublasLtMatmulPreference_t preference) {
  return Delete<uint32_t>(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t attribute, const void* value, size_t) {
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
    std::memcpy(&As<uint32_t>(preference), value, sizeof(uint32_t));
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                          cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  if (stride < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  return Make(layout, Layout{type, rows, columns, stride});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return Delete<Layout>(layout);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t operation,
    cublasLtMatrixLayout_t first, cublasLtMatrixLayout_t second,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t result,
    cublasLtMatmulPreference_t preference, int count,
    cublasLtMatmulHeuristicResult_t* results, int* found) {
  const auto& a = As<Layout>(first);
  const auto& b = As<Layout>(second);
  const auto& c = As<Layout>(result);
  const bool turn_a = As<Operation>(operation).first == CUBLAS_OP_T;
  const bool turn_b = As<Operation>(operation).second == CUBLAS_OP_T;
  *found = 0;
  if (count < 1 || a.type != CUDA_R_16BF || b.type != CUDA_R_16BF ||
      (c.type != CUDA_R_16BF && c.type != CUDA_R_32F) ||
      (turn_a ? a.columns : a.rows) != c.rows ||
      (turn_b ? b.rows : b.columns) != c.columns ||
      (turn_a ? a.rows : a.columns) != (turn_b ? b.columns : b.rows)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  // Callers must not allow sums in no fixed order or with rounded partial sums.
  const auto schemes = As<uint32_t>(preference);
  if ((schemes & CUBLASLT_REDUCTION_SCHEME_INPLACE) != 0 ||
      (c.type != CUDA_R_32F &&
       (schemes & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) != 0)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  // The first candidate cannot run, as may happen.
  *found = std::min(count, 2);
  for (int i = 0; i < *found; ++i) results[i] = {};
  results[0].state = CUBLAS_STATUS_NOT_SUPPORTED;
  results[0].algo.data[0] = kCannotRun;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a,
                              cublasLtMatrixLayout_t first, const void* b,
                              cublasLtMatrixLayout_t second, const void* beta,
                              const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t result,
                              const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, size_t, cudaStream_t stream) {
  if (c != d || algorithm->data[0] == kCannotRun || workspace == nullptr) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const DeviceMemory& memory = TheRuntime().memory;
  const Product product = {As<Operation>(operation),
                           As<Layout>(first),
                           As<Layout>(second),
                           As<Layout>(result),
                           reinterpret_cast<uint16_t*>(memory.InHost(a)),
                           reinterpret_cast<uint16_t*>(memory.InHost(b)),
                           memory.InHost(d),
                           *static_cast<const float*>(alpha),
                           *static_cast<const float*>(beta)};
  // A graph may repeat the product, so it is never freed.
  auto* const kept = new Product(product);
  const cudaError_t error = cudaLaunchHostFunc(
      stream, [](void* data) { static_cast<const Product*>(data)->Do(); },
      kept);
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                              : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
