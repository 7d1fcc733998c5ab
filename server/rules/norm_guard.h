// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tells a contribution of one fragment that must not be merged unseen: its
// values are not finite, or its norm is far above what is usual there. Usual is
// the median norm of the contributions merged lately, so that neither a few bad
// ones nor the slow change over a run move it much. Small norms are no danger
// to the others and pass. A window of more inner steps than usual, as that of
// an island that was away, may be longer in proportion.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_NORM_GUARD_H_
#define SERVER_RULES_NORM_GUARD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace causeway {

class NormGuard {
 public:
  // Norms that are remembered, and how many it takes to know what is usual.
  static constexpr size_t kHistory = 16;
  static constexpr size_t kLeast = 4;

  // `factor` is membership.outlier_factor; 0 lets all finite norms pass.
  explicit NormGuard(double factor) : factor_(factor) {}

  // A contribution's Euclidean norm, and the inner steps of its window.
  struct Sample {
    double norm = 0;
    uint64_t inner_steps = 0;
  };

  // Why such a contribution must not be merged, one sentence; empty if it may
  // be.
  std::string Objection(const Sample& sample) const;

  // It was merged.
  void Merged(const Sample& sample);

 private:
  double factor_;
  // Newest last.
  std::deque<Sample> merged_;
};

}  // namespace causeway

#endif  // SERVER_RULES_NORM_GUARD_H_
