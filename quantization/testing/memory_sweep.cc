// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/testing/memory_sweep.h"

#include <algorithm>
#include <cmath>

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantization/testing/memory_sweep.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

float LargestMagnitudeKernel(const float* values, size_t count) {
  const hn::ScalableTag<float> floats;
  const size_t lanes = hn::Lanes(floats);
  auto a = hn::Zero(floats);
  auto b = a;
  auto c = a;
  auto d = a;
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const float* const at = values + i;
    for (size_t line = 0; line < 4 * lanes; line += 16) {
      hwy::Prefetch(at + line + 2048);
    }
    a = hn::Max(a, hn::Abs(hn::LoadU(floats, at)));
    b = hn::Max(b, hn::Abs(hn::LoadU(floats, at + lanes)));
    c = hn::Max(c, hn::Abs(hn::LoadU(floats, at + 2 * lanes)));
    d = hn::Max(d, hn::Abs(hn::LoadU(floats, at + 3 * lanes)));
  }
  const auto largest = hn::Max(hn::Max(a, b), hn::Max(c, d));
  float result = hn::GetLane(hn::MaxOfLanes(floats, largest));
  for (; i < count; ++i) result = std::max(result, std::fabs(values[i]));
  return result;
}

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace causeway {

HWY_EXPORT(LargestMagnitudeKernel);

float LargestMagnitude(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(LargestMagnitudeKernel)(values, count);
}

}  // namespace causeway
#endif  // HWY_ONCE
