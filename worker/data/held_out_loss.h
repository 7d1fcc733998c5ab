// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The loss of a model on the held-out data, computed by one or several ranks.
#ifndef WORKER_DATA_HELD_OUT_LOSS_H_
#define WORKER_DATA_HELD_OUT_LOSS_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/sampler.h"

namespace causeway {

struct HeldOutLoss {
  // The sum over tokens, in nats.
  double sum = 0;
  // The predicted tokens, without those that a mask hides.
  int64_t tokens = 0;
  int64_t sequences = 0;
};

// Computes Transformer::Loss: the loss of some sequences, divided by the number
// of all tokens. `targets` are the tokens that follow `tokens`, or kNoTarget.
using LossFunction = std::function<absl::StatusOr<double>(
    absl::Span<const int32_t> tokens, absl::Span<const int32_t> targets)>;

// One rank's share: the `ranks` ranks take batches in turn.
struct HeldOutShare {
  // The most sequences in a batch.
  int64_t batch = 1;
  int rank = 0;
  int ranks = 1;
};

// Sums the losses of the rank's share of `validation`. Calls `progress`, if not
// null, after each batch with its number of sequences. Returns errors of
// `loss`.
absl::StatusOr<HeldOutLoss> SumHeldOutLoss(
    const ValidationSet& validation, const HeldOutShare& share,
    const LossFunction& loss,
    const std::function<void(int64_t)>& progress = nullptr);

}  // namespace causeway

#endif  // WORKER_DATA_HELD_OUT_LOSS_H_
