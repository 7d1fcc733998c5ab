// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/outer_kernels.h"

#include <cstdint>
#include <type_traits>

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "outer_optimizer/outer_kernels.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLine = kStreamAlignment / sizeof(float);
using Floats = hn::CappedTag<float, kLine>;
// Takes the rest of a tile with the same operations, one lane at a time.
using OneFloat = hn::CappedTag<float, 1>;

// The distance of prefetches ahead of reads: about as many values as the outer
// step takes at once, so that the next ones arrive while these are encoded.
// Prefetching beyond the end of an array is harmless.
constexpr size_t kPrefetchValues = 512;

// Calls body(tag, i) for i = 0, L, 2L, ... with full vectors, then for each
// remaining value with a single lane. Calls ahead(i + kPrefetchValues) before
// each cache line of kLine values.
template <typename Ahead, typename Body>
HWY_INLINE void ForEachVector(size_t count, const Ahead& ahead,
                              const Body& body) {
  const Floats floats;
  const OneFloat one;
  size_t i = 0;
  for (; i + kLine <= count; i += kLine) {
    ahead(i + kPrefetchValues);
    HWY_UNROLL(4)
    for (size_t lane = 0; lane < kLine; lane += hn::Lanes(floats)) {
      body(floats, i + lane);
    }
  }
  for (; i < count; ++i) body(one, i);
}

// Null counts as aligned.
HWY_INLINE bool CanStream(const float* array) {
  return reinterpret_cast<uintptr_t>(array) % kStreamAlignment == 0;
}

// Stores new state, past the caches if kStream.
template <bool kStream, class Tag>
HWY_INLINE void Put(hn::Vec<Tag> value, Tag tag, float* destination) {
  if constexpr (kStream && std::is_same_v<Tag, Floats>) {
    hn::Stream(value, tag, destination);
  } else {
    hn::StoreU(value, tag, destination);
  }
}

template <bool kStream>
HWY_INLINE void MakeChangeTo(const StepCoefficients& coefficients,
                             const ChangeArrays& all, size_t count) {
  // Copy both, because the compiler must assume that storing a result changes
  // them.
  const StepCoefficients by = coefficients;
  const ChangeArrays arrays = all;
  const auto ahead = [&](size_t i) HWY_ATTR {
    if (arrays.old_sum != nullptr) hwy::Prefetch(arrays.old_sum + i);
    if (arrays.old_momentum != nullptr) hwy::Prefetch(arrays.old_momentum + i);
    if (arrays.residual != nullptr) hwy::Prefetch(arrays.residual + i);
  };
  ForEachVector(count, ahead, [&](auto tag, size_t i) HWY_ATTR {
    using Tag = decltype(tag);
    const auto gradient = hn::LoadU(tag, arrays.gradient + i);
    auto taken = gradient;
    if (arrays.old_sum != nullptr) {
      taken = hn::Add(hn::LoadU(tag, arrays.old_sum + i), gradient);
      Put<kStream, Tag>(by.clears_sum ? hn::Zero(tag) : taken, tag,
                        arrays.new_sum + i);
    }
    auto direction = hn::Mul(hn::Set(tag, by.gradient_share), gradient);
    if (arrays.old_momentum != nullptr) {
      const auto decayed = hn::Mul(hn::Set(tag, by.momentum_decay),
                                   hn::LoadU(tag, arrays.old_momentum + i));
      const auto momentum =
          hn::Add(decayed, hn::Mul(hn::Set(tag, by.intake), taken));
      Put<kStream, Tag>(momentum, tag, arrays.new_momentum + i);
      direction = hn::Add(direction,
                          hn::Mul(hn::Set(tag, by.momentum_share), momentum));
    }
    auto change = hn::Mul(hn::Set(tag, -by.learning_rate), direction);
    if (arrays.residual != nullptr) {
      change = hn::Add(change, hn::LoadU(tag, arrays.residual + i));
    }
    hn::StoreU(change, tag, arrays.gradient + i);
  });
}

void MakeChangeKernel(const StepCoefficients& coefficients,
                      const ChangeArrays& arrays, size_t count) {
  if (CanStream(arrays.new_momentum) && CanStream(arrays.new_sum)) {
    MakeChangeTo<true>(coefficients, arrays, count);
  } else {
    MakeChangeTo<false>(coefficients, arrays, count);
  }
}

// x * 0 is a zero for finite x and NaN otherwise, and OR-ing anything with a
// NaN leaves a NaN: this costs the units that add nothing.
template <bool kStream>
HWY_INLINE bool ApplyDecodedTo(const float* change, const float* decoded,
                               const float* old_theta, float* new_theta,
                               float* new_residual, size_t count) {
  const Floats floats;
  auto probe = hn::Zero(floats);
  float tail_probe = 0;
  const auto ahead = [&](size_t i) HWY_ATTR { hwy::Prefetch(old_theta + i); };
  ForEachVector(count, ahead, [&](auto tag, size_t i) HWY_ATTR {
    using Tag = decltype(tag);
    const auto c = hn::LoadU(tag, change + i);
    const auto d = hn::LoadU(tag, decoded + i);
    const auto theta = hn::Add(hn::LoadU(tag, old_theta + i), d);
    Put<kStream, Tag>(theta, tag, new_theta + i);
    if (new_residual != nullptr) {
      Put<kStream, Tag>(hn::Sub(c, d), tag, new_residual + i);
    }
    const auto zero = hn::Zero(tag);
    const auto bad = hn::Or(hn::Mul(c, zero), hn::Mul(theta, zero));
    if constexpr (std::is_same_v<Tag, Floats>) {
      probe = hn::Or(probe, bad);
    } else {
      tail_probe += hn::GetLane(bad);
    }
  });
  return hn::GetLane(hn::SumOfLanes(floats, probe)) + tail_probe == 0;
}

bool ApplyDecodedKernel(const float* change, const float* decoded,
                        const float* old_theta, float* new_theta,
                        float* new_residual, size_t count) {
  return CanStream(new_theta) && CanStream(new_residual)
             ? ApplyDecodedTo<true>(change, decoded, old_theta, new_theta,
                                    new_residual, count)
             : ApplyDecodedTo<false>(change, decoded, old_theta, new_theta,
                                     new_residual, count);
}

template <bool kStream>
HWY_INLINE void AdvanceAnchorTo(const float* anchor, float* change,
                                float* new_anchor, size_t count) {
  const auto ahead = [&](size_t i) HWY_ATTR { hwy::Prefetch(anchor + i); };
  ForEachVector(count, ahead, [&](auto tag, size_t i) HWY_ATTR {
    using Tag = decltype(tag);
    const auto value =
        hn::Add(hn::LoadU(tag, anchor + i), hn::LoadU(tag, change + i));
    hn::StoreU(value, tag, change + i);
    Put<kStream, Tag>(value, tag, new_anchor + i);
  });
}

void AdvanceAnchorKernel(const float* anchor, float* change, float* new_anchor,
                         size_t count) {
  if (CanStream(new_anchor)) {
    AdvanceAnchorTo<true>(anchor, change, new_anchor, count);
  } else {
    AdvanceAnchorTo<false>(anchor, change, new_anchor, count);
  }
}

template <bool kStream>
HWY_INLINE void CopyStateTo(const float* from, float* to, size_t count) {
  const auto ahead = [&](size_t i) HWY_ATTR { hwy::Prefetch(from + i); };
  ForEachVector(count, ahead, [&](auto tag, size_t i) HWY_ATTR {
    using Tag = decltype(tag);
    Put<kStream, Tag>(hn::LoadU(tag, from + i), tag, to + i);
  });
}

void CopyStateKernel(const float* from, float* to, size_t count) {
  if (CanStream(to)) {
    CopyStateTo<true>(from, to, count);
  } else {
    CopyStateTo<false>(from, to, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace causeway {

HWY_EXPORT(MakeChangeKernel);
HWY_EXPORT(ApplyDecodedKernel);
HWY_EXPORT(AdvanceAnchorKernel);
HWY_EXPORT(CopyStateKernel);

void MakeChange(const StepCoefficients& coefficients,
                const ChangeArrays& arrays, size_t count) {
  HWY_DYNAMIC_DISPATCH(MakeChangeKernel)(coefficients, arrays, count);
}

bool ApplyDecoded(const float* change, const float* decoded,
                  const float* old_theta, float* new_theta, float* new_residual,
                  size_t count) {
  return HWY_DYNAMIC_DISPATCH(ApplyDecodedKernel)(
      change, decoded, old_theta, new_theta, new_residual, count);
}

void AdvanceAnchor(const float* anchor, float* change, float* new_anchor,
                   size_t count) {
  HWY_DYNAMIC_DISPATCH(AdvanceAnchorKernel)(anchor, change, new_anchor, count);
}

void CopyState(const float* from, float* to, size_t count) {
  HWY_DYNAMIC_DISPATCH(CopyStateKernel)(from, to, count);
}

void FlushStreams() { hwy::FlushStream(); }

}  // namespace causeway
#endif  // HWY_ONCE
