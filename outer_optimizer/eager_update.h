// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Eager updates let an island train on without waiting for a merge, even if the
// merge takes most of a round.
//
// Problem: an island that trains for tau steps after a send trains on old
// parameters. When the update comes, that training is thrown away, or pulls
// away from the other islands.
//
// Idea: the island knows its own part of the merged pseudo-gradient at once,
// and the other islands' part of the round before. At the send it makes the
// outer step with these two, and goes on from there. When the update u has
// come, it adds the difference between u and the expected update u~.
//
// For version v of the fragment, with Delta the island's pseudo-gradient, w its
// share of the merge, `others` the other islands' part, and m the coordinator's
// momentum:
//
//   g~ = others + w Delta                  u~ = -(a g~ + b m)
//   NESTEROV    a = lr (1 + mu)            b = lr mu^2
//   HEAVY_BALL  a = lr                     b = lr mu
//   SGD         a = lr                     b = 0
//
// Neither m nor `others` is sent to islands. Both follow from the updates u,
// which are the same step made with the merged g:
//
//   g = -(u + b m) / a      m <- mu m + g      others = g - w Delta
//
// An island that does not know m, because it joined later or missed updates,
// starts with 0; its error shrinks by mu / (1 + mu) with every update. Until it
// knows `others`, its own part stands for everything: others = 0, w = 1. The
// wire formats' errors are errors of the expectation, too: they are corrected
// when u comes, and never affect anchors.
//
//   at the send    theta <- alpha theta + (1 - alpha) (A + u~)
//   when u is there, with the contribution in it
//                  theta <- theta + (1 - alpha) (u - u~)
//   without it     theta <- theta + u - (1 - alpha) (u~ + Delta)
//
// The last line takes the eager step back and rebases: all the island's
// training is in its next contribution. With one island u~ is u.
//
// Source: Eager Updates for Overlapped Communication and Computation in DiLoCo
// (Kale, Douillard, Donchev, arXiv 2502.12996), where every worker has the
// outer optimizer's state. Recovering the state from updates is ours.
#ifndef OUTER_OPTIMIZER_EAGER_UPDATE_H_
#define OUTER_OPTIMIZER_EAGER_UPDATE_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "outer_optimizer/fragment_plan.h"
#include "proto/run_config.pb.h"

namespace causeway {

// The eager updates of one fragment on one island. Keeps 12 bytes per value.
// Not thread-safe. A fragment's vectors have its size; `model` is the whole
// model's vector, and `segments` say where the fragment is in it.
class EagerUpdate {
 public:
  using Segments = absl::Span<const FragmentMap::Segment>;

  // `config` must have merge MEAN and not be DELAYED_NESTEROV. `mixing` is
  // alpha.
  EagerUpdate(const v1::OuterOptimizerConfig& config, double mixing,
              size_t size);

  // Makes the expected step, at the send of `model` against `anchor`.
  void Begin(absl::Span<const float> anchor, Segments segments,
             absl::Span<float> model);

  // True between Begin and Correct.
  bool under_way() const { return under_way_; }

  // Corrects `model` by the `update` that has come. `share` is the share of the
  // island's contribution in it, 0 if it is not part of it. Call this before
  // Observe.
  void Correct(absl::Span<const float> update, double share, Segments segments,
               absl::Span<float> model);

  // Learns from an update from one version to the next, with or without Begin.
  void Observe(absl::Span<const float> update, double share);

  // Forgets everything learnt, because updates were missed.
  void Forget();

 private:
  // Returns element i of u~.
  float Expected(size_t i) const {
    return -(gradient_rate_ * (others_[i] + share_ * own_[i]) +
             momentum_rate_ * momentum_[i]);
  }

  const float momentum_decay_;
  const float gradient_rate_;
  const float momentum_rate_;
  const float mixing_;
  bool under_way_ = false;
  // w, the island's share of the merge.
  float share_ = 1;
  // Delta, as of the last send.
  std::vector<float> own_;
  std::vector<float> others_;
  std::vector<float> momentum_;
};

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_EAGER_UPDATE_H_
