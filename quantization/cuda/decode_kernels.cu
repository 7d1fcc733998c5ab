// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decoders: loops around DecodeQuads() of quantization/cuda/block_streams.h.
#include <cuda_runtime.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "quantization/cuda/block_arithmetic.h"
#include "quantization/cuda/block_lanes.h"
#include "quantization/cuda/block_streams.h"
#include "quantization/cuda/kernel_launch.cuh"
#include "quantization/cuda/kernels_cuda.h"

namespace causeway {
namespace {

// Thread blocks that registers suffice for on each multiprocessor.
constexpr uint32_t kResidentDecoders = 4;

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

template <typename Sink>
absl::Status DecodeTo(const BlockSpec& spec, const char* encoded,
                      uint64_t count, const Sink& sink, cudaStream_t stream) {
  return LaunchFor(spec, [&]<BlockFormat kFormat, uint32_t kBlockSize>() {
    return Launch(DecodeKernel<kFormat, kBlockSize, Sink>, count, stream,
                  DecodeTable<kFormat>::Make(), encoded, count, sink);
  });
}

}  // namespace

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
