// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Loads and stores of one lane (quantization/cuda/block_lanes.h) in host or
// device memory: the difference that it encodes, and the values that it adds
// decoded ones to. Arrays are aligned to 16 bytes.
//
// The unit at `place` begins with value `begin` of the vector. Values beyond
// the end are read as 0 and never written.
#ifndef QUANTIZATION_CUDA_BLOCK_STREAMS_H_
#define QUANTIZATION_CUDA_BLOCK_STREAMS_H_

#include <cstdint>

#include "quantization/cuda/block_arithmetic.h"
#include "quantization/cuda/block_lanes.h"
#include "quantization/cuda/block_units.h"

namespace causeway {

// Loads the four values from `at` on, a multiple of 4. With kWhole all four
// exist; otherwise `left` of them do.
template <bool kWhole>
CAUSEWAY_HOST_DEVICE inline Quad LoadQuad(const float* values, uint64_t at,
                                          uint32_t left) {
  if constexpr (kWhole) {
    return *reinterpret_cast<const Quad*>(values + at);
  } else {
    Quad quad = {};
    CAUSEWAY_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      if (i < left) quad.values[i] = values[at + i];
    }
    return quad;
  }
}

template <bool kWhole>
CAUSEWAY_HOST_DEVICE inline void StoreQuad(const Quad& quad, float* values,
                                           uint64_t at, uint32_t left) {
  if constexpr (kWhole) {
    *reinterpret_cast<Quad*>(values + at) = quad;
  } else {
    CAUSEWAY_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      if (i < left) values[at + i] = quad.values[i];
    }
  }
}

// Loads the lane's quads of anchor - parameters.
template <bool kWhole, BlockFormat kFormat, uint32_t kBlockSize>
CAUSEWAY_HOST_DEVICE inline void LoadDifference(
    const Lane<kFormat, kBlockSize>& lane, const UnitPlace& place,
    uint64_t begin, const float* anchor, const float* parameters,
    Quad (&quads)[kQuads]) {
  const uint64_t at = begin + lane.QuadAt(0);
  CAUSEWAY_UNROLL
  for (uint32_t quad = 0; quad < kQuads; ++quad) {
    const uint64_t quad_at = at + quad * lane.kQuadStride;
    const uint32_t left = lane.LeftAt(quad, place.values);
    quads[quad] = LoadQuad<kWhole>(anchor, quad_at, left);
    const Quad minus = LoadQuad<kWhole>(parameters, quad_at, left);
    CAUSEWAY_UNROLL
    for (uint32_t i = 0; i < 4; ++i) quads[quad].values[i] -= minus.values[i];
  }
}

// The number of quads that are loaded at once: enough to hide the latency of
// memory, and few enough for the registers.
inline constexpr uint32_t kQuadsInFlight = 4;
static_assert(kQuads % kQuadsInFlight == 0);

// Adds the lane's decoded values to `values`.
template <bool kWhole, BlockFormat kFormat, uint32_t kBlockSize>
CAUSEWAY_HOST_DEVICE inline void DecodeAddQuads(
    const DecodeTable<kFormat>& table, const Lane<kFormat, kBlockSize>& lane,
    const UnitPlace& place, uint64_t begin, const char* encoded,
    float* values) {
  using ThisLane = Lane<kFormat, kBlockSize>;
  uint16_t scales[ThisLane::kBlocks];
  uint32_t words[ThisLane::kWords];
  const uint64_t at = begin + lane.QuadAt(0);
  lane.template LoadScales<kWhole>(encoded, place, scales);
  lane.template LoadCodes<kWhole>(encoded, place, words);
  CAUSEWAY_UNROLL
  for (uint32_t first = 0; first < kQuads; first += kQuadsInFlight) {
    Quad sums[kQuadsInFlight];
    CAUSEWAY_UNROLL
    for (uint32_t i = 0; i < kQuadsInFlight; ++i) {
      sums[i] = LoadQuad<kWhole>(values, at + (first + i) * lane.kQuadStride,
                                 lane.LeftAt(first + i, place.values));
    }
    CAUSEWAY_UNROLL
    for (uint32_t i = 0; i < kQuadsInFlight; ++i) {
      const Quad decoded = ThisLane::Decode(table, first + i, scales, words);
      CAUSEWAY_UNROLL
      for (uint32_t value = 0; value < 4; ++value) {
        sums[i].values[value] += decoded.values[value];
      }
      StoreQuad<kWhole>(sums[i], values, at + (first + i) * lane.kQuadStride,
                        lane.LeftAt(first + i, place.values));
    }
  }
}

}  // namespace causeway

#endif  // QUANTIZATION_CUDA_BLOCK_STREAMS_H_
