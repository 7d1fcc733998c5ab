// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The options that only the sender of an encoding needs: they change the codes,
// but not how to read them.
#ifndef QUANTIZATION_ENCODE_OPTIONS_H_
#define QUANTIZATION_ENCODE_OPTIONS_H_

#include <cstdint>

namespace causeway {

// The way an encoder chooses between the two levels around a value.
enum class Rounding {
  // Takes the nearer one.
  kNearest,
  // Takes either, at random, such that the mean of the decoded values is the
  // value.
  kStochastic,
};

struct EncodeOptions {
  Rounding rounding = Rounding::kNearest;
  // Seeds the random numbers of stochastic rounding. The same seed, values and
  // spec give the same bytes.
  uint64_t seed = 0;
  // ECQ's target. If ecq_bits is not 0, it is the rate in bits per value,
  // including everything that is sent; otherwise ecq_distortion is the mean
  // squared error relative to the mean square.
  double ecq_bits = 0;
  double ecq_distortion = 0.035;
};

}  // namespace causeway

#endif  // QUANTIZATION_ENCODE_OPTIONS_H_
