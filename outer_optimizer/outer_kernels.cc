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

using Floats = hn::CappedTag<float, kStreamAlignment / sizeof(float)>;
// One lane, for what is left of a tile: the same operations on the same types.
using OneFloat = hn::CappedTag<float, 1>;

// How far ahead of the reads memory is asked for, in values: about as many as
// the outer step takes at once, so that what comes next arrives while these are
// encoded. Asking beyond the end of an array does no harm.
constexpr size_t kPrefetchValues = 512;

// Calls body(tag, i) for i = 0, L, 2L, ... with full vectors, then for each
// value that is left with a single lane.
template <typename Body>
HWY_INLINE void ForEachVector(size_t count, const Body& body) {
  const Floats floats;
  const OneFloat one;
  const size_t lanes = hn::Lanes(floats);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) body(floats, i);
  for (; i < count; ++i) body(one, i);
}

// Null counts as aligned.
HWY_INLINE bool CanStream(const float* array) {
  return reinterpret_cast<uintptr_t>(array) % kStreamAlignment == 0;
}

// A part of the new state.
template <bool kStream, class Tag>
HWY_INLINE void Put(hn::Vec<Tag> value, Tag tag, float* destination) {
  if constexpr (kStream && std::is_same_v<Tag, Floats>) {
    hn::Stream(value, tag, destination);
  } else {
    hn::StoreU(value, tag, destination);
  }
}

constexpr size_t kPartialSums = SquareSums::kCount;

double SumOfSquaresKernel(const float* values, size_t count) {
  // Four chains of additions hide each other's latency.
  constexpr size_t kChains = 4;
  const hn::CappedTag<double, kPartialSums / kChains> doubles;
  const hn::Rebind<float, decltype(doubles)> floats;
  const size_t lanes = hn::Lanes(doubles);
  const size_t whole = count / kPartialSums * kPartialSums;
  const auto square = [&](size_t at) HWY_ATTR {
    const auto value = hn::PromoteTo(doubles, hn::LoadU(floats, values + at));
    return hn::Mul(value, value);
  };
  SquareSums sums;
  for (size_t j = 0; j < kPartialSums; j += kChains * lanes) {
    auto a = hn::Zero(doubles);
    auto b = a;
    auto c = a;
    auto d = a;
    for (size_t i = j; i < whole; i += kPartialSums) {
      a = hn::Add(a, square(i));
      b = hn::Add(b, square(i + lanes));
      c = hn::Add(c, square(i + 2 * lanes));
      d = hn::Add(d, square(i + 3 * lanes));
    }
    hn::StoreU(a, doubles, sums.partial + j);
    hn::StoreU(b, doubles, sums.partial + j + lanes);
    hn::StoreU(c, doubles, sums.partial + j + 2 * lanes);
    hn::StoreU(d, doubles, sums.partial + j + 3 * lanes);
  }
  for (size_t i = whole; i < count; ++i) {
    const double value = static_cast<double>(values[i]);
    sums.partial[i - whole] += value * value;
  }
  return sums.Total();
}

// Adds the squares of a vector of values, which begins with value `i`.
template <class Tag>
HWY_INLINE void AddSquares(Tag tag, const float* values, size_t i,
                           SquareSums& squares) {
  constexpr bool kIsVector = std::is_same_v<Tag, Floats>;
  const hn::CappedTag<double, kIsVector ? 8 : 1> doubles;
  const hn::Rebind<float, decltype(doubles)> floats;
  for (size_t lane = 0; lane < hn::Lanes(tag); lane += hn::Lanes(doubles)) {
    const auto value = hn::PromoteTo(doubles, hn::LoadU(floats, values + lane));
    double* const sum = squares.partial + (i + lane) % kPartialSums;
    const auto sum_so_far = hn::LoadU(doubles, sum);
    hn::StoreU(hn::Add(sum_so_far, hn::Mul(value, value)), doubles, sum);
  }
}

template <bool kStream>
HWY_INLINE void MakeChangeTo(const StepCoefficients& coefficients,
                             const ChangeArrays& all, size_t count,
                             SquareSums& squares) {
  // Copies: for all the compiler knows, storing a result could change them.
  const StepCoefficients by = coefficients;
  const ChangeArrays arrays = all;
  SquareSums sums = squares;
  ForEachVector(count, [&](auto tag, size_t i) HWY_ATTR {
    using Tag = decltype(tag);
    const auto gradient = hn::LoadU(tag, arrays.gradient + i);
    AddSquares(tag, arrays.gradient + i, i, sums);
    auto taken = gradient;
    if (arrays.old_sum != nullptr) {
      hwy::Prefetch(arrays.old_sum + i + kPrefetchValues);
      taken = hn::Add(hn::LoadU(tag, arrays.old_sum + i), gradient);
      Put<kStream, Tag>(by.clears_sum ? hn::Zero(tag) : taken, tag,
                        arrays.new_sum + i);
    }
    auto direction = hn::Mul(hn::Set(tag, by.gradient_share), gradient);
    if (arrays.old_momentum != nullptr) {
      hwy::Prefetch(arrays.old_momentum + i + kPrefetchValues);
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
      hwy::Prefetch(arrays.residual + i + kPrefetchValues);
      change = hn::Add(change, hn::LoadU(tag, arrays.residual + i));
    }
    hn::StoreU(change, tag, arrays.gradient + i);
  });
  squares = sums;
}

void MakeChangeKernel(const StepCoefficients& coefficients,
                      const ChangeArrays& arrays, size_t count,
                      SquareSums& squares) {
  if (CanStream(arrays.new_momentum) && CanStream(arrays.new_sum)) {
    MakeChangeTo<true>(coefficients, arrays, count, squares);
  } else {
    MakeChangeTo<false>(coefficients, arrays, count, squares);
  }
}

// x - x is 0 for finite x and NaN otherwise, and a NaN stays in a sum.
template <bool kStream>
HWY_INLINE bool ApplyDecodedTo(const float* change, const float* decoded,
                               const float* old_theta, float* new_theta,
                               float* new_residual, size_t count) {
  const Floats floats;
  auto probe = hn::Zero(floats);
  float tail_probe = 0;
  ForEachVector(count, [&](auto tag, size_t i) HWY_ATTR {
    using Tag = decltype(tag);
    hwy::Prefetch(old_theta + i + kPrefetchValues);
    const auto c = hn::LoadU(tag, change + i);
    const auto d = hn::LoadU(tag, decoded + i);
    const auto theta = hn::Add(hn::LoadU(tag, old_theta + i), d);
    Put<kStream, Tag>(theta, tag, new_theta + i);
    if (new_residual != nullptr) {
      Put<kStream, Tag>(hn::Sub(c, d), tag, new_residual + i);
    }
    const auto bad = hn::Add(hn::Sub(c, c), hn::Sub(theta, theta));
    if constexpr (std::is_same_v<Tag, Floats>) {
      probe = hn::Add(probe, bad);
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

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace causeway {

HWY_EXPORT(SumOfSquaresKernel);
HWY_EXPORT(MakeChangeKernel);
HWY_EXPORT(ApplyDecodedKernel);

double SquareSums::Total() const {
  double sum = 0;
  for (const double part : partial) sum += part;
  return sum;
}

double SumOfSquares(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquaresKernel)(values, count);
}

void MakeChange(const StepCoefficients& coefficients,
                const ChangeArrays& arrays, size_t count, SquareSums& squares) {
  HWY_DYNAMIC_DISPATCH(MakeChangeKernel)
  (coefficients, arrays, count, squares);
}

bool ApplyDecoded(const float* change, const float* decoded,
                  const float* old_theta, float* new_theta, float* new_residual,
                  size_t count) {
  return HWY_DYNAMIC_DISPATCH(ApplyDecodedKernel)(
      change, decoded, old_theta, new_theta, new_residual, count);
}

void FlushStreams() { hwy::FlushStream(); }

}  // namespace causeway
#endif  // HWY_ONCE
