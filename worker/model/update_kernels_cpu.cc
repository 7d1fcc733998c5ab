// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/model/update_kernels_cpu.h"

#include <cstdint>

// kernels_cpu.cc explains these lines.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/model/update_kernels_cpu.cc"
#include "hwy/foreach_target.h"
// foreach_target.h has to come before the rest of Highway.
#include "hwy/highway.h"
#include "worker/model/vector_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace causeway::kernels::HWY_NAMESPACE {

// Returns the sum of term(values) in double, for vectors of half as many
// values.
template <typename Term>
HWY_INLINE double DoubleSumOf(const float* values, int64_t size,
                              const Term& term) {
  const hn::ScalableTag<double> wide;
  const hn::Rebind<float, decltype(wide)> narrow;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(wide));
  auto sum0 = hn::Zero(wide);
  auto sum1 = hn::Zero(wide);
  int64_t i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    sum0 =
        hn::Add(sum0, term(hn::PromoteTo(wide, hn::LoadU(narrow, values + i))));
    sum1 = hn::Add(
        sum1, term(hn::PromoteTo(wide, hn::LoadU(narrow, values + i + lanes))));
  }
  double sum = hn::GetLane(hn::SumOfLanes(wide, hn::Add(sum0, sum1)));
  const hn::CappedTag<double, 1> single;
  for (; i < size; ++i) {
    sum += hn::GetLane(term(hn::Set(single, static_cast<double>(values[i]))));
  }
  return sum;
}

double Sum(const float* values, int64_t size) {
  return DoubleSumOf(values, size, [](auto v) HWY_ATTR { return v; });
}

double SquaredNorm(const float* values, int64_t size) {
  return DoubleSumOf(values, size,
                     [](auto v) HWY_ATTR { return hn::Mul(v, v); });
}

// The moments and parameters after one update.
template <class Vec>
struct AdamWResult {
  Vec parameter;
  Vec first_moment;
  Vec second_moment;
};

template <class Tag, class Vec = hn::Vec<Tag>>
HWY_INLINE AdamWResult<Vec> AdamWUpdate(const AdamWCoefficients& c, Tag tag,
                                        Vec gradient, Vec parameter,
                                        Vec first_moment, Vec second_moment) {
  const auto g = hn::Mul(gradient, hn::Set(tag, c.gradient_scale));
  const auto share1 = hn::Set(tag, 1 - c.beta1);
  const auto share2 = hn::Set(tag, 1 - c.beta2);
  const auto m =
      hn::MulAdd(hn::Set(tag, c.beta1), first_moment, hn::Mul(share1, g));
  const auto v = hn::MulAdd(hn::Set(tag, c.beta2), second_moment,
                            hn::Mul(share2, hn::Mul(g, g)));
  const auto root =
      hn::MulAdd(hn::Sqrt(v), hn::Set(tag, c.inverse_sqrt_correction2),
                 hn::Set(tag, c.epsilon));
  const auto step = hn::Div(hn::Mul(hn::Set(tag, c.step_size), m), root);
  return {hn::MulSub(hn::Set(tag, c.decay), parameter, step), m, v};
}

void AdamW(const AdamWCoefficients& coefficients, const float* gradients,
           int64_t size, float* parameters, float* first_moment,
           float* second_moment, float* estimate) {
  const auto update = [=](auto tag, int64_t i) HWY_ATTR {
    return AdamWUpdate(coefficients, tag, hn::LoadU(tag, gradients + i),
                       hn::LoadU(tag, parameters + i),
                       hn::LoadU(tag, first_moment + i),
                       hn::LoadU(tag, second_moment + i));
  };
  if (estimate != nullptr) {
    return ForEach(0, size, [=](auto tag, int64_t i) HWY_ATTR {
      hn::StoreU(update(tag, i).parameter, tag, estimate + i);
    });
  }
  ForEach(0, size, [=](auto tag, int64_t i) HWY_ATTR {
    const auto result = update(tag, i);
    hn::StoreU(result.parameter, tag, parameters + i);
    hn::StoreU(result.first_moment, tag, first_moment + i);
    hn::StoreU(result.second_moment, tag, second_moment + i);
  });
}

}  // namespace causeway::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace causeway::kernels {

HWY_EXPORT(Sum);
HWY_EXPORT(SquaredNorm);
HWY_EXPORT(AdamW);

double Sum(const float* values, int64_t size) {
  return HWY_DYNAMIC_DISPATCH(Sum)(values, size);
}

double SquaredNorm(const float* values, int64_t size) {
  return HWY_DYNAMIC_DISPATCH(SquaredNorm)(values, size);
}

void AdamW(const AdamWCoefficients& coefficients, const float* gradients,
           int64_t size, float* parameters, float* first_moment,
           float* second_moment, float* estimate) {
  HWY_DYNAMIC_DISPATCH(AdamW)
  (coefficients, gradients, size, parameters, first_moment, second_moment,
   estimate);
}

}  // namespace causeway::kernels
#endif  // HWY_ONCE
