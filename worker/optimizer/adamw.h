// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// AdamW with decoupled weight decay (Loshchilov & Hutter 2019) over a range of
// a model's flat parameter vector: the whole of it, or a rank's shard (ZeRO-1).
// Clipping by the global norm and the division by the number of micro-batches
// are folded into the one pass over memory.
//
//   ASSIGN_OR_RETURN(auto optimizer, AdamW::Create(config.training(), layout,
//                                                  0, layout.size, ops));
//   ...
//   const double norm = std::sqrt(optimizer->SquaredNorm(gradients));
//   RETURN_IF_ERROR(optimizer->Step(
//       {.learning_rate = LearningRate(config.training(), run_step),
//        .gradient_scale = ClipScale(norm, config.training().gradient_clip())},
//       gradients, parameters));
//   ops->Zero(layout.size, gradients);
//
// With several ranks, each calls SquaredNorm on its shard of the summed
// gradients, and the sum over ranks gives the norm that all clip by.
#ifndef WORKER_OPTIMIZER_ADAMW_H_
#define WORKER_OPTIMIZER_ADAMW_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model_layout.h"
#include "proto/run_config.pb.h"
#include "worker/model/device_array.h"
#include "worker/model/ops.h"

namespace causeway {

// The factor that brings a gradient of norm `norm` down to `max_norm`, at most
// 1, as torch.nn.utils.clip_grad_norm_: max_norm / (norm + 1e-6). 1 if max_norm
// is 0 (no clipping). Not a number if the norm is not finite, so that Step
// refuses.
double ClipScale(double norm, double max_norm);

// Used by one thread at a time, the one that uses the Ops object.
class AdamW {
 public:
  struct StepOptions {
    double learning_rate = 0;
    // Multiplies the gradients first; finite, not negative.
    double gradient_scale = 1;
  };

  // For the values [begin, end) of vectors in the order of `layout`, with zero
  // moments. Weight decay applies to tensors of two dimensions. `ops` must
  // outlive the object. RESOURCE_EXHAUSTED: no memory for the moments (8 bytes
  // per value).
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<AdamW>> Create(
      const v1::TrainingConfig& config, const ModelLayout& layout,
      int64_t begin, int64_t end, Ops* ops);

  AdamW(const AdamW&) = delete;
  AdamW& operator=(const AdamW&) = delete;

  // In all methods `gradients`, `parameters` and `estimate` point to value
  // `begin` of device vectors; end - begin values are used.

  double SquaredNorm(const float* gradients);

  // One update of parameters and moments. FAILED_PRECONDITION, and nothing is
  // changed: an option is not finite, which a gradient that overflowed causes.
  absl::Status Step(const StepOptions& options, const float* gradients,
                    float* parameters);

  // Writes where Step would take the parameters to `estimate`; parameters,
  // moments and the number of updates stay as they are. Fails as Step does.
  absl::Status Estimate(const StepOptions& options, const float* gradients,
                        const float* parameters, float* estimate);

  int64_t size() const { return first_moment_.size(); }
  // Updates made so far; bias correction depends on it.
  int64_t updates() const { return updates_; }
  // Device memory, size() values each.
  const float* first_moment() const { return first_moment_.data(); }
  const float* second_moment() const { return second_moment_.data(); }
  // Continues from saved moments (host memory, size() values each).
  void Restore(int64_t updates, const float* first_moment,
               const float* second_moment);

 private:
  // Neighbouring values that are treated alike.
  struct Segment {
    int64_t offset = 0;
    int64_t size = 0;
    bool decays = false;
  };

  AdamW(const v1::TrainingConfig& config, const ModelLayout& layout,
        int64_t begin, int64_t end, Ops* ops);

  // Step, or with `estimate` Estimate.
  absl::Status Update(const StepOptions& options, const float* gradients,
                      float* parameters, float* estimate);

  Ops* const ops_;
  const double beta1_;
  const double beta2_;
  const double epsilon_;
  const double weight_decay_;
  std::vector<Segment> segments_;

  int64_t updates_ = 0;
  DeviceArray<float> first_moment_;
  DeviceArray<float> second_moment_;
};

}  // namespace causeway

#endif  // WORKER_OPTIMIZER_ADAMW_H_
