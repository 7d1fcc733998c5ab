// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The outer learning rate and momentum of each round of a fragment. In round k
// of n, 1 to n, with w = learning_rate_warmup_rounds (at least 1), r =
// final_learning_rate_ratio and v = momentum_warmup_rounds:
//
//   k < w:   lr = learning_rate * k / w
//   k >= w:  lr = learning_rate * (1 - (1 - r) (k - w) / (n - w))
//
//   k <= v:  mu = initial_momentum + (momentum - initial_momentum) (k - 1) / v
//   k > v:   mu = momentum
//
// All lines are straight: their points are the same bits on every machine,
// which those of a cosine would not be. Computed in double, rounded once to
// fp32. The learning rate is not part of the momentum, so a round's gradient
// counts in the momentum alike, whatever the round's learning rate was.
//
// The number of rounds follows from training.total_steps
// (SyncSchedule::FinalVersion). If an operator changes that in the middle of a
// run, the lines are those of the new length from then on.
//
// Source: Pier (arXiv 2511.17849) warms up the learning rate and lets the
// momentum fall from 0.99 to 0.9, as shares of the run.
#ifndef OUTER_OPTIMIZER_OUTER_SCHEDULE_H_
#define OUTER_OPTIMIZER_OUTER_SCHEDULE_H_

#include <cstdint>

#include "proto/run_config.pb.h"

namespace causeway {

struct OuterRates {
  float learning_rate = 0;
  // mu.
  float momentum = 0;

  friend bool operator==(const OuterRates&, const OuterRates&) = default;
};

// The schedule of one fragment; see above. Without warm-ups and with the ratio
// 1, every round has the same rates.
struct OuterSchedule {
  double learning_rate = 0;
  double momentum = 0;
  uint64_t learning_rate_warmup_rounds = 0;
  double final_learning_rate_ratio = 1;
  uint64_t momentum_warmup_rounds = 0;
  double initial_momentum = 0;
  // n.
  uint64_t rounds = 0;

  // Returns the rates of the round that turns `version` into the next one:
  // round k = version + 1. Rounds after n have the rates of n.
  OuterRates At(uint64_t version) const;
};

// `rounds` is the fragment's last version.
OuterSchedule MakeOuterSchedule(const v1::OuterOptimizerConfig& config,
                                uint64_t rounds);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_OUTER_SCHEDULE_H_
