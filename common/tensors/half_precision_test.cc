// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/tensors/half_precision.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace causeway {
namespace {

// Trainers may have the processor take subnormal numbers for zero, as
// torch.set_flush_denormal does.
TEST(HalfPrecisionTest, FlushingSubnormalNumbersKeepsThoseOfF16) {
#ifdef __x86_64__
  constexpr unsigned kFlushResultsAndOperands = 0x8040;
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | kFlushResultsAndOperands);
#endif
  std::vector<float> values;
  for (int code = 0; code < 1 << 16; ++code) {
    values.push_back(FromF16(static_cast<uint16_t>(code)));
  }
#ifdef __x86_64__
  _mm_setcsr(mode);
#endif
  for (int code = 0; code < 1 << 16; ++code) {
    const int exponent = code >> 10 & 31;
    const int fraction = code & 1023;
    const float expected =
        exponent == 31
            ? INFINITY
            : std::ldexp(
                  static_cast<float>(exponent > 0 ? 1024 + fraction : fraction),
                  std::max(exponent, 1) - 25);
    EXPECT_EQ(std::fabs(values[code]), expected) << code;
    EXPECT_EQ(std::signbit(values[code]), code >= 1 << 15) << code;
  }
}

}  // namespace
}  // namespace causeway
