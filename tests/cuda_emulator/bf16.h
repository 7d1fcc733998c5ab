// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// bf16 with the rounding of GPUs. This is not the project's own code, which is
// under test.
#ifndef TESTS_CUDA_EMULATOR_BF16_H_
#define TESTS_CUDA_EMULATOR_BF16_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace causeway::ptx {

inline float FromBf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}
// Rounds to nearest, ties to even.
inline uint16_t ToBf16(float value) {
  if (std::isnan(value)) return 0x7fff;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace causeway::ptx

#endif  // TESTS_CUDA_EMULATOR_BF16_H_
