// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Detects contributions to one fragment that must not be merged unseen: a value
// is not finite, or the norm is far above the usual one. The usual norm is the
// median over the contributions merged lately, so a few bad ones hardly move
// it, and it follows the slow change over a run. Small norms cannot harm other
// islands and pass.
//
// If a window has more inner steps than usual, because the island's last
// contributions came too late, its norm may be larger in proportion. The number
// of steps is the island's claim, so it counts at most as the number of rounds
// since the island's last contribution was merged, and as kMostWindows.
//
// Contributions that change nothing do not count as usual; otherwise an island
// with nothing to train would make outliers of the others. Until kLeast others
// are merged, the norm of the fragment's parameters replaces the usual norm.
//
// Islands differ: some train fewer steps, or on other data. The end of a round
// may hold islands of one kind only, whose norms are unusual for the other
// kind. So "lately" means the newest whole rounds that together have as many
// contributions as there were live islands, and at least kLately.
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_RULES_NORM_GUARD_H_
#define SERVER_RULES_NORM_GUARD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/rules/rank_parts.h"

namespace causeway {

class NormGuard {
 public:
  // The smallest number of contributions that count as "lately", and that show
  // what is usual.
  static constexpr uint64_t kLately = 16;
  static constexpr size_t kLeast = 4;
  // The longest window that the guard allows for, in usual windows.
  static constexpr double kMostWindows = 16;

  // The Euclidean norm of a contribution, and the inner steps of its window.
  struct Sample {
    double norm = 0;
    uint64_t inner_steps = 0;
  };
  // The contributions merged in one round; at least one.
  using MergedRound = std::vector<Sample>;

  // `factor` is membership.outlier_factor; 0 lets all finite norms pass.
  // `max_islands` is the most that can be live. The first contributions are
  // compared with `first_usual`.
  NormGuard(double factor, uint64_t max_islands, double first_usual)
      : factor_(factor),
        memory_(Memory(max_islands)),
        first_usual_(first_usual) {}

  // Returns how many contributions the guard remembers: the newest whole rounds
  // that have this many. The usual norm follows from these alone.
  static uint64_t Memory(uint64_t max_islands);
  // Returns whether the newest of `rounds`, oldest first, show what is usual,
  // however many islands are live. If so, `first_usual` counts only once
  // contributions that change nothing have displaced them.
  static bool ShowUsual(absl::Span<const MergedRound> rounds);

  // Returns why the contribution must not be merged, in one sentence; empty if
  // it may be. `rounds` is the number of rounds since the island's last
  // contribution was merged, at least 1. With `parts`, it says which rank's
  // part explains that.
  std::string Objection(const Sample& sample, uint64_t rounds,
                        const RankParts& parts = {}) const;

  // Notes the parts of a contribution that may be merged.
  void Passed(const RankParts& parts) { parts_.Passed(parts); }
  // Notes a round that was merged while `live` islands were live.
  void Merged(MergedRound round, uint64_t live);

 private:
  // The norm of a contribution is compared with these.
  struct Usual {
    // The number of contributions lately. Below kLeast, `norm` is the norm of
    // the parameters.
    size_t lately = 0;
    double norm = 0;
    // The length of the window, in usual windows.
    double windows = 1;
  };

  Usual UsualFor(uint64_t inner_steps, uint64_t rounds) const;

  double factor_;
  uint64_t memory_;
  double first_usual_;
  // The remembered rounds, newest last.
  std::deque<MergedRound> rounds_;
  // The number of contributions in rounds_.
  uint64_t remembered_ = 0;
  // The number of live islands in the newest round.
  uint64_t live_ = 0;
  RankPartsOfFragment parts_;
};

}  // namespace causeway

#endif  // SERVER_RULES_NORM_GUARD_H_
