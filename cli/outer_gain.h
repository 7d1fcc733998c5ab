// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Checks whether outer learning rate, momentum, H and the number of islands fit
// together. The momentum accumulates what successive rounds have in common, so
// that a step moves the parameters further than the learning rate alone. If rho
// is the correlation of the merged pseudo-gradients of two successive rounds,
// the long-run rate of the common part is
//
//   NESTEROV, DELAYED_NESTEROV   lr (1 + mu / (1 - mu rho))
//   HEAVY_BALL                   lr / (1 - mu rho)
//   SGD                          lr
//
// rho is not known before a run. It falls as H grows: 0.56 at H 16, 0.25 at 64
// and 0.33 at 256 in the draft that the equation is from (agentenv/yeto, of
// fine-tuning with 4 workers); between 16 and 64 we take a line in log H, and
// 0.29 beyond.
//
// Tuned runs, with the rates that this gives: one worker 1.0 (DiLoCo, H
// 30), 1.3 (MuLoCo) and 1.6 (SNOO, H 100); two 1.5 to 2.0, eight 1.6 to 2.2,
// sixteen 2.5, and the quickstart's two islands, with Muon at H 10, 0.8. Hence
// the ranges here: 1.0 to 1.6 for one island, 0.7 to 2.5 for several. Sources:
// DiLoCo's scaling laws (arXiv 2503.09799), MuLoCo (2505.23725), SNOO
// (2510.15830).
//
// A momentum that remembers more rounds, 1 / (1 - mu), than a fifth of the run
// never reaches its rate, and reacts too late. The fifth is ours.
#ifndef CLI_OUTER_GAIN_H_
#define CLI_OUTER_GAIN_H_

#include <cstdint>
#include <string>

#include "proto/run_config.pb.h"

namespace causeway {

double EffectiveOuterRate(const v1::RunConfig& config);

// Returns a line for people, without a newline: the effective rate and, if it
// or the momentum does not suit a run of `rounds` rounds per fragment, what
// would. The ranges hold for merge MEAN; with another merge, the line has only
// the rate.
std::string OuterGainAdvice(const v1::RunConfig& config, uint64_t rounds);

}  // namespace causeway

#endif  // CLI_OUTER_GAIN_H_
