// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of the outer step over one tile: one source in Highway,
// compiled for several instruction sets. Every operation is rounded on its own,
// in the order written here, so that all of them give the same bits.
//
// Arrays have `count` values and need no alignment. New and old state do not
// overlap: where an array of new state lies at a multiple of
// kStreamAlignment, it is written past the caches, since nobody reads it soon;
// a plain store would first read from memory what it is about to replace. Such
// stores reach other threads in order only after FlushStreams().
#ifndef OUTER_OPTIMIZER_OUTER_KERNELS_H_
#define OUTER_OPTIMIZER_OUTER_KERNELS_H_

#include <cstddef>

namespace causeway {

// Bytes.
inline constexpr size_t kStreamAlignment = 64;

// What one step does with the gradient g:
//   sum'      = sum + g                          (where there is a sum)
//   momentum' = momentum_decay * momentum + intake * (sum' or g)
//   change    = -learning_rate * (gradient_share * g + momentum_share *
//               momentum') + residual
struct StepCoefficients {
  float learning_rate = 0;
  float momentum_decay = 0;
  float intake = 0;
  float gradient_share = 0;
  float momentum_share = 0;
  // The new sum is 0 instead of sum'.
  bool clears_sum = false;
};

// State that the algorithm does not have is null, old and new alike. Without a
// momentum there is no sum.
struct ChangeArrays {
  // `change` takes its place.
  float* gradient = nullptr;
  const float* old_momentum = nullptr;
  float* new_momentum = nullptr;
  const float* old_sum = nullptr;
  float* new_sum = nullptr;
  const float* residual = nullptr;
};
void MakeChange(const StepCoefficients& coefficients,
                const ChangeArrays& arrays, size_t count);

// new_theta = old_theta + decoded; unless `new_residual` is null also
// new_residual = change - decoded. Whether all of `change` and `new_theta` is
// finite.
bool ApplyDecoded(const float* change, const float* decoded,
                  const float* old_theta, float* new_theta, float* new_residual,
                  size_t count);

// Makes what this thread has written past the caches visible to whoever it
// synchronizes with next.
void FlushStreams();

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_OUTER_KERNELS_H_
