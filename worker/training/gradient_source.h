// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Where gradients come from: a model and its data (transformer_gradients.h), or
// a function that a test knows in closed form.
#ifndef WORKER_TRAINING_GRADIENT_SOURCE_H_
#define WORKER_TRAINING_GRADIENT_SOURCE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/model/ops.h"

namespace causeway {

// For one thread.
class GradientSource {
 public:
  virtual ~GradientSource() = default;

  // Adds the gradient of the mean loss of micro-batch `number` (from 0, of the
  // island's endless series) at `parameters` to `gradients`. Both are whole
  // vectors in the order of common/model_layout.h. The result depends on the
  // arguments only. May return before a device is done with it.
  virtual absl::Status Accumulate(int64_t number, const float* parameters,
                                  GradientSum gradients) = 0;
  // The sum of the losses of the micro-batches since the last call. Waits until
  // they are done.
  virtual absl::StatusOr<double> TakeLoss() = 0;

  // Of one micro-batch.
  virtual uint64_t tokens() const = 0;
};

}  // namespace causeway

#endif  // WORKER_TRAINING_GRADIENT_SOURCE_H_
