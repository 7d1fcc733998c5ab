// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef QUANTIZATION_ROUNDING_H_
#define QUANTIZATION_ROUNDING_H_

namespace causeway {

// Which of the two levels around a value an encoder takes.
enum class Rounding {
  // The nearer one.
  kNearest,
  // Either, at random, such that the mean of what is decoded is the value.
  kStochastic,
};

}  // namespace causeway

#endif  // QUANTIZATION_ROUNDING_H_
