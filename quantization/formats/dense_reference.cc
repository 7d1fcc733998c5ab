// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/dense_reference.h"

#include <bit>
#include <cmath>

namespace causeway {

uint16_t Bf16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // Rounding could carry a NaN's payload into infinity or zero.
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x0040);
  // Adds just under one half of the last kept bit, and one more where that bit
  // is odd: exact halves go to the even neighbour.
  const uint32_t half = 0x7fff + ((bits >> 16) & 1);
  return static_cast<uint16_t>((bits + half) >> 16);
}

float Accumulate(float accumulator, float weight, float value) {
  const float product = weight * value;
  return accumulator + product;
}

}  // namespace causeway
