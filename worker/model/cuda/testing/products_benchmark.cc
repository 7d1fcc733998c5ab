// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/cuda/testing/products_benchmark.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/cuda_status.h"
#include "common/status_macros.h"
#include "worker/model/cuda/cublas_lt.h"
#include "worker/model/cuda/matrix_product.h"

namespace causeway {
namespace {

// So many products run between two waits for the device that the time to start
// them does not matter.
constexpr int kProducts = 5;

struct FreeOnDevice {
  void operator()(void* memory) const { cudaFree(memory); }
};
using Memory = std::unique_ptr<void, FreeOnDevice>;

// Returns a matrix of bf16 or, of the same bits, fp32.
absl::StatusOr<Memory> NewMatrix(int64_t values, bool fp32) {
  static const std::vector<uint16_t>& some =
      *new std::vector<uint16_t>(AsBf16Bits(SomeNormalValues(1)));
  const size_t bytes = static_cast<size_t>(values) * (fp32 ? 4 : 2);
  void* memory = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaMalloc(&memory, bytes), "allocating"));
  Memory matrix(memory);
  size_t done = std::min(bytes, 2 * some.size());
  RETURN_IF_ERROR(
      CudaStatus(cudaMemcpy(memory, some.data(), done, cudaMemcpyHostToDevice),
                 "copying values to the device"));
  while (done < bytes) {
    const size_t part = std::min(done, bytes - done);
    RETURN_IF_ERROR(
        CudaStatus(cudaMemcpy(static_cast<char*>(memory) + done, memory, part,
                              cudaMemcpyDeviceToDevice),
                   "copying values"));
    done += part;
  }
  return matrix;
}

absl::StatusOr<double> TimeProduct(const MatrixProduct& product,
                                   CublasLt* gemm) {
  ASSIGN_OR_RETURN(const Memory a,
                   NewMatrix(product.rows * product.inner, false));
  ASSIGN_OR_RETURN(const Memory b,
                   NewMatrix(product.inner * product.columns, false));
  ASSIGN_OR_RETURN(const Memory c, NewMatrix(product.rows * product.columns,
                                             product.accumulate));
  ASSIGN_OR_RETURN(
      const double median,
      MedianSeconds(
          [&]() -> absl::Status {
            for (int i = 0; i < kProducts; ++i) {
              RETURN_IF_ERROR(gemm->Multiply(product, a.get(), b.get(), c.get(),
                                             /*stream=*/nullptr));
            }
            return CudaStatus(cudaDeviceSynchronize(), "multiplying");
          },
          /*repetitions=*/5));
  return median / kProducts;
}

struct NamedProduct {
  std::string name;
  // Counts how often a step computes the product.
  double times;
  MatrixProduct product;
};

// Returns what Ops::Linear and its gradients compute with a matrix of [out,
// in].
std::vector<NamedProduct> ProductsOf(const char* name, double times,
                                     int64_t rows, int64_t in, int64_t out) {
  return {{absl::StrCat(name, " forward"),
           times,
           {.rows = rows, .columns = out, .inner = in, .transpose_b = true}},
          {absl::StrCat(name, " input"),
           times,
           {.rows = rows, .columns = in, .inner = out}},
          {absl::StrCat(name, " weight"),
           times,
           {.rows = out,
            .columns = in,
            .inner = rows,
            .transpose_a = true,
            .accumulate = true}}};
}

std::vector<NamedProduct> ProductsOf(const BenchmarkModel& model,
                                     int64_t logit_rows) {
  const int64_t rows = int64_t{model.micro_batch} * model.length;
  const int64_t hidden = model.hidden;
  const int64_t intermediate = model.intermediate;
  const double head =
      static_cast<double>(rows) / static_cast<double>(logit_rows);
  std::vector<NamedProduct> products;
  for (const std::vector<NamedProduct>& some :
       {ProductsOf("qkv", model.layers, rows, hidden, 3 * hidden),
        ProductsOf("output", model.layers, rows, hidden, hidden),
        ProductsOf("gate_up", model.layers, rows, hidden, 2 * intermediate),
        ProductsOf("down", model.layers, rows, intermediate, hidden),
        ProductsOf("head", head, logit_rows, hidden, model.vocab)}) {
    products.insert(products.end(), some.begin(), some.end());
  }
  return products;
}

}  // namespace

absl::StatusOr<nlohmann::json> MeasureProducts(const BenchmarkModel& model,
                                               int64_t logit_rows) {
  ASSIGN_OR_RETURN(const std::unique_ptr<CublasLt> gemm, CublasLt::Create());
  nlohmann::json list;
  double total_seconds = 0;
  double operations = 0;
  for (const auto& [name, times, product] : ProductsOf(model, logit_rows)) {
    ASSIGN_OR_RETURN(const double seconds, TimeProduct(product, gemm.get()));
    const double flops = 2.0 * static_cast<double>(product.rows) *
                         static_cast<double>(product.columns) *
                         static_cast<double>(product.inner);
    total_seconds += times * seconds;
    operations += times * flops;
    std::cout << absl::StrFormat(
        "%s %-16s %6d x %5d x %6d: %4.0f TFLOP/s\n", model.name, name,
        product.rows, product.columns, product.inner, flops / seconds / 1e12);
    list.push_back({{"name", name},
                    {"rows", product.rows},
                    {"columns", product.columns},
                    {"inner", product.inner},
                    {"times", times},
                    {"seconds", seconds}});
  }
  std::cout << absl::StrFormat(
      "%s products of a step: %.2f ms (%.0f TFLOP/s)\n", model.name,
      1e3 * total_seconds, operations / total_seconds / 1e12);
  return nlohmann::json{{"model", model.name},
                        {"micro_batch", model.micro_batch},
                        {"seconds", total_seconds},
                        {"products", list}};
}

}  // namespace causeway
