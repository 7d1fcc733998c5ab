// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels of the block formats: loops around
// quantization/cuda/block_lanes.h and block_streams.h, the exchanges between
// lanes, and launches.
//
// The bytes that a kernel moves for each value, where c is the bytes of a code
// (1 or 0.5) and scale is 2 / block size:
//
//            reads            writes
//   encode   8                c + scale
//   decode   c + scale + 4    4
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/cuda_status.h"
#include "common/status_macros.h"
#include "quantization/cuda/block_arithmetic.h"
#include "quantization/cuda/block_lanes.h"
#include "quantization/cuda/block_streams.h"
#include "quantization/cuda/block_units.h"
#include "quantization/cuda/kernels_cuda.h"

namespace causeway {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarpSize = 32;
// This is several times the number that fits: blocks begin when others end,
// which evens out the last ones.
constexpr uint32_t kBlocksPerMultiprocessor = 16;

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
__device__ uint64_t FirstUnit() {
  const uint64_t thread = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  return thread / kWarpSize * kUnitsOfWarp;
}
__device__ uint64_t UnitStride() {
  return uint64_t{gridDim.x} * (kThreads / kLanes);
}
__device__ uint32_t UnitInWarp() { return threadIdx.x % kWarpSize / kLanes; }

// Sets `blocks` to the most thread blocks to launch on the current device.
cudaError_t MostBlocks(uint64_t& blocks) {
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
absl::Status CheckAligned(absl::Span<const void* const> pointers) {
  for (const void* const pointer : pointers) {
    if (reinterpret_cast<uintptr_t>(pointer) % sizeof(Quad) == 0) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "the array at %p is not aligned to %d bytes", pointer, sizeof(Quad)));
  }
  return absl::OkStatus();
}

constexpr uint32_t kWholeWarp = 0xffffffff;
// The thread blocks that each multiprocessor has registers for. Each thread
// holds 32 values, so that 96 KiB are on their way to a multiprocessor.
constexpr uint32_t kResidentEncoders = 3;

// Returns to each lane the largest magnitude of a block that several lanes
// share.
template <typename ThisLane>
__device__ float LargestMagnitude(const Quad (&quads)[kQuads], uint32_t block) {
  float largest = ThisLane::LargestMagnitude(quads, block);
#pragma unroll
  for (uint32_t other = 1; other < ThisLane::kSharers; other *= 2) {
    largest =
        MaxMagnitude(largest, __shfl_xor_sync(kWholeWarp, largest, other));
  }
  return largest;
}

template <bool kWhole, BlockFormat kFormat, uint32_t kBlockSize>
__device__ void EncodeUnit(const float* anchor, const float* parameters,
                           uint64_t values, uint64_t unit, char* encoded) {
  using ThisLane = Lane<kFormat, kBlockSize>;
  const ThisLane lane(threadIdx.x % kLanes);
  const auto place = PlaceOfUnit<kFormat, kBlockSize>(values, unit);
  Quad quads[kQuads];
  LoadDifference<kWhole>(lane, place, unit * kLaneUnit, anchor, parameters,
                         quads);
  uint16_t scales[ThisLane::kBlocks];
  uint32_t words[ThisLane::kWords] = {};
#pragma unroll
  for (uint32_t block = 0; block < ThisLane::kBlocks; ++block) {
    scales[block] =
        BlockScale<kFormat>(LargestMagnitude<ThisLane>(quads, block));
  }
#pragma unroll
  for (uint32_t block = 0; block < ThisLane::kBlocks; ++block) {
    lane.Encode(block, scales[block], quads, words);
  }
  lane.template StoreScales<kWhole>(scales, place, encoded);
  lane.template StoreCodes<kWhole>(words, place, encoded);
}

// This is a function of its own so that it takes no registers from whole units.
template <BlockFormat kFormat, uint32_t kBlockSize>
__device__ __noinline__ void EncodePartOfUnit(const float* anchor,
                                              const float* parameters,
                                              uint64_t values, uint64_t unit,
                                              char* encoded) {
  EncodeUnit<false, kFormat, kBlockSize>(anchor, parameters, values, unit,
                                         encoded);
}

template <BlockFormat kFormat, uint32_t kBlockSize>
__global__ void __launch_bounds__(kThreads, kResidentEncoders)
    EncodeKernel(const float* anchor, const float* parameters, uint64_t values,
                 char* encoded) {
  for (uint64_t first = FirstUnit(); first < LaneUnits(values);
       first += UnitStride()) {
    const uint64_t unit = first + UnitInWarp();
    if (AreWhole<kFormat, kBlockSize>(values, first)) {
      EncodeUnit<true, kFormat, kBlockSize>(anchor, parameters, values, unit,
                                            encoded);
    } else {
      EncodePartOfUnit<kFormat, kBlockSize>(anchor, parameters, values, unit,
                                            encoded);
    }
  }
}

// The thread blocks that each multiprocessor has registers for.
constexpr uint32_t kResidentDecoders = 4;

template <bool kWhole, BlockFormat kFormat, uint32_t kBlockSize>
__device__ void DecodeUnit(const DecodeTable<kFormat>& table,
                           const char* encoded, uint64_t count, uint64_t unit,
                           float* values) {
  DecodeAddQuads<kWhole>(table, Lane<kFormat, kBlockSize>(threadIdx.x % kLanes),
                         PlaceOfUnit<kFormat, kBlockSize>(count, unit),
                         unit * kLaneUnit, encoded, values);
}

template <BlockFormat kFormat, uint32_t kBlockSize>
__device__ __noinline__ void DecodePartOfUnit(const DecodeTable<kFormat>& table,
                                              const char* encoded,
                                              uint64_t count, uint64_t unit,
                                              float* values) {
  DecodeUnit<false, kFormat, kBlockSize>(table, encoded, count, unit, values);
}

template <BlockFormat kFormat, uint32_t kBlockSize>
__global__ void __launch_bounds__(kThreads, kResidentDecoders)
    DecodeAddKernel(const __grid_constant__ DecodeTable<kFormat> table,
                    const char* encoded, uint64_t count, float* values) {
  __shared__ DecodeTable<kFormat> shared_table;
  CopyTable(table, shared_table);
  for (uint64_t first = FirstUnit(); first < LaneUnits(count);
       first += UnitStride()) {
    const uint64_t unit = first + UnitInWarp();
    if (AreWhole<kFormat, kBlockSize>(count, first)) {
      DecodeUnit<true, kFormat, kBlockSize>(shared_table, encoded, count, unit,
                                            values);
    } else {
      DecodePartOfUnit<kFormat, kBlockSize>(shared_table, encoded, count, unit,
                                            values);
    }
  }
}

}  // namespace

absl::Status EncodeDifferenceCuda(const BlockSpec& spec, const float* anchor,
                                  const float* parameters, uint64_t count,
                                  char* encoded, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckAligned({anchor, parameters, encoded}));
  return LaunchFor(spec, [&]<BlockFormat kFormat, uint32_t kBlockSize>() {
    return Launch(EncodeKernel<kFormat, kBlockSize>, count, stream, anchor,
                  parameters, count, encoded);
  });
}

absl::Status DecodeAddCuda(const BlockSpec& spec, const char* encoded,
                           uint64_t count, float* values, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckAligned({encoded, values}));
  return LaunchFor(spec, [&]<BlockFormat kFormat, uint32_t kBlockSize>() {
    return Launch(DecodeAddKernel<kFormat, kBlockSize>, count, stream,
                  DecodeTable<kFormat>::Make(), encoded, count, values);
  });
}

}  // namespace causeway
