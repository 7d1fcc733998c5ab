// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tells a contribution of one fragment that must not be merged unseen: its
// values are not finite, or its norm is far above what is usual there. Usual is
// the median norm of the contributions merged lately, so that neither a few bad
// ones nor the slow change over a run move it much. Small norms are no danger
// to the others and pass.
//
// A window of more inner steps than usual, as that of an island whose last
// contributions came too late, may be longer in proportion. How many steps it
// has is the island's claim. The coordinator knows how many rounds have passed
// since it merged the island's last contribution; the claim counts up to that,
// and up to kMostWindows.
//
// Before enough contributions are merged to tell what is usual, a contribution
// is compared with the norm of the fragment's parameters.
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
  // The longest window that is allowed for, in usual windows.
  static constexpr double kMostWindows = 16;

  // A contribution's Euclidean norm, and the inner steps of its window.
  struct Sample {
    double norm = 0;
    uint64_t inner_steps = 0;
  };
  // The contributions that were merged in one round; there is one at least.
  using MergedRound = std::vector<Sample>;

  // `factor` is membership.outlier_factor; 0 lets all finite norms pass.
  // `max_islands` can be live. `first_usual` is what the first contributions
  // are compared with.
  NormGuard(double factor, uint64_t max_islands, double first_usual)
      : factor_(factor),
        memory_(Memory(max_islands)),
        first_usual_(first_usual) {}

  // How many contributions are remembered: the newest rounds that have so many,
  // each of them whole. What is usual follows from these alone.
  static uint64_t Memory(uint64_t max_islands);

  // Why such a contribution must not be merged, one sentence; empty if it may
  // be. `rounds` have passed since the island's last contribution was merged;
  // at least 1.
  std::string Objection(const Sample& sample, uint64_t rounds) const;

  // A round was merged when so many islands were live.
  void Merged(MergedRound round, uint64_t live);

 private:
  double factor_;
  uint64_t memory_;
  double first_usual_;
  // Newest last.
  std::deque<MergedRound> rounds_;
  // Contributions in them.
  uint64_t remembered_ = 0;
  // Islands, in the newest round.
  uint64_t live_ = 0;
};

}  // namespace causeway

#endif  // SERVER_RULES_NORM_GUARD_H_
