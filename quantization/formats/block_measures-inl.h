// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The measures of a block that encoders take before they quantize it. Several
// kernels include this file, once for each instruction set.

// Highway's include guard: one inclusion per instruction set.
#if defined(QUANTIZATION_FORMATS_BLOCK_MEASURES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef QUANTIZATION_FORMATS_BLOCK_MEASURES_INL_H_
#undef QUANTIZATION_FORMATS_BLOCK_MEASURES_INL_H_
#else
#define QUANTIZATION_FORMATS_BLOCK_MEASURES_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "quantization/formats/block_quantizers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The distance, in bytes, of prefetches ahead of the reads: further than the
// hardware prefetches by itself. Of 0, 1, 2, 4 and 8 KiB the last was fastest.
// Prefetching beyond the end of an array does no harm.
//
// Encoders read a block twice, from memory and then from the cache. Each pass
// prefetches half of the lines, so that memory is never idle.
constexpr size_t kPrefetchBytes = 8192;

HWY_INLINE void PrefetchAhead(const void* address) {
  hwy::Prefetch(static_cast<const char*>(address) + kPrefetchBytes);
}

// Returns the bits of the largest magnitude. By their order, NaN is above
// infinity.
HWY_INLINE float AbsMax(const float* values, size_t count) {
  const Ints ints;
  auto even = hn::Zero(ints);
  auto odd = hn::Zero(ints);
  for (size_t i = 0; i < count; i += 2 * kRow) {
    PrefetchAhead(values + i);
    for (size_t lane = 0; lane < kRow; lane += hn::Lanes(ints)) {
      const float* const at = values + i + lane;
      const auto first = hn::LoadU(Floats(), at);
      const auto second = hn::LoadU(Floats(), at + kRow);
      even = hn::Max(even, Magnitude(hn::BitCast(ints, first)));
      odd = hn::Max(odd, Magnitude(hn::BitCast(ints, second)));
    }
  }
  const auto largest = hn::MaxOfLanes(ints, hn::Max(even, odd));
  return std::bit_cast<float>(hn::GetLane(largest));
}

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#endif  // QUANTIZATION_FORMATS_BLOCK_MEASURES_INL_H_
