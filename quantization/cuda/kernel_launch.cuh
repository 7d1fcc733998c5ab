// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The common parts of the block formats' kernels: how their threads walk a
// vector's units, and how they are launched.
//
// The bytes that a kernel moves for each value, where c is the bytes of a code
// (1 or 0.5) and scale is 2 / block size:
//
//            reads            writes
//   encode   8                c + scale
//   decode   c + scale + 4    4
#ifndef QUANTIZATION_CUDA_KERNEL_LAUNCH_CUH_
#define QUANTIZATION_CUDA_KERNEL_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/cuda_status.h"
#include "quantization/cuda/block_lanes.h"
#include "quantization/cuda/block_units.h"

namespace causeway {

inline constexpr uint32_t kThreads = 256;
inline constexpr uint32_t kWarpSize = 32;
// This is several times the number that fits: blocks begin where others end,
// which evens out the last ones.
inline constexpr uint32_t kBlocksPerMultiprocessor = 16;

// Copies a look-up table to shared memory. All threads of a block must call
// this function.
template <typename Table>
__device__ void CopyTable(const Table& from, Table& to) {
  if constexpr (!std::is_empty_v<Table>) {
    const auto* const source = reinterpret_cast<const uint32_t*>(&from);
    auto* const target = reinterpret_cast<uint32_t*>(&to);
    for (uint32_t i = threadIdx.x; i < sizeof(Table) / 4; i += kThreads) {
      target[i] = source[i];
    }
    __syncthreads();
  }
}

// A thread begins at FirstUnit(), the first of its warp's four, and advances by
// UnitStride(). All threads of a warp make the same number of steps, so that
// they can exchange values; units beyond the last one have no values.
__device__ inline uint64_t FirstUnit() {
  const uint64_t thread = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  return thread / kWarpSize * kUnitsOfWarp;
}
__device__ inline uint64_t UnitStride() {
  return uint64_t{gridDim.x} * (kThreads / kLanes);
}
__device__ inline uint32_t UnitInWarp() {
  return threadIdx.x % kWarpSize / kLanes;
}

// Sets `blocks` to the most thread blocks to launch on the current device.
inline cudaError_t MostBlocks(uint64_t& blocks) {
  int device = 0;
  int multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors,
                                 cudaDevAttrMultiProcessorCount, device);
  blocks = static_cast<uint64_t>(multiprocessors) * kBlocksPerMultiprocessor;
  return error;
}

// Launches a kernel for `values` values on `stream`.
template <typename... Parameters, typename... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), uint64_t values,
                   cudaStream_t stream, const Arguments&... arguments) {
  if (values == 0) return cudaSuccess;
  uint64_t most_blocks = 0;
  const cudaError_t error = MostBlocks(most_blocks);
  if (error != cudaSuccess) return error;
  constexpr uint64_t kUnitsOfBlock = kThreads / kLanes;
  const uint64_t blocks =
      (LaneUnits(values) + kUnitsOfBlock - 1) / kUnitsOfBlock;
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<uint32_t>(blocks < most_blocks ? blocks : most_blocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

// Launches the spec's kernel: calls launch.operator()<format, block size>().
//   INVALID_ARGUMENT  there is no kernel for the format or block size.
template <typename Function>
absl::Status LaunchFor(const BlockSpec& spec, const Function& launch) {
  cudaError_t error = cudaSuccess;
  const bool known =
      VisitBlockSpec(spec, [&]<BlockFormat kFormat, uint32_t kBlockSize>() {
        error = launch.template operator()<kFormat, kBlockSize>();
      });
  if (known) return CudaStatus(error, "starting a quantization kernel");
  return absl::InvalidArgumentError(
      absl::StrFormat("no CUDA kernel for block format %d in blocks of %d "
                      "values; they have 64, "
                      "128 or 256",
                      static_cast<int>(spec.format), spec.block_size));
}

// Checks that all pointers are aligned; null pointers are.
//   INVALID_ARGUMENT  one is not.
inline absl::Status CheckAligned(absl::Span<const void* const> pointers) {
  for (const void* const pointer : pointers) {
    if (reinterpret_cast<uintptr_t>(pointer) % sizeof(Quad) == 0) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "the array at %p is not aligned to %d bytes", pointer, sizeof(Quad)));
  }
  return absl::OkStatus();
}

}  // namespace causeway

#endif  // QUANTIZATION_CUDA_KERNEL_LAUNCH_CUH_
