// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/cuda/cublas_lt.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/cuda_status.h"
#include "common/os/shared_library.h"
#include "common/status_macros.h"

namespace causeway {

struct CublasLtLibrary {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtMatmul) multiply;
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithm;
  decltype(&cublasLtMatmulDescCreate) create_operation;
  decltype(&cublasLtMatmulDescDestroy) destroy_operation;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
};

namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
// The heuristic may list algorithms that cannot run before those that can.
constexpr int kCandidates = 8;

absl::StatusOr<CublasLtLibrary> LoadLibrary() {
  // The library must have the major version that this program was compiled for.
  ASSIGN_OR_RETURN(const SharedLibrary library,
                   LoadCudaLibrary("libcublasLt", CUBLAS_VER_MAJOR,
                                   absl::StrCat("install the cuBLAS of CUDA ",
                                                CUBLAS_VER_MAJOR)));
  CublasLtLibrary functions = {};
  absl::Status status;
  const auto find = [&](const char* name, auto& function) {
    status.Update(library.Find(name, function));
  };
  find("cublasLtCreate", functions.create);
  find("cublasLtDestroy", functions.destroy);
  find("cublasLtGetStatusString", functions.status_string);
  find("cublasLtMatmul", functions.multiply);
  find("cublasLtMatmulAlgoGetHeuristic", functions.find_algorithm);
  find("cublasLtMatmulDescCreate", functions.create_operation);
  find("cublasLtMatmulDescDestroy", functions.destroy_operation);
  find("cublasLtMatmulDescSetAttribute", functions.set_operation);
  find("cublasLtMatmulPreferenceCreate", functions.create_preference);
  find("cublasLtMatmulPreferenceDestroy", functions.destroy_preference);
  find("cublasLtMatmulPreferenceSetAttribute", functions.set_preference);
  find("cublasLtMatrixLayoutCreate", functions.create_layout);
  find("cublasLtMatrixLayoutDestroy", functions.destroy_layout);
  RETURN_IF_ERROR(status);
  return functions;
}

// Returns the alignment that all three pointers have, at most 16, the most that
// any algorithm needs.
size_t CommonAlignment(const void* a, const void* b, const void* c) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(a) |
                         reinterpret_cast<uintptr_t>(b) |
                         reinterpret_cast<uintptr_t>(c) | 16;
  return size_t{1} << std::countr_zero(bits);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CublasLt>> CublasLt::Create() {
  // The library is loaded once for the process, and never unloaded.
  static const auto& library =
      *new absl::StatusOr<CublasLtLibrary>(LoadLibrary());
  RETURN_IF_ERROR(library.status());
  auto gemm = absl::WrapUnique(new CublasLt(&*library));
  RETURN_IF_ERROR(
      gemm->CheckCall(library->create(&gemm->handle_), "starting cuBLASLt"));
  return gemm;
}

CublasLt::~CublasLt() {
  for (auto& [product, plan] : plans_) {
    library_->destroy_operation(plan.operation);
    library_->destroy_layout(plan.first);
    library_->destroy_layout(plan.second);
    library_->destroy_layout(plan.result);
  }
  cudaFree(workspace_);
  if (handle_ != nullptr) library_->destroy(handle_);
}

absl::Status CublasLt::CheckCall(cublasStatus_t status,
                                 absl::string_view doing) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message =
      absl::StrCat(doing, ": ", library_->status_string(status));
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return absl::FailedPreconditionError(
          absl::StrCat(message, "; check nvidia-smi"));
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return absl::FailedPreconditionError(absl::StrCat(
          message, "; bf16 needs a device of compute capability 8.0 or more"));
    case CUBLAS_STATUS_ALLOC_FAILED:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::InternalError(message);
  }
}

// cuBLASLt's matrices are in column-major order, in which ours are transposed,
// so it computes c^T = b^T a^T.
absl::StatusOr<CublasLt::Plan> CublasLt::MakePlan(const MatrixProduct& product,
                                                  size_t alignment) {
  const CublasLtLibrary& lib = *library_;
  Plan plan;
  RETURN_IF_ERROR(CheckCall(
      lib.create_operation(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
      "describing a matrix product"));
  const cublasOperation_t first_operation =
      product.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second_operation =
      product.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  lib.set_operation(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA,
                    &first_operation, sizeof(first_operation));
  lib.set_operation(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB,
                    &second_operation, sizeof(second_operation));
  const auto layout = [&](cublasLtMatrixLayout_t* to, cudaDataType type,
                          int64_t row_length, int64_t rows) {
    return CheckCall(
        lib.create_layout(to, type, static_cast<uint64_t>(row_length),
                          static_cast<uint64_t>(rows), row_length),
        "describing a matrix");
  };
  RETURN_IF_ERROR(
      layout(&plan.first, CUDA_R_16BF,
             product.transpose_b ? product.inner : product.columns,
             product.transpose_b ? product.columns : product.inner));
  RETURN_IF_ERROR(layout(&plan.second, CUDA_R_16BF,
                         product.transpose_a ? product.rows : product.inner,
                         product.transpose_a ? product.inner : product.rows));
  RETURN_IF_ERROR(layout(&plan.result,
                         product.accumulate ? CUDA_R_32F : CUDA_R_16BF,
                         product.columns, product.rows));

  cublasLtMatmulPreference_t preference = nullptr;
  RETURN_IF_ERROR(
      CheckCall(lib.create_preference(&preference), "describing a preference"));
  const size_t workspace = kWorkspaceBytes;
  lib.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                     &workspace, sizeof(workspace));
  // INPLACE is left out: it adds in the order in which blocks finish. So is
  // OUTPUT_TYPE where it would round partial sums to bf16.
  const uint32_t reductions =
      CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
      (product.accumulate ? CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE : 0);
  lib.set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                     &reductions, sizeof(reductions));
  const auto bytes = static_cast<uint32_t>(alignment);
  for (const cublasLtMatmulPreferenceAttributes_t attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    lib.set_preference(preference, attribute, &bytes, sizeof(bytes));
  }
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found = {};
  int count = 0;
  const cublasStatus_t status = lib.find_algorithm(
      handle_, plan.operation, plan.first, plan.second, plan.result,
      plan.result, preference, kCandidates, found.data(), &count);
  lib.destroy_preference(preference);
  const auto end = found.begin() + count;
  const auto first_usable = std::find_if(
      found.begin(), end, [](const cublasLtMatmulHeuristicResult_t& result) {
        return result.state == CUBLAS_STATUS_SUCCESS;
      });
  RETURN_IF_ERROR(CheckCall(
      status == CUBLAS_STATUS_SUCCESS && first_usable == end
          ? CUBLAS_STATUS_NOT_SUPPORTED
          : status,
      absl::StrCat("finding an algorithm for a product of ", product.rows,
                   " by ", product.columns, " by ", product.inner)));
  plan.algorithm = first_usable->algo;
  return plan;
}

absl::Status CublasLt::Multiply(const MatrixProduct& product, const void* a,
                                const void* b, void* c, cudaStream_t stream) {
  if (workspace_ == nullptr) {
    RETURN_IF_ERROR(CudaStatus(cudaMalloc(&workspace_, kWorkspaceBytes),
                               "allocating cuBLASLt's workspace"));
  }
  const size_t alignment = CommonAlignment(a, b, c);
  auto at = plans_.find({product, alignment});
  if (at == plans_.end()) {
    ASSIGN_OR_RETURN(const Plan plan, MakePlan(product, alignment));
    at = plans_.emplace(std::pair(product, alignment), plan).first;
  }
  const Plan& plan = at->second;
  const float one = 1;
  const float beta = product.accumulate ? 1 : 0;
  return CheckCall(
      library_->multiply(handle_, plan.operation, &one, b, plan.first, a,
                         plan.second, &beta, c, plan.result, c, plan.result,
                         &plan.algorithm, workspace_, kWorkspaceBytes, stream),
      "starting a matrix product");
}

}  // namespace causeway
