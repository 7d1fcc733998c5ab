// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What only the sender of an encoding needs to know: choices that change the
// codes, but not how they are read.
#ifndef QUANTIZATION_ENCODE_OPTIONS_H_
#define QUANTIZATION_ENCODE_OPTIONS_H_

#include <cstdint>

namespace causeway {

// Which of the two levels around a value an encoder takes.
enum class Rounding {
  // The nearer one.
  kNearest,
  // Either, at random, such that the mean of what is decoded is the value.
  kStochastic,
};

struct EncodeOptions {
  Rounding rounding = Rounding::kNearest;
  // Seeds the random numbers of stochastic rounding. The same seed, values and
  // spec give the same bytes.
  uint64_t seed = 0;
  // ECQ: the rate to aim at, in bits per value with everything that is sent;
  // where it is 0, the distortion: mean squared error / mean square.
  double ecq_bits = 0;
  double ecq_distortion = 0.035;
};

}  // namespace causeway

#endif  // QUANTIZATION_ENCODE_OPTIONS_H_
