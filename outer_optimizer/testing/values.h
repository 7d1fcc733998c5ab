// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef OUTER_OPTIMIZER_TESTING_VALUES_H_
#define OUTER_OPTIMIZER_TESTING_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace causeway {

// Returns pseudo-random values, evenly spread between -scale and scale.
inline std::vector<float> Values(size_t count, uint32_t seed, float scale = 1) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525 + 1013904223;
    value = scale * static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
  }
  return values;
}

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_TESTING_VALUES_H_
