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
// Islands are not alike: some train fewer steps than others, or other data. A
// part of a round may be those of one kind, whose norms are not usual for the
// others. So lately is the newest rounds, each of them whole, that have as many
// contributions as there were live islands, and kLately at least.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_NORM_GUARD_H_
#define SERVER_RULES_NORM_GUARD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace causeway {

class NormGuard {
 public:
  // Contributions that are lately, and how many it takes to know what is usual.
  static constexpr uint64_t kLately = 16;
  static constexpr size_t kLeast = 4;

  // A contribution's Euclidean norm, and the inner steps of its window.
  struct Sample {
    double norm = 0;
    uint64_t inner_steps = 0;
  };
  // The contributions that were merged in one round; there is one at least.
  using MergedRound = std::vector<Sample>;

  // `factor` is membership.outlier_factor; 0 lets all finite norms pass.
  // `max_islands` can be live.
  NormGuard(double factor, uint64_t max_islands)
      : factor_(factor), memory_(Memory(max_islands)) {}

  // How many contributions are remembered: the newest rounds that have so many,
  // each of them whole. What is usual follows from these alone.
  static uint64_t Memory(uint64_t max_islands);

  // Why such a contribution must not be merged, one sentence; empty if it may
  // be.
  std::string Objection(const Sample& sample) const;

  // A round was merged when so many islands were live.
  void Merged(MergedRound round, uint64_t live);

 private:
  double factor_;
  uint64_t memory_;
  // Newest last.
  std::deque<MergedRound> rounds_;
  // Contributions in them.
  uint64_t remembered_ = 0;
  // Islands, in the newest round.
  uint64_t live_ = 0;
};

}  // namespace causeway

#endif  // SERVER_RULES_NORM_GUARD_H_
