// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A trained model, ready to compute with on the CPU. Only one thread may use it
// at a time.
#ifndef CLI_INFERENCE_H_
#define CLI_INFERENCE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cli/trained_model.h"
#include "worker/model/device_array.h"
#include "worker/model/ops.h"
#include "worker/model/transformer.h"

namespace causeway {

class Inference {
 public:
  // Prepares for at most `batch` sequences at once. INVALID_ARGUMENT if
  // `threads` is not in 1 to 1024; RESOURCE_EXHAUSTED if there is not enough
  // memory.
  static absl::StatusOr<std::unique_ptr<Inference>> Create(
      const TrainedModel& model, int64_t batch, uint64_t threads);

  // Computes Transformer::Loss.
  absl::StatusOr<double> Loss(absl::Span<const int32_t> tokens,
                              absl::Span<const int32_t> targets);

  // Computes Transformer::NextTokenLogits. The result is valid until the next
  // call.
  absl::StatusOr<absl::Span<const float>> NextTokenLogits(
      absl::Span<const int32_t> prefix);

 private:
  Inference() = default;

  // Each member needs those above it.
  std::unique_ptr<Ops> ops_;
  DeviceArray<float> parameters_;
  std::unique_ptr<Transformer> transformer_;
  std::vector<float> logits_;
};

}  // namespace causeway

#endif  // CLI_INFERENCE_H_
