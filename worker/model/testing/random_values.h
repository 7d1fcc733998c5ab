// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Inputs for tests of operations, and the comparison with a reference in
// double.
#ifndef WORKER_MODEL_TESTING_RANDOM_VALUES_H_
#define WORKER_MODEL_TESTING_RANDOM_VALUES_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace causeway {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

// Returns normally distributed values.
inline Floats Random(int64_t size, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(static_cast<size_t>(size));
  for (float& value : values) value = normal(generator);
  return values;
}

// Returns tokens from 0 to `end` - 1.
inline std::vector<int32_t> RandomTokens(int64_t size, int32_t end,
                                         uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_int_distribution<int32_t> uniform(0, end - 1);
  std::vector<int32_t> tokens(static_cast<size_t>(size));
  for (int32_t& token : tokens) token = uniform(generator);
  return tokens;
}

inline Doubles Widen(const Floats& values) {
  return {values.begin(), values.end()};
}

// Expects the error of each value to be at most `tolerance` times the largest
// wanted value. The default is as close as sums in fp32 come.
inline void ExpectNear(const Floats& got, const Doubles& want,
                       double tolerance = 3e-6) {
  ASSERT_EQ(got.size(), want.size());
  double scale = 1e-30;
  for (const double value : want) scale = std::max(scale, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * scale) << "at " << i;
  }
}

}  // namespace causeway

#endif  // WORKER_MODEL_TESTING_RANDOM_VALUES_H_
