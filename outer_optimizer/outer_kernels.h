// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of the outer step over one tile: one source in Highway,
// compiled for several instruction sets. Every operation is rounded on its own,
// in the order written here, so that all of them give the same bits.
//
// Arrays have `count` values and need no alignment. An output may be the same
// array as the input of the same name; apart from that arrays do not overlap.
#ifndef OUTER_OPTIMIZER_OUTER_KERNELS_H_
#define OUTER_OPTIMIZER_OUTER_KERNELS_H_

#include <cstddef>

namespace causeway {

// The sum of squares in double: 16 partial sums, partial sum j over the values
// i with i mod 16 = j in order, then added in order of j.
double SumOfSquares(const float* values, size_t count);

// Learning rate and mu of the step.
struct StepCoefficients {
  float learning_rate = 0;
  float momentum = 0;
};

// change = -learning_rate * gradient, and the same with momentum:
//   new_momentum = momentum * old_momentum + gradient
//   Nesterov:   change = -learning_rate * (gradient + momentum * new_momentum)
//   heavy ball: change = -learning_rate * new_momentum
// `change` takes the place of `gradient`.
void SgdChange(const StepCoefficients& coefficients, float* gradient,
               size_t count);
void NesterovChange(const StepCoefficients& coefficients, float* gradient,
                    const float* old_momentum, float* new_momentum,
                    size_t count);
void HeavyBallChange(const StepCoefficients& coefficients, float* gradient,
                     const float* old_momentum, float* new_momentum,
                     size_t count);

// change += residual
void AddResidual(const float* residual, float* change, size_t count);

// new_theta = old_theta + decoded; unless `new_residual` is null also
// new_residual = change - decoded. Whether all of `change` and `new_theta` is
// finite.
bool ApplyDecoded(const float* change, const float* decoded,
                  const float* old_theta, float* new_theta, float* new_residual,
                  size_t count);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_OUTER_KERNELS_H_
