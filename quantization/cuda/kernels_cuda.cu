// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Loops around quantization/cuda/block_lanes.h and
// quantization/cuda/block_streams.h.
//
// Bytes that a kernel moves for each value, c of them being codes (1, 0.5 or
// 0.25) and 2 / block size the scale:
//
//                  reads            writes
//   encode         4                c + scale
//   ... difference 8                c + scale
//   decode         c + scale        4
//   accumulate     c + scale + 4    4
//   mix, rebase    c + scale + 8    8
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
#include "quantization/cuda/kernels_cuda.h"

namespace causeway {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarpSize = 32;
constexpr uint32_t kWholeWarp = 0xffffffff;
// Thread blocks that registers suffice for on each multiprocessor. Encoders
// hold 32 values in each thread, and so have 96 KiB on their way there.
constexpr uint32_t kResidentEncoders = 3;
constexpr uint32_t kResidentDecoders = 4;
// Several times as many, so that others begin where some end, which evens out
// the last ones.
constexpr uint32_t kBlocksPerMultiprocessor = 16;

// Copies what kernels look up to shared memory; all threads of a block take
// part.
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

// Where a thread begins, and how far it goes each time: the first unit of its
// warp's four. The threads of a warp go round equally often, so that they can
// exchange values; units beyond the last one have no values.
__device__ uint64_t FirstUnit() {
  const uint64_t thread = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  return thread / kWarpSize * kUnitsOfWarp;
}
__device__ uint64_t UnitStride() {
  return uint64_t{gridDim.x} * (kThreads / kLanes);
}
__device__ uint32_t UnitInWarp() { return threadIdx.x % kWarpSize / kLanes; }

// Of a block that several lanes share, each of which gets it.
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

// The same of the sum of squares, in the order of
// quantization/block_reference.h: column j of a block's rows of 16 is column j
// % 4 of lane j / 4, and the lower four lanes have the first rows.
template <typename ThisLane>
__device__ double SumOfSquares(const Quad (&quads)[kQuads], uint32_t block) {
  double sums[4] = {};
  if constexpr (ThisLane::kSharers < kLanes) {
    ThisLane::AddSquares(quads, block, sums);
  } else {
    // The upper lanes go on where the lower ones have stopped.
    const bool is_lower = threadIdx.x % kLanes < kLanes / 2;
    if (is_lower) ThisLane::AddSquares(quads, block, sums);
#pragma unroll
    for (double& sum : sums) {
      sum = __shfl_xor_sync(kWholeWarp, sum, kLanes / 2);
    }
    if (!is_lower) ThisLane::AddSquares(quads, block, sums);
  }
#pragma unroll
  for (uint32_t other = 2; other > 0; other /= 2) {
#pragma unroll
    for (double& sum : sums) sum += __shfl_xor_sync(kWholeWarp, sum, other);
  }
  const double sum = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  if constexpr (ThisLane::kSharers < kLanes) return sum;
  return __shfl_sync(kWholeWarp, sum, kLanes - 1, kLanes);
}

template <bool kWhole, BlockFormat kFormat, uint32_t kBlockSize,
          typename Source>
__device__ void EncodeUnit(const EncodeTable<kFormat>& table,
                           const Source& source, uint64_t values, uint64_t unit,
                           char* encoded) {
  using ThisLane = Lane<kFormat, kBlockSize>;
  const ThisLane lane(threadIdx.x % kLanes);
  const auto place = PlaceOfUnit<kFormat, kBlockSize>(values, unit);
  Quad quads[kQuads];
  LoadQuads<kWhole>(lane, place, unit * kLaneUnit, source, quads);
  uint16_t scales[ThisLane::kBlocks];
  uint32_t words[ThisLane::kWords] = {};
#pragma unroll
  for (uint32_t block = 0; block < ThisLane::kBlocks; ++block) {
    if constexpr (kFormat == BlockFormat::kInt2) {
      scales[block] = Int2Scale(SumOfSquares<ThisLane>(quads, block),
                                lane.ValuesOfBlock(block, place.values));
    } else {
      scales[block] =
          BlockScale<kFormat>(LargestMagnitude<ThisLane>(quads, block));
    }
    ThisLane::Encode(table, block, scales[block], quads, words);
  }
  lane.template StoreScales<kWhole>(scales, place, encoded);
  lane.template StoreCodes<kWhole>(words, place, encoded);
}

// Apart, so that it takes no registers from the units that are whole.
template <BlockFormat kFormat, uint32_t kBlockSize, typename Source>
__device__ __noinline__ void EncodePartOfUnit(const EncodeTable<kFormat>& table,
                                              const Source& source,
                                              uint64_t values, uint64_t unit,
                                              char* encoded) {
  EncodeUnit<false, kFormat, kBlockSize>(table, source, values, unit, encoded);
}

template <BlockFormat kFormat, uint32_t kBlockSize, typename Source>
__global__ void __launch_bounds__(kThreads, kResidentEncoders)
    EncodeKernel(const __grid_constant__ EncodeTable<kFormat> table,
                 const __grid_constant__ Source source, uint64_t values,
                 char* encoded) {
  __shared__ EncodeTable<kFormat> shared_table;
  CopyTable(table, shared_table);
  for (uint64_t first = FirstUnit(); first < LaneUnits(values);
       first += UnitStride()) {
    const uint64_t unit = first + UnitInWarp();
    if (AreWhole<kFormat, kBlockSize>(values, first)) {
      EncodeUnit<true, kFormat, kBlockSize>(shared_table, source, values, unit,
                                            encoded);
    } else {
      EncodePartOfUnit<kFormat, kBlockSize>(shared_table, source, values, unit,
                                            encoded);
    }
  }
}

template <bool kWhole, BlockFormat kFormat, uint32_t kBlockSize, typename Sink>
__device__ void DecodeUnit(const DecodeTable<kFormat>& table,
                           const char* encoded, uint64_t values, uint64_t unit,
                           const Sink& sink) {
  DecodeQuads<kWhole>(table, Lane<kFormat, kBlockSize>(threadIdx.x % kLanes),
                      PlaceOfUnit<kFormat, kBlockSize>(values, unit),
                      unit * kLaneUnit, encoded, sink);
}

template <BlockFormat kFormat, uint32_t kBlockSize, typename Sink>
__device__ __noinline__ void DecodePartOfUnit(const DecodeTable<kFormat>& table,
                                              const char* encoded,
                                              uint64_t values, uint64_t unit,
                                              const Sink& sink) {
  DecodeUnit<false, kFormat, kBlockSize>(table, encoded, values, unit, sink);
}

template <BlockFormat kFormat, uint32_t kBlockSize, typename Sink>
__global__ void __launch_bounds__(kThreads, kResidentDecoders)
    DecodeKernel(const __grid_constant__ DecodeTable<kFormat> table,
                 const char* encoded, uint64_t values,
                 const __grid_constant__ Sink sink) {
  __shared__ DecodeTable<kFormat> shared_table;
  CopyTable(table, shared_table);
  for (uint64_t first = FirstUnit(); first < LaneUnits(values);
       first += UnitStride()) {
    const uint64_t unit = first + UnitInWarp();
    if (AreWhole<kFormat, kBlockSize>(values, first)) {
      DecodeUnit<true, kFormat, kBlockSize>(shared_table, encoded, values, unit,
                                            sink);
    } else {
      DecodePartOfUnit<kFormat, kBlockSize>(shared_table, encoded, values, unit,
                                            sink);
    }
  }
}

// The most thread blocks to start on the current device.
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

// Puts a kernel that goes over `values` values on `stream`.
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

// Starts the kernel of the spec: launch.operator()<format, block size>().
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

absl::Status CheckAligned(absl::Span<const void* const> pointers) {
  for (const void* const pointer : pointers) {
    if (reinterpret_cast<uintptr_t>(pointer) % sizeof(Quad) == 0) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "the array at %p is not aligned to %d bytes", pointer, sizeof(Quad)));
  }
  return absl::OkStatus();
}

template <typename Source>
absl::Status EncodeFrom(const BlockSpec& spec, const Source& source,
                        uint64_t count, char* encoded, cudaStream_t stream) {
  return LaunchFor(spec, [&]<BlockFormat kFormat, uint32_t kBlockSize>() {
    return Launch(EncodeKernel<kFormat, kBlockSize, Source>, count, stream,
                  EncodeTable<kFormat>::Make(), source, count, encoded);
  });
}

template <typename Sink>
absl::Status DecodeTo(const BlockSpec& spec, const char* encoded,
                      uint64_t count, const Sink& sink, cudaStream_t stream) {
  return LaunchFor(spec, [&]<BlockFormat kFormat, uint32_t kBlockSize>() {
    return Launch(DecodeKernel<kFormat, kBlockSize, Sink>, count, stream,
                  DecodeTable<kFormat>::Make(), encoded, count, sink);
  });
}

}  // namespace

absl::Status EncodeCuda(const BlockSpec& spec, const float* values,
                        uint64_t count, char* encoded, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckAligned({values, encoded}));
  return EncodeFrom(spec, ValuesSource{values}, count, encoded, stream);
}

absl::Status EncodeDifferenceCuda(const BlockSpec& spec, const float* anchor,
                                  const float* parameters, uint64_t count,
                                  char* encoded, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckAligned({anchor, parameters, encoded}));
  return EncodeFrom(spec, DifferenceSource{anchor, parameters}, count, encoded,
                    stream);
}

absl::Status DecodeCuda(const BlockSpec& spec, const char* encoded,
                        uint64_t count, float* values, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckAligned({encoded, values}));
  return DecodeTo(spec, encoded, count, ValuesSink{values}, stream);
}

absl::Status DecodeAccumulateCuda(const BlockSpec& spec, const char* encoded,
                                  uint64_t count, float weight,
                                  float* accumulator, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckAligned({encoded, accumulator}));
  return DecodeTo(spec, encoded, count, AccumulateSink{weight, accumulator},
                  stream);
}

absl::Status DecodeMixCuda(const BlockSpec& spec, const char* encoded,
                           uint64_t count, float mixing, float* anchor,
                           float* parameters, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckAligned({encoded, anchor, parameters}));
  if (!(mixing >= 0 && mixing <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("mixing is %g, which is not in [0, 1]", mixing));
  }
  if (mixing == 1) {
    // The parameters stay as they are: no need to go over them.
    return DecodeAccumulateCuda(spec, encoded, count, 1, anchor, stream);
  }
  return DecodeTo(spec, encoded, count, MixSink{mixing, anchor, parameters},
                  stream);
}

absl::Status DecodeRebaseCuda(const BlockSpec& spec, const char* encoded,
                              uint64_t count, float* anchor, float* parameters,
                              cudaStream_t stream) {
  RETURN_IF_ERROR(CheckAligned({encoded, anchor, parameters}));
  return DecodeTo(spec, encoded, count, RebaseSink{anchor, parameters}, stream);
}

}  // namespace causeway
