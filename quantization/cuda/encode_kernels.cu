// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Encoders: loops around quantization/cuda/block_lanes.h, and what lanes find
// out together.
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
#include "quantization/encode_options.h"
#include "quantization/strip_layout.h"

namespace causeway {
namespace {

constexpr uint32_t kWholeWarp = 0xffffffff;
// Thread blocks that registers suffice for on each multiprocessor. They hold 32
// values in each thread, and so have 96 KiB on their way there; 64 KiB where
// random numbers take registers, too, and more time than memory does.
template <typename Rounds>
constexpr uint32_t kResidentEncoders =
    Rounds::kRounding == Rounding::kStochastic ? 2 : 3;

// The largest magnitude of a block that several lanes share; each gets it.
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

template <bool kWhole, BlockFormat kFormat, uint32_t kBlockSize,
          typename Source, typename Rounds, typename Losses>
__device__ void EncodeUnit(const DecodeTable<kFormat>& table,
                           const Source& source, const Rounds& rounding,
                           const Losses& losses, uint64_t values, uint64_t unit,
                           char* encoded) {
  using ThisLane = Lane<kFormat, kBlockSize>;
  const ThisLane lane(threadIdx.x % kLanes);
  const auto place = PlaceOfUnit<kFormat, kBlockSize>(values, unit);
  const uint64_t begin = unit * kLaneUnit;
  Quad quads[kQuads];
  LoadQuads<kWhole>(lane, place, begin, source, quads);
  uint16_t scales[ThisLane::kBlocks];
  uint32_t words[ThisLane::kWords] = {};
#pragma unroll
  for (uint32_t block = 0; block < ThisLane::kBlocks; ++block) {
    scales[block] = BlockScale<kFormat, Rounds::kRounding>(
        LargestMagnitude<ThisLane>(quads, block));
  }
#pragma unroll
  for (uint32_t block = 0; block < ThisLane::kBlocks; ++block) {
    lane.Encode(rounding, begin, block, scales[block], quads, words);
  }
  lane.template StoreScales<kWhole>(scales, place, encoded);
  lane.template StoreCodes<kWhole>(words, place, encoded);
  StoreLosses<kWhole>(table, lane, place, begin, quads, scales, words, losses);
}

// Apart, so that it takes no registers from the units that are whole.
template <BlockFormat kFormat, uint32_t kBlockSize, typename Source,
          typename Rounds, typename Losses>
__device__ __noinline__ void EncodePartOfUnit(const DecodeTable<kFormat>& table,
                                              const Source& source,
                                              const Rounds& rounding,
                                              const Losses& losses,
                                              uint64_t values, uint64_t unit,
                                              char* encoded) {
  EncodeUnit<false, kFormat, kBlockSize>(table, source, rounding, losses,
                                         values, unit, encoded);
}

template <BlockFormat kFormat, uint32_t kBlockSize, typename Source,
          typename Rounds, typename Losses>
__global__ void __launch_bounds__(kThreads, kResidentEncoders<Rounds>)
    EncodeKernel(const __grid_constant__ DecodeTable<kFormat> table,
                 const __grid_constant__ Source source,
                 const __grid_constant__ Rounds rounding,
                 const __grid_constant__ Losses losses, uint64_t values,
                 char* encoded) {
  __shared__ DecodeTable<kFormat> shared;
  if constexpr (Losses::kMayStore) CopyTable(table, shared);
  for (uint64_t first = FirstUnit(); first < LaneUnits(values);
       first += UnitStride()) {
    const uint64_t unit = first + UnitInWarp();
    if (AreWhole<kFormat, kBlockSize>(values, first)) {
      EncodeUnit<true, kFormat, kBlockSize>(shared, source, rounding, losses,
                                            values, unit, encoded);
    } else {
      EncodePartOfUnit<kFormat, kBlockSize>(shared, source, rounding, losses,
                                            values, unit, encoded);
    }
  }
}

template <typename Source, typename Rounds, typename Losses>
absl::Status EncodeFrom(const BlockSpec& spec, const Source& source,
                        const Rounds& rounds, const Losses& losses,
                        uint64_t count, char* encoded, cudaStream_t stream) {
  return LaunchFor(spec, [&]<BlockFormat kFormat, uint32_t kBlockSize>() {
    return Launch(EncodeKernel<kFormat, kBlockSize, Source, Rounds, Losses>,
                  count, stream, DecodeTable<kFormat>::Make(), source, rounds,
                  losses, count, encoded);
  });
}

absl::Status EncodeSum(const BlockSpec& spec, const BlockRounding& rounding,
                       const SumSource& source, const ErrorLosses& losses,
                       uint64_t count, char* encoded, cudaStream_t stream) {
  RETURN_IF_ERROR(CheckAligned(
      {source.values, source.minus, source.plus, losses.error, encoded}));
  if (rounding.begin % kStripValues != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the random numbers begin with value %d, which no strip begins with; "
        "strips have %d values",
        rounding.begin, kStripValues));
  }
  return VisitRounding(rounding, [&](const auto& rounds) {
    return EncodeFrom(spec, source, rounds, losses, count, encoded, stream);
  });
}

}  // namespace

absl::Status EncodeCuda(const BlockSpec& spec, const float* values,
                        uint64_t count, char* encoded, cudaStream_t stream,
                        const BlockRounding& rounding) {
  return EncodeSum(spec, rounding, {values}, {}, count, encoded, stream);
}

absl::Status EncodeDifferenceCuda(const BlockSpec& spec, const float* anchor,
                                  const float* parameters, uint64_t count,
                                  char* encoded, cudaStream_t stream,
                                  const BlockRounding& rounding) {
  if (rounding.rounding != Rounding::kNearest) {
    return EncodeSum(spec, rounding, {anchor, parameters}, {}, count, encoded,
                     stream);
  }
  // What islands do most, as fast as it can be.
  RETURN_IF_ERROR(CheckAligned({anchor, parameters, encoded}));
  return EncodeFrom(spec, DifferenceSource{anchor, parameters},
                    NearestRounding(), NoLosses(), count, encoded, stream);
}

absl::Status EncodeWithFeedbackCuda(const BlockSpec& spec, const float* anchor,
                                    const float* parameters, const float* error,
                                    float decay, uint64_t count, char* encoded,
                                    float* next_error, cudaStream_t stream,
                                    const BlockRounding& rounding) {
  if (!(decay > 0 && decay <= 1)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the error's decay is %g, which is not in (0, 1]", decay));
  }
  return EncodeSum(spec, rounding, {anchor, parameters, error},
                   {decay, next_error}, count, encoded, stream);
}

}  // namespace causeway
