// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Inner loops over one tile, for the outer step and for islands that apply its
// update: one Highway source, compiled for several instruction sets. Every
// operation is rounded separately, in the order written here, so that all
// instruction sets give the same bits.
//
// Arrays have `count` values and need no alignment. New and old state must not
// overlap. An array of new state at a multiple of kStreamAlignment is written
// past the caches, because it is not read soon, and a plain store would first
// read the memory that it replaces. Such stores reach other threads in order
// only after FlushStreams().
#ifndef OUTER_OPTIMIZER_OUTER_KERNELS_H_
#define OUTER_OPTIMIZER_OUTER_KERNELS_H_

#include <cstddef>

namespace causeway {

// In bytes.
inline constexpr size_t kStreamAlignment = 64;

// The coefficients of one step with the gradient g:
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
  // Is true if the step sets the sum to 0 instead of sum'.
  bool clears_sum = false;
};

// The arrays of one call. State that the algorithm does not have is null, old
// and new. Without momentum there is no sum.
struct ChangeArrays {
  // MakeChange overwrites it with `change`.
  float* gradient = nullptr;
  const float* old_momentum = nullptr;
  float* new_momentum = nullptr;
  const float* old_sum = nullptr;
  float* new_sum = nullptr;
  const float* residual = nullptr;
};
void MakeChange(const StepCoefficients& coefficients,
                const ChangeArrays& arrays, size_t count);

// Computes new_theta = old_theta + decoded and, unless `new_residual` is null,
// new_residual = change - decoded. Returns whether all of `change` and
// `new_theta` is finite.
bool ApplyDecoded(const float* change, const float* decoded,
                  const float* old_theta, float* new_theta, float* new_residual,
                  size_t count);

// Computes new_anchor = anchor + change, as ApplyDecoded does for theta, and
// leaves it in `change`, too, to be read from the cache.
void AdvanceAnchor(const float* anchor, float* change, float* new_anchor,
                   size_t count);

// Copies `from` to `to`, which is new state.
void CopyState(const float* from, float* to, size_t count);

// Makes this thread's stores past the caches visible to threads that it
// synchronizes with later.
void FlushStreams();

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_OUTER_KERNELS_H_
