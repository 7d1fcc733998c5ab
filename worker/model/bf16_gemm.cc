// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/bf16_gemm.h"

#include <dnnl.h>

#include <array>

#include "absl/container/flat_hash_map.h"
#include "glog/logging.h"
#include "worker/model/single_threaded_openmp.h"

namespace causeway {
namespace {

// m, n, k, lda, ldb, ldc, whether b is transposed, the type of c.
using Shape = std::array<int64_t, 8>;

dnnl_engine_t Engine() {
  static const dnnl_engine_t engine = [] {
    dnnl_engine_t made = nullptr;
    CHECK_EQ(dnnl_engine_create(&made, dnnl_cpu, 0), dnnl_success);
    return made;
  }();
  return engine;
}

// The products that one thread has prepared.
class Products {
 public:
  Products() {
    CHECK_EQ(dnnl_stream_create(&stream_, Engine(), dnnl_stream_default_flags),
             dnnl_success);
  }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
  ~Products() {
    for (const auto& [shape, product] : products_) {
      for (const dnnl_memory_t memory : product.memory) {
        dnnl_memory_destroy(memory);
      }
      dnnl_primitive_destroy(product.primitive);
    }
    dnnl_stream_destroy(stream_);
  }

  void Run(const Shape& shape, const void* a, const void* b, void* c) {
    const auto [at, is_new] = products_.try_emplace(shape);
    if (is_new) at->second = Prepare(shape);
    const Product& product = at->second;
    const std::array<void*, 3> data = {const_cast<void*>(a),
                                       const_cast<void*>(b), c};
    for (size_t i = 0; i < data.size(); ++i) {
      CHECK_EQ(dnnl_memory_set_data_handle(product.memory[i], data[i]),
               dnnl_success);
    }
    const std::array<dnnl_exec_arg_t, 3> arguments = {
        {{DNNL_ARG_SRC, product.memory[0]},
         {DNNL_ARG_WEIGHTS, product.memory[1]},
         {DNNL_ARG_DST, product.memory[2]}}};
    CHECK_EQ(dnnl_primitive_execute(product.primitive, stream_,
                                    arguments.size(), arguments.data()),
             dnnl_success);
    CHECK_EQ(dnnl_stream_wait(stream_), dnnl_success);
  }

 private:
  struct Product {
    dnnl_primitive_t primitive = nullptr;
    // a, b and c.
    std::array<dnnl_memory_t, 3> memory = {};
  };

  static Product Prepare(const Shape& shape) {
    const auto [m, n, k, lda, ldb, ldc, transposed, type] = shape;
    const dnnl_data_type_t c_type = type == dnnl_f32 ? dnnl_f32 : dnnl_bf16;
    std::array<dnnl_memory_desc_t, 3> layouts;
    const auto layout = [&](size_t i, int64_t rows, int64_t columns,
                            int64_t row_stride, int64_t column_stride,
                            dnnl_data_type_t values) {
      const dnnl_dims_t extents = {rows, columns};
      const dnnl_dims_t strides = {row_stride, column_stride};
      CHECK_EQ(dnnl_memory_desc_init_by_strides(&layouts[i], 2, extents, values,
                                                strides),
               dnnl_success);
    };
    layout(0, m, k, lda, 1, dnnl_bf16);
    layout(1, k, n, transposed ? 1 : ldb, transposed ? ldb : 1, dnnl_bf16);
    layout(2, m, n, ldc, 1, c_type);
    dnnl_matmul_desc_t operation;
    CHECK_EQ(dnnl_matmul_desc_init(&operation, &layouts[0], &layouts[1],
                                   nullptr, &layouts[2]),
             dnnl_success);
    dnnl_primitive_desc_t description = nullptr;
    CHECK_EQ(dnnl_primitive_desc_create(&description, &operation, nullptr,
                                        Engine(), nullptr),
             dnnl_success)
        << "a product of bf16 of " << m << " x " << n << " x " << k;
    Product product;
    CHECK_EQ(dnnl_primitive_create(&product.primitive, description),
             dnnl_success);
    CHECK_EQ(dnnl_primitive_desc_destroy(description), dnnl_success);
    for (size_t i = 0; i < layouts.size(); ++i) {
      CHECK_EQ(dnnl_memory_create(&product.memory[i], &layouts[i], Engine(),
                                  DNNL_MEMORY_NONE),
               dnnl_success);
    }
    return product;
  }

  dnnl_stream_t stream_ = nullptr;
  absl::flat_hash_map<Shape, Product> products_;
};

void Run(const Shape& shape, const void* a, const void* b, void* c) {
  if (shape[0] == 0 || shape[1] == 0) return;
  const SingleThreadedOpenMp single_threaded;
  thread_local Products products;
  products.Run(shape, a, b, c);
}

}  // namespace

bool HasBf16Gemm() {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) ==
         dnnl_cpu_isa_avx512_core_amx;
}

void Bf16Gemm(Transpose transpose_b, int64_t m, int64_t n, int64_t k,
              const Bf16Bits* a, int64_t lda, const Bf16Bits* b, int64_t ldb,
              float* c, int64_t ldc) {
  Run({m, n, k, lda, ldb, ldc, transpose_b == Transpose::kYes, dnnl_f32}, a, b,
      c);
}

void Bf16Gemm(Transpose transpose_b, int64_t m, int64_t n, int64_t k,
              const Bf16Bits* a, int64_t lda, const Bf16Bits* b, int64_t ldb,
              Bf16Bits* c, int64_t ldc) {
  Run({m, n, k, lda, ldb, ldc, transpose_b == Transpose::kYes, dnnl_bf16}, a, b,
      c);
}

}  // namespace causeway
