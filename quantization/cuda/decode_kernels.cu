// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The decoding kernel: a loop around DecodeAddQuads() of
// quantization/cuda/block_streams.h.
#include <cuda_runtime.h>

#include <cstdint>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "quantization/cuda/block_arithmetic.h"
#include "quantization/cuda/block_lanes.h"
#include "quantization/cuda/block_streams.h"
#include "quantization/cuda/kernel_launch.cuh"
#include "quantization/cuda/kernels_cuda.h"

namespace causeway {
namespace {

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

absl::Status DecodeAddCuda(const BlockSpec& spec, const char* encoded,
                           uint64_t count, float* values, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckAligned({encoded, values}));
  return LaunchFor(spec, [&]<BlockFormat kFormat, uint32_t kBlockSize>() {
    return Launch(DecodeAddKernel<kFormat, kBlockSize>, count, stream,
                  DecodeTable<kFormat>::Make(), encoded, count, values);
  });
}

}  // namespace causeway
