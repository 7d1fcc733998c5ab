// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Where the values that GPU kernels encode come from, and what they do with
// those that they decode: the other half of quantization/cuda/block_lanes.h,
// for the device and the host. Arrays are aligned to 16 bytes.
//
// `at` is a multiple of 4, and `left` says how many values there are from there
// on; with kWhole they are 4 or more. What is not there is read as 0, and not
// written.
#ifndef QUANTIZATION_CUDA_BLOCK_STREAMS_H_
#define QUANTIZATION_CUDA_BLOCK_STREAMS_H_

#include <cstdint>

#include "quantization/cuda/block_arithmetic.h"
#include "quantization/cuda/block_lanes.h"

namespace causeway {

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

// Sources.

// PseudoGradient() of outer_optimizer/mixing.h.
struct DifferenceSource {
  template <bool kWhole>
  CAUSEWAY_HOST_DEVICE Quad Load(uint64_t at, uint32_t left) const {
    Quad quad = LoadQuad<kWhole>(anchor, at, left);
    const Quad minus = LoadQuad<kWhole>(parameters, at, left);
    CAUSEWAY_UNROLL
    for (uint32_t i = 0; i < 4; ++i) quad.values[i] -= minus.values[i];
    return quad;
  }

  const float* anchor;
  const float* parameters;
};

// values - minus + plus, where the last two may be null: what error feedback
// encodes (ErrorFeedback::Encode() of quantization/error_feedback.h), a vector
// as it is, and the difference for kernels that are not worth one of their own.
struct SumSource {
  template <bool kWhole>
  CAUSEWAY_HOST_DEVICE Quad Load(uint64_t at, uint32_t left) const {
    Quad quad = LoadQuad<kWhole>(values, at, left);
    if (minus != nullptr) {
      const Quad less = LoadQuad<kWhole>(minus, at, left);
      CAUSEWAY_UNROLL
      for (uint32_t i = 0; i < 4; ++i) quad.values[i] -= less.values[i];
    }
    if (plus != nullptr) {
      const Quad more = LoadQuad<kWhole>(plus, at, left);
      CAUSEWAY_UNROLL
      for (uint32_t i = 0; i < 4; ++i) quad.values[i] += more.values[i];
    }
    return quad;
  }

  const float* values;
  const float* minus = nullptr;
  const float* plus = nullptr;
};

// What becomes of that which encoding loses.

struct NoLosses {
  static constexpr bool kMayStore = false;
};

// error = decay * (value - decoded), unless `error` is null.
struct ErrorLosses {
  static constexpr bool kMayStore = true;

  template <bool kWhole>
  CAUSEWAY_HOST_DEVICE void Store(const Quad& quad, const Quad& decoded,
                                  uint64_t at, uint32_t left) const {
    Quad lost;
    CAUSEWAY_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      lost.values[i] = decay * (quad.values[i] - decoded.values[i]);
    }
    StoreQuad<kWhole>(lost, error, at, left);
  }

  float decay = 1;
  float* error = nullptr;
};

// Sinks. What a sink reads is loaded apart from storing, so that kernels can
// have several loads on their way.

struct ValuesSink {
  struct Loaded {};

  template <bool kWhole>
  CAUSEWAY_HOST_DEVICE Loaded Load(uint64_t, uint32_t) const {
    return {};
  }
  template <bool kWhole>
  CAUSEWAY_HOST_DEVICE void Store(const Loaded&, const Quad& decoded,
                                  uint64_t at, uint32_t left) const {
    StoreQuad<kWhole>(decoded, values, at, left);
  }

  float* values;
};

// Accumulate() of quantization/reference.h.
struct AccumulateSink {
  using Loaded = Quad;

  template <bool kWhole>
  CAUSEWAY_HOST_DEVICE Loaded Load(uint64_t at, uint32_t left) const {
    return LoadQuad<kWhole>(accumulator, at, left);
  }
  template <bool kWhole>
  CAUSEWAY_HOST_DEVICE void Store(const Loaded& loaded, const Quad& decoded,
                                  uint64_t at, uint32_t left) const {
    Quad sum = loaded;
    CAUSEWAY_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      sum.values[i] += weight * decoded.values[i];
    }
    StoreQuad<kWhole>(sum, accumulator, at, left);
  }

  float weight;
  float* accumulator;
};

struct AnchorAndParameters {
  Quad anchor;
  Quad parameters;
};

// Rebase() of outer_optimizer/mixing.h, of the anchor and the parameters.
struct RebaseSink {
  using Loaded = AnchorAndParameters;

  template <bool kWhole>
  CAUSEWAY_HOST_DEVICE Loaded Load(uint64_t at, uint32_t left) const {
    return {LoadQuad<kWhole>(anchor, at, left),
            LoadQuad<kWhole>(parameters, at, left)};
  }
  template <bool kWhole>
  CAUSEWAY_HOST_DEVICE void Store(const Loaded& loaded, const Quad& decoded,
                                  uint64_t at, uint32_t left) const {
    Loaded sum = loaded;
    CAUSEWAY_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      sum.anchor.values[i] += decoded.values[i];
      sum.parameters.values[i] += decoded.values[i];
    }
    StoreQuad<kWhole>(sum.anchor, anchor, at, left);
    StoreQuad<kWhole>(sum.parameters, parameters, at, left);
  }

  float* anchor;
  float* parameters;
};

// Rebase() of the anchor, then Mix() with it, both of
// outer_optimizer/mixing.h. `mixing` is not 1: that leaves the parameters
// alone, which is AccumulateSink with weight 1.
struct MixSink {
  using Loaded = AnchorAndParameters;

  template <bool kWhole>
  CAUSEWAY_HOST_DEVICE Loaded Load(uint64_t at, uint32_t left) const {
    return {LoadQuad<kWhole>(anchor, at, left),
            LoadQuad<kWhole>(parameters, at, left)};
  }
  template <bool kWhole>
  CAUSEWAY_HOST_DEVICE void Store(const Loaded& loaded, const Quad& decoded,
                                  uint64_t at, uint32_t left) const {
    Loaded mixed = loaded;
    CAUSEWAY_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      mixed.anchor.values[i] += decoded.values[i];
      const float parameter = mixing * mixed.parameters.values[i] +
                              (1 - mixing) * mixed.anchor.values[i];
      // Not by the formula: 0 * x would turn -0 into 0 and infinity into NaN.
      mixed.parameters.values[i] =
          mixing == 0 ? mixed.anchor.values[i] : parameter;
    }
    StoreQuad<kWhole>(mixed.anchor, anchor, at, left);
    StoreQuad<kWhole>(mixed.parameters, parameters, at, left);
  }

  float mixing;
  float* anchor;
  float* parameters;
};

// What one lane does in the unit at `place`, whose first value is `begin` of
// the vector.

template <bool kWhole, BlockFormat kFormat, uint32_t kBlockSize,
          typename Source>
CAUSEWAY_HOST_DEVICE inline void LoadQuads(
    const Lane<kFormat, kBlockSize>& lane, const UnitPlace& place,
    uint64_t begin, const Source& source, Quad (&quads)[kQuads]) {
  const uint64_t at = begin + lane.QuadAt(0);
  CAUSEWAY_UNROLL
  for (uint32_t quad = 0; quad < kQuads; ++quad) {
    quads[quad] = source.template Load<kWhole>(at + quad * lane.kQuadStride,
                                               lane.LeftAt(quad, place.values));
  }
}

// Of the quads of a unit that have been encoded.
template <bool kWhole, BlockFormat kFormat, uint32_t kBlockSize,
          typename Losses>
CAUSEWAY_HOST_DEVICE inline void StoreLosses(
    const DecodeTable<kFormat>& table, const Lane<kFormat, kBlockSize>& lane,
    const UnitPlace& place, uint64_t begin, const Quad (&quads)[kQuads],
    const uint16_t (&scales)[Lane<kFormat, kBlockSize>::kBlocks],
    const uint32_t (&words)[Lane<kFormat, kBlockSize>::kWords],
    const Losses& losses) {
  if constexpr (Losses::kMayStore) {
    if (losses.error == nullptr) return;
    const uint64_t at = begin + lane.QuadAt(0);
    CAUSEWAY_UNROLL
    for (uint32_t quad = 0; quad < kQuads; ++quad) {
      losses.template Store<kWhole>(
          quads[quad], lane.Decode(table, quad, scales, words),
          at + quad * lane.kQuadStride, lane.LeftAt(quad, place.values));
    }
  }
}

// Quads whose loads by a sink are on their way at once: enough to hide the
// latency of memory, and few enough for registers.
inline constexpr uint32_t kQuadsInFlight = 4;
static_assert(kQuads % kQuadsInFlight == 0);

template <bool kWhole, BlockFormat kFormat, uint32_t kBlockSize, typename Sink>
CAUSEWAY_HOST_DEVICE inline void DecodeQuads(
    const DecodeTable<kFormat>& table, const Lane<kFormat, kBlockSize>& lane,
    const UnitPlace& place, uint64_t begin, const char* encoded,
    const Sink& sink) {
  using ThisLane = Lane<kFormat, kBlockSize>;
  uint16_t scales[ThisLane::kBlocks];
  uint32_t words[ThisLane::kWords];
  const uint64_t at = begin + lane.QuadAt(0);
  lane.template LoadScales<kWhole>(encoded, place, scales);
  lane.template LoadCodes<kWhole>(encoded, place, words);
  CAUSEWAY_UNROLL
  for (uint32_t first = 0; first < kQuads; first += kQuadsInFlight) {
    typename Sink::Loaded loaded[kQuadsInFlight];
    CAUSEWAY_UNROLL
    for (uint32_t i = 0; i < kQuadsInFlight; ++i) {
      const uint32_t quad = first + i;
      loaded[i] = sink.template Load<kWhole>(at + quad * ThisLane::kQuadStride,
                                             lane.LeftAt(quad, place.values));
    }
    CAUSEWAY_UNROLL
    for (uint32_t i = 0; i < kQuadsInFlight; ++i) {
      const uint32_t quad = first + i;
      sink.template Store<kWhole>(
          loaded[i], ThisLane::Decode(table, quad, scales, words),
          at + quad * ThisLane::kQuadStride, lane.LeftAt(quad, place.values));
    }
  }
}

}  // namespace causeway

#endif  // QUANTIZATION_CUDA_BLOCK_STREAMS_H_
