// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A source of gradients: a model and its data (transformer_gradients.h), or in
// tests a function known in closed form.
#ifndef WORKER_TRAINING_GRADIENT_SOURCE_H_
#define WORKER_TRAINING_GRADIENT_SOURCE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/held_out_loss.h"
#include "worker/model/ops.h"

namespace causeway {

// The loss of some micro-batches.
struct LossSum {
  // The sum over targets, in nats.
  double sum = 0;
  // The predicted tokens, without those that a mask hides.
  int64_t targets = 0;
};

// Not thread-safe.
class GradientSource {
 public:
  virtual ~GradientSource() = default;

  // Adds to `gradients` the gradient, at `parameters`, of the mean loss of
  // micro-batch `number` (from 0) of the island's endless series. Both are
  // whole vectors in the order of common/tensors/model_layout.h. The result
  // depends only on the arguments. May return before a device has finished.
  virtual absl::Status Accumulate(int64_t number, const float* parameters,
                                  float* gradients) = 0;
  // Prepares Accumulate for these vectors, after a micro-batch with others, so
  // that later calls allocate no memory, record nothing and load no code.
  virtual void Prepare(const float* /*parameters*/, float* /*gradients*/) {}
  // Waits for all micro-batches, and returns their loss since the last call.
  virtual absl::StatusOr<LossSum> TakeLoss() = 0;

  // Returns the loss of `parameters` on this rank's share of at most
  // `max_sequences` held-out sequences (0: all). Call it between steps. Without
  // held-out data, the result has no sequences.
  virtual absl::StatusOr<HeldOutLoss> MeasureHeldOut(
      const float* /*parameters*/, int64_t /*max_sequences*/, int /*rank*/,
      int /*ranks*/) {
    return HeldOutLoss();
  }

  // The tokens of one micro-batch.
  virtual uint64_t tokens() const = 0;
};

}  // namespace causeway

#endif  // WORKER_TRAINING_GRADIENT_SOURCE_H_
