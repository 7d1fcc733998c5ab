// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The vocabulary of our kernels, for nvcc: bf16 and its vectors, sums over
// warps and blocks, the tensor cores, and kernel launches.
//
// Kernels are templates or static functions in *_kernels.h:
//
//   static __global__ void Scale(int64_t size, float factor, float* values) {
//     for (int64_t i = GlobalThread(); i < size; i += GlobalThreads()) {
//       values[i] *= factor;
//     }
//   }
//   ...
//   LaunchKernel(Scale, {.x = blocks}, 256, 0, stream, size, 2.0f, values);
#ifndef WORKER_MODEL_CUDA_DEVICE_CODE_H_
#define WORKER_MODEL_CUDA_DEVICE_CODE_H_

#include <cuda_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#define CAUSEWAY_DEVICE __device__ __forceinline__

namespace causeway {

inline constexpr uint32_t kWarpSize = 32;
// The number of values in 16 bytes of bf16, the unit that kernels load and
// store.
inline constexpr int kVector = 8;

struct GridSize {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

// Returns the dynamic shared memory, aligned to 16 bytes.
CAUSEWAY_DEVICE unsigned char* DynamicShared() {
  extern __shared__ __align__(16) unsigned char causeway_dynamic_shared[];
  return causeway_dynamic_shared;
}

template <typename T>
CAUSEWAY_DEVICE T ShuffleXor(T value, uint32_t lanes) {
  return __shfl_xor_sync(0xffffffffu, value, lanes);
}

// Returns 2^x in one instruction; results that are not normal become 0.
CAUSEWAY_DEVICE float Exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

// exp(x) is 2^(x log2(e)).
inline constexpr float kLog2E = 1.44269504088896340736f;
CAUSEWAY_DEVICE float Exp(float x) { return Exp2(x * kLog2E); }

// Returns two values rounded to bf16, to nearest, ties to even; `low` is in the
// lower half.
CAUSEWAY_DEVICE uint32_t PackBf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// accumulator += a b; a is 16 x 16, b 16 x 8, accumulator 16 x 8. With g =
// lane / 4 and t = lane % 4, a lane has
//   a[0]: row g,     columns 2t, 2t + 1     a[2]: the same, columns + 8
//   a[1]: row g + 8                         a[3]
//   b[0]: rows 2t, 2t + 1 of column g       b[1]: rows + 8
//   accumulator[0, 1]: row g, columns 2t, 2t + 1; [2, 3]: row g + 8
// (PTX: mma.m16n8k16).
CAUSEWAY_DEVICE void MultiplyAdd(const uint32_t (&a)[4], uint32_t b0,
                                 uint32_t b1, float (&accumulator)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(accumulator[0]), "+f"(accumulator[1]), "+f"(accumulator[2]),
        "+f"(accumulator[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads four 8 x 8 matrices from shared memory. Lanes 8i to 8i + 7 point to the
// rows of matrix i, 16 bytes each. A lane gets from each matrix the two values
// of row g at columns 2t and 2t + 1; with kTransposed, those of rows 2t and 2t
// + 1 at column g (PTX: ldmatrix.x4).
template <bool kTransposed>
CAUSEWAY_DEVICE void LoadMatrices(const void* row, uint32_t (&values)[4]) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, "
        "[%4];"
        : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
        : "r"(address)
        : "memory");
  } else {
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
        : "r"(address)
        : "memory");
  }
}

// Starts to copy 16 bytes to shared memory, or to write zeros there without
// reading `from`.
CAUSEWAY_DEVICE void CopyAsync(const void* from, bool zeros, void* to) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(from), "r"(zeros ? 0 : 16)
               : "memory");
}
// Ends a group of copies.
CAUSEWAY_DEVICE void EndCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits for this thread's copies except those of the last kGroups groups.
template <int kGroups>
CAUSEWAY_DEVICE void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kGroups) : "memory");
}

template <typename... Parameters, typename... Arguments>
cudaError_t LaunchKernel(void (*kernel)(Parameters...), const GridSize& blocks,
                         uint32_t threads, size_t shared_bytes,
                         cudaStream_t stream, Arguments... arguments) {
  if (shared_bytes > 0) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
        static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks.x, blocks.y, blocks.z);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel,
                            static_cast<Parameters>(arguments)...);
}

// A bf16, the upper half of a binary32.
struct Bf16 {
  uint16_t bits;
};

CAUSEWAY_DEVICE float LowerBf16(uint32_t pair) {
  return std::bit_cast<float>(pair << 16);
}
CAUSEWAY_DEVICE float UpperBf16(uint32_t pair) {
  return std::bit_cast<float>(pair & 0xffff0000u);
}
CAUSEWAY_DEVICE float FromBf16(Bf16 value) { return LowerBf16(value.bits); }
CAUSEWAY_DEVICE Bf16 ToBf16(float value) {
  return {static_cast<uint16_t>(PackBf16(value, 0))};
}

struct alignas(16) Bf16Vector {
  uint32_t pairs[4];
};
CAUSEWAY_DEVICE void Widen(const Bf16Vector& vector, float (&values)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i) {
    values[2 * i] = LowerBf16(vector.pairs[i]);
    values[2 * i + 1] = UpperBf16(vector.pairs[i]);
  }
}
// Load and store vectors; `from` and `to` are aligned to 16 bytes.
CAUSEWAY_DEVICE Bf16Vector LoadVector(const Bf16* from) {
  return *reinterpret_cast<const Bf16Vector*>(from);
}
CAUSEWAY_DEVICE void LoadVector(const Bf16* from, float (&values)[kVector]) {
  Widen(LoadVector(from), values);
}
CAUSEWAY_DEVICE Bf16Vector Round(const float (&values)[kVector]) {
  Bf16Vector vector;
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i) {
    vector.pairs[i] = PackBf16(values[2 * i], values[2 * i + 1]);
  }
  return vector;
}
CAUSEWAY_DEVICE void StoreVector(const Bf16Vector& vector, Bf16* to) {
  *reinterpret_cast<Bf16Vector*>(to) = vector;
}
CAUSEWAY_DEVICE void StoreVector(const float (&values)[kVector], Bf16* to) {
  StoreVector(Round(values), to);
}

// A vector of fp32 values, aligned to its size.
template <int kWidth>
struct alignas(4 * kWidth) Floats {
  float value[kWidth];
};
// Load and store vectors, as above; the compiler would load and store the
// values one by one.
CAUSEWAY_DEVICE void LoadVector(const float* from, float (&values)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; i += 4) {
    const auto quad = *reinterpret_cast<const Floats<4>*>(from + i);
#pragma unroll
    for (int j = 0; j < 4; ++j) values[i + j] = quad.value[j];
  }
}
CAUSEWAY_DEVICE void StoreVector(const float (&values)[kVector], float* to) {
#pragma unroll
  for (int i = 0; i < kVector; i += 4) {
    *reinterpret_cast<Floats<4>*>(to + i) = {values[i], values[i + 1],
                                             values[i + 2], values[i + 3]};
  }
}

// The index of the thread in its grid, and the grid's number of threads, for
// loops over all of them.
CAUSEWAY_DEVICE int64_t GlobalThread() {
  return int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
CAUSEWAY_DEVICE int64_t GlobalThreads() {
  return int64_t{gridDim.x} * blockDim.x;
}
CAUSEWAY_DEVICE uint32_t WarpIndex() { return threadIdx.x / kWarpSize; }
CAUSEWAY_DEVICE uint32_t LaneIndex() { return threadIdx.x % kWarpSize; }

// Returns to every lane the sum over its warp, added in a fixed order.
template <typename T>
CAUSEWAY_DEVICE T WarpSum(T value) {
#pragma unroll
  for (uint32_t lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    value += ShuffleXor(value, lanes);
  }
  return value;
}

// Replaces each value by its sum over the block. All threads must call it; a
// barrier is passed before and after.
template <typename T, int kCount>
CAUSEWAY_DEVICE void BlockSums(T (&values)[kCount]) {
  __shared__ T sums[kCount][kWarpSize];
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = WarpSum(values[i]);
  __syncthreads();
  if (LaneIndex() == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i][WarpIndex()] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = 0;
    for (uint32_t warp = 0; warp < blockDim.x / kWarpSize; ++warp) {
      values[i] += sums[i][warp];
    }
  }
}
template <typename T>
CAUSEWAY_DEVICE T BlockSum(T value) {
  T values[1] = {value};
  BlockSums(values);
  return values[0];
}

}  // namespace causeway

#endif  // WORKER_MODEL_CUDA_DEVICE_CODE_H_
