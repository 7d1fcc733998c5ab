// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Eager updates: what an island does with one fragment so that it need not wait
// for a merge, even if that takes most of a round.
//
// Problem: an island that trains on for tau steps after a send trains on old
// parameters; when the update comes, what it has done meanwhile is thrown away
// or pulls away from the others.
// Idea: of the merged pseudo-gradient the island knows its own part at once,
// and the others' part of the round before. So at the send it makes the outer
// step with these itself, goes on from there, and when the update u is there
// adds the difference to what it had expected.
//
// For version v of the fragment, with Delta the island's pseudo-gradient, w its
// share of the merge, and m the coordinator's momentum:
//
//   g~ = others + w Delta                  u~ = -(a g~ + b m)
//   NESTEROV    a = lr (1 + mu)            b = lr mu^2
//   HEAVY_BALL  a = lr                     b = lr mu
//   SGD         a = lr                     b = 0
//
// Neither m nor the others' part travels. Both follow from the updates u, which
// are the same step made with the merged g:
//
//   g = -(u + b m) / a      m <- mu m + g      others = g - w Delta
//
// An island that does not know m, since it joined later or missed updates,
// starts with 0: its error shrinks by mu / (1 + mu) with every update. As long
// as it does not know the others' part, its own stands for all: others = 0,
// w = 1. What the wire formats lose is an error of the expectation like any
// other: it is corrected when u comes, and anchors never depend on it.
//
//   at the send    theta <- alpha theta + (1 - alpha) (A + u~)
//   when u is there, with the contribution in it
//                  theta <- theta + (1 - alpha) (u - u~)
//   without it     theta <- theta + u - (1 - alpha) (u~ + Delta)
//
// The last line takes the eager step back and rebases: all that the island has
// learnt is in its next contribution. With one island u~ is u.
//
// Source: Eager Updates for Overlapped Communication and Computation in DiLoCo
// (Kale, Douillard, Donchev, arXiv 2502.12996), where every worker has the
// outer optimizer's state; recovering it from updates is ours.
#ifndef OUTER_OPTIMIZER_EAGER_UPDATE_H_
#define OUTER_OPTIMIZER_EAGER_UPDATE_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "outer_optimizer/fragment_plan.h"
#include "proto/run_config.pb.h"

namespace causeway {

// Of one fragment on one island. Keeps 12 bytes per value. For one thread.
// Vectors of the fragment have its size; `model` is the whole model's, of which
// `segments` say where the fragment is.
class EagerUpdate {
 public:
  using Segments = absl::Span<const FragmentMap::Segment>;

  // `config` has merge MEAN and is not DELAYED_NESTEROV. `mixing` is alpha.
  EagerUpdate(const v1::OuterOptimizerConfig& config, double mixing,
              size_t size);

  // At the send of `model` against `anchor`: makes the expected step.
  void Begin(absl::Span<const float> anchor, Segments segments,
             absl::Span<float> model);

  // Between Begin and Correct.
  bool under_way() const { return under_way_; }

  // Corrects `model` by the `update` that has come. `share` is that of the
  // island's contribution in it, 0 if it is not part of it. To be called before
  // Observe.
  void Correct(absl::Span<const float> update, double share, Segments segments,
               absl::Span<float> model);

  // Learns from an update from one version to the next, whether or not there
  // was a Begin.
  void Observe(absl::Span<const float> update, double share);

  // Updates were missed: nothing that was learnt holds any more.
  void Forget();

 private:
  // u~ of element i.
  float Expected(size_t i) const {
    return -(gradient_rate_ * (others_[i] + share_ * own_[i]) +
             momentum_rate_ * momentum_[i]);
  }

  const float momentum_decay_;
  const float gradient_rate_;
  const float momentum_rate_;
  const float mixing_;
  bool under_way_ = false;
  // w.
  float share_ = 1;
  // Delta of the last send.
  std::vector<float> own_;
  std::vector<float> others_;
  std::vector<float> momentum_;
};

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_EAGER_UPDATE_H_
