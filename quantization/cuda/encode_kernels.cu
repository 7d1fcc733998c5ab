// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The encoding kernels: loops around quantization/cuda/block_lanes.h, and the
// exchanges between lanes.
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
#include "quantization/strips/layout.h"

namespace causeway {
namespace {

constexpr uint32_t kWholeWarp = 0xffffffff;
// The thread blocks that each multiprocessor has registers for. Each thread
// holds 32 values, so that 96 KiB are on their way to a multiprocessor; 64 KiB
// with stochastic rounding, whose random numbers take registers, too, and more
// time than memory does.
template <typename Rounds>
constexpr uint32_t kResidentEncoders =
    Rounds::kRounding == Rounding::kStochastic ? 2 : 3;

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

template <bool kWhole, BlockFormat kFormat, uint32_t kBlockSize,
          typename Rounds>
__device__ void EncodeUnit(const float* anchor, const float* parameters,
                           const Rounds& rounding, uint64_t values,
                           uint64_t unit, char* encoded) {
  using ThisLane = Lane<kFormat, kBlockSize>;
  const ThisLane lane(threadIdx.x % kLanes);
  const auto place = PlaceOfUnit<kFormat, kBlockSize>(values, unit);
  const uint64_t begin = unit * kLaneUnit;
  Quad quads[kQuads];
  LoadDifference<kWhole>(lane, place, begin, anchor, parameters, quads);
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
}

// This is a function of its own so that it takes no registers from whole units.
template <BlockFormat kFormat, uint32_t kBlockSize, typename Rounds>
__device__ __noinline__ void EncodePartOfUnit(const float* anchor,
                                              const float* parameters,
                                              const Rounds& rounding,
                                              uint64_t values, uint64_t unit,
                                              char* encoded) {
  EncodeUnit<false, kFormat, kBlockSize>(anchor, parameters, rounding, values,
                                         unit, encoded);
}

template <BlockFormat kFormat, uint32_t kBlockSize, typename Rounds>
__global__ void __launch_bounds__(kThreads, kResidentEncoders<Rounds>)
    EncodeKernel(const float* anchor, const float* parameters,
                 const __grid_constant__ Rounds rounding, uint64_t values,
                 char* encoded) {
  for (uint64_t first = FirstUnit(); first < LaneUnits(values);
       first += UnitStride()) {
    const uint64_t unit = first + UnitInWarp();
    if (AreWhole<kFormat, kBlockSize>(values, first)) {
      EncodeUnit<true, kFormat, kBlockSize>(anchor, parameters, rounding,
                                            values, unit, encoded);
    } else {
      EncodePartOfUnit<kFormat, kBlockSize>(anchor, parameters, rounding,
                                            values, unit, encoded);
    }
  }
}

}  // namespace

absl::Status EncodeDifferenceCuda(const BlockSpec& spec, const float* anchor,
                                  const float* parameters, uint64_t count,
                                  char* encoded, cudaStream_t stream,
                                  const BlockRounding& rounding) {
  RETURN_IF_ERROR(CheckAligned({anchor, parameters, encoded}));
  if (rounding.begin % kStripValues != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the random numbers begin with value %d, which does not begin a strip; "
        "strips have %d values",
        rounding.begin, kStripValues));
  }
  return VisitRounding(rounding, [&]<typename Rounds>(const Rounds& rounds) {
    return LaunchFor(spec, [&]<BlockFormat kFormat, uint32_t kBlockSize>() {
      return Launch(EncodeKernel<kFormat, kBlockSize, Rounds>, count, stream,
                    anchor, parameters, rounds, count, encoded);
    });
  });
}

}  // namespace causeway
