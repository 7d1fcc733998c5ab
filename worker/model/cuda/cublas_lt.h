// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Matrix products on the tensor cores by NVIDIA's cuBLASLt. The library is
// loaded when first needed, so that programs also run without it.
//
//   ASSIGN_OR_RETURN(auto gemm, CublasLt::Create());
//   RETURN_IF_ERROR(gemm->Multiply(product, a, b, c, stream));
//
// The library's heuristic chooses an algorithm once for each product, among
// those whose sums have a fixed order: the same call gives the same bits.
#ifndef WORKER_MODEL_CUDA_CUBLAS_LT_H_
#define WORKER_MODEL_CUDA_CUBLAS_LT_H_

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/model/cuda/matrix_product.h"

namespace causeway {

// The functions of the library that we call.
struct CublasLtLibrary;

// Not thread-safe: one thread at a time may use an object.
class CublasLt {
 public:
  // Creates an object for the current device.
  //   FAILED_PRECONDITION  the library cannot be loaded or used; says why.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<CublasLt>> Create();

  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  ~CublasLt();

  // Launches the product on `stream`. a, b and c are device memory, aligned at
  // least to their values; the fastest algorithms need 16 bytes, and sizes that
  // are multiples of 8. The first call takes 32 MiB of the device's memory.
  //   RESOURCE_EXHAUSTED  no memory.
  //   INTERNAL            the library refuses the product.
  absl::Status Multiply(const MatrixProduct& product, const void* a,
                        const void* b, void* c, cudaStream_t stream);

 private:
  // A product prepared for pointers of a certain alignment.
  struct Plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t first = nullptr;
    cublasLtMatrixLayout_t second = nullptr;
    cublasLtMatrixLayout_t result = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
  };

  explicit CublasLt(const CublasLtLibrary* library) : library_(library) {}
  absl::StatusOr<Plan> MakePlan(const MatrixProduct& product, size_t alignment);
  absl::Status CheckCall(cublasStatus_t status, absl::string_view doing) const;

  const CublasLtLibrary* const library_;
  cublasLtHandle_t handle_ = nullptr;
  // Null before the first product.
  void* workspace_ = nullptr;
  absl::flat_hash_map<std::pair<MatrixProduct, size_t>, Plan> plans_;
};

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_CUBLAS_LT_H_
