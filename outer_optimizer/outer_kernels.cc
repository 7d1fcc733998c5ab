// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "outer_optimizer/outer_kernels.h"

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

using Floats = hn::ScalableTag<float>;
// One lane, for what is left of a tile: the same operations on the same types.
using OneFloat = hn::CappedTag<float, 1>;

// How far ahead of the reads memory is asked for, in values. A tile is two
// pages of each array, too few for the hardware to notice. Asking beyond the
// end of an array does no harm.
constexpr size_t kPrefetchValues = 1024;

// Calls body(tag, i) for i = 0, L, 2L, ... with full vectors, then for each
// value that is left with a single lane.
template <typename Body>
void ForEachVector(size_t count, const Body& body) {
  const Floats floats;
  const OneFloat one;
  const size_t lanes = hn::Lanes(floats);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) body(floats, i);
  for (; i < count; ++i) body(one, i);
}

double SumOfSquaresKernel(const float* values, size_t count) {
  constexpr size_t kPartialSums = 16;
  const hn::CappedTag<double, kPartialSums> doubles;
  const hn::Rebind<float, decltype(doubles)> floats;
  const size_t lanes = hn::Lanes(doubles);
  HWY_ALIGN double sums[kPartialSums] = {};
  size_t i = 0;
  for (; i + kPartialSums <= count; i += kPartialSums) {
    for (size_t j = 0; j < kPartialSums; j += lanes) {
      const auto value =
          hn::PromoteTo(doubles, hn::LoadU(floats, values + i + j));
      const auto square = hn::Mul(value, value);
      hn::Store(hn::Add(hn::Load(doubles, sums + j), square), doubles,
                sums + j);
    }
  }
  for (size_t j = 0; i + j < count; ++j) {
    const double value = static_cast<double>(values[i + j]);
    const double square = value * value;
    sums[j] += square;
  }
  double sum = 0;
  for (const double partial : sums) sum += partial;
  return sum;
}

void SgdChangeKernel(const StepCoefficients& coefficients, float* gradient,
                     size_t count) {
  const float minus_rate = -coefficients.learning_rate;
  ForEachVector(count, [&](auto tag, size_t i) {
    const auto g = hn::LoadU(tag, gradient + i);
    hn::StoreU(hn::Mul(hn::Set(tag, minus_rate), g), tag, gradient + i);
  });
}

void NesterovChangeKernel(const StepCoefficients& coefficients, float* gradient,
                          const float* old_momentum, float* new_momentum,
                          size_t count) {
  const float minus_rate = -coefficients.learning_rate;
  ForEachVector(count, [&](auto tag, size_t i) {
    hwy::Prefetch(old_momentum + i + kPrefetchValues);
    const auto mu = hn::Set(tag, coefficients.momentum);
    const auto g = hn::LoadU(tag, gradient + i);
    const auto m = hn::Add(hn::Mul(mu, hn::LoadU(tag, old_momentum + i)), g);
    hn::StoreU(m, tag, new_momentum + i);
    const auto direction = hn::Add(g, hn::Mul(mu, m));
    hn::StoreU(hn::Mul(hn::Set(tag, minus_rate), direction), tag, gradient + i);
  });
}

void HeavyBallChangeKernel(const StepCoefficients& coefficients,
                           float* gradient, const float* old_momentum,
                           float* new_momentum, size_t count) {
  const float minus_rate = -coefficients.learning_rate;
  ForEachVector(count, [&](auto tag, size_t i) {
    hwy::Prefetch(old_momentum + i + kPrefetchValues);
    const auto mu = hn::Set(tag, coefficients.momentum);
    const auto g = hn::LoadU(tag, gradient + i);
    const auto m = hn::Add(hn::Mul(mu, hn::LoadU(tag, old_momentum + i)), g);
    hn::StoreU(m, tag, new_momentum + i);
    hn::StoreU(hn::Mul(hn::Set(tag, minus_rate), m), tag, gradient + i);
  });
}

void AddResidualKernel(const float* residual, float* change, size_t count) {
  ForEachVector(count, [&](auto tag, size_t i) {
    hwy::Prefetch(residual + i + kPrefetchValues);
    const auto sum =
        hn::Add(hn::LoadU(tag, change + i), hn::LoadU(tag, residual + i));
    hn::StoreU(sum, tag, change + i);
  });
}

// x - x is 0 for finite x and NaN otherwise, and a NaN stays in a sum.
bool ApplyDecodedKernel(const float* change, const float* decoded,
                        const float* old_theta, float* new_theta,
                        float* new_residual, size_t count) {
  const Floats floats;
  auto probe = hn::Zero(floats);
  float tail_probe = 0;
  ForEachVector(count, [&](auto tag, size_t i) {
    hwy::Prefetch(old_theta + i + kPrefetchValues);
    const auto c = hn::LoadU(tag, change + i);
    const auto d = hn::LoadU(tag, decoded + i);
    const auto theta = hn::Add(hn::LoadU(tag, old_theta + i), d);
    hn::StoreU(theta, tag, new_theta + i);
    if (new_residual != nullptr) {
      hn::StoreU(hn::Sub(c, d), tag, new_residual + i);
    }
    const auto bad = hn::Add(hn::Sub(c, c), hn::Sub(theta, theta));
    if constexpr (std::is_same_v<decltype(tag), Floats>) {
      probe = hn::Add(probe, bad);
    } else {
      tail_probe += hn::GetLane(bad);
    }
  });
  return hn::GetLane(hn::SumOfLanes(floats, probe)) + tail_probe == 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace causeway {

HWY_EXPORT(SumOfSquaresKernel);
HWY_EXPORT(SgdChangeKernel);
HWY_EXPORT(NesterovChangeKernel);
HWY_EXPORT(HeavyBallChangeKernel);
HWY_EXPORT(AddResidualKernel);
HWY_EXPORT(ApplyDecodedKernel);

double SumOfSquares(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquaresKernel)(values, count);
}

void SgdChange(const StepCoefficients& coefficients, float* gradient,
               size_t count) {
  HWY_DYNAMIC_DISPATCH(SgdChangeKernel)(coefficients, gradient, count);
}

void NesterovChange(const StepCoefficients& coefficients, float* gradient,
                    const float* old_momentum, float* new_momentum,
                    size_t count) {
  HWY_DYNAMIC_DISPATCH(NesterovChangeKernel)
  (coefficients, gradient, old_momentum, new_momentum, count);
}

void HeavyBallChange(const StepCoefficients& coefficients, float* gradient,
                     const float* old_momentum, float* new_momentum,
                     size_t count) {
  HWY_DYNAMIC_DISPATCH(HeavyBallChangeKernel)
  (coefficients, gradient, old_momentum, new_momentum, count);
}

void AddResidual(const float* residual, float* change, size_t count) {
  HWY_DYNAMIC_DISPATCH(AddResidualKernel)(residual, change, count);
}

bool ApplyDecoded(const float* change, const float* decoded,
                  const float* old_theta, float* new_theta, float* new_residual,
                  size_t count) {
  return HWY_DYNAMIC_DISPATCH(ApplyDecodedKernel)(
      change, decoded, old_theta, new_theta, new_residual, count);
}

}  // namespace causeway
#endif  // HWY_ONCE
