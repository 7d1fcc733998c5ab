// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// AdamW with decoupled weight decay (Loshchilov & Hutter 2019) over a range of
// a model's flat parameter vector: all of it, or a rank's shard (ZeRO-1). One
// pass over memory also clips by the global norm and divides by the number of
// micro-batches.
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

// Returns the factor, at most 1, that reduces a gradient of norm `norm` to
// `max_norm`, as torch.nn.utils.clip_grad_norm_: max_norm / (norm + 1e-6).
// Returns 1 if max_norm is 0 (no clipping), and NaN if the norm is not finite,
// so that Step refuses.
double ClipScale(double norm, double max_norm);

// Only the thread that uses the Ops object may use it.
class AdamW {
 public:
  struct StepOptions {
    double learning_rate = 0;
    // A factor for the gradients, applied first; finite, not negative.
    double gradient_scale = 1;
  };

  // Creates the optimizer for values [begin, end) of vectors in the order of
  // `layout`, with zero moments. Weight decay applies to tensors of two
  // dimensions. `ops` must outlive the object.
  //   RESOURCE_EXHAUSTED  no memory for the moments (8 bytes per value).
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<AdamW>> Create(
      const v1::TrainingConfig& config, const ModelLayout& layout,
      int64_t begin, int64_t end, Ops* ops);

  AdamW(const AdamW&) = delete;
  AdamW& operator=(const AdamW&) = delete;

  // In all methods `gradients`, `parameters` and `estimate` point to value
  // `begin` of device vectors; end - begin values are used.

  double SquaredNorm(const float* gradients);

  // Updates parameters and moments once. Changes nothing on errors.
  //   FAILED_PRECONDITION  an option is not finite, as when a gradient
  //                        overflowed.
  absl::Status Step(const StepOptions& options, const float* gradients,
                    float* parameters);

  // Writes the parameters that Step would compute to `estimate`; parameters,
  // moments and the number of updates stay as they are. Errors as for Step.
  absl::Status Estimate(const StepOptions& options, const float* gradients,
                        const float* parameters, float* estimate);

  int64_t size() const { return first_moment_.size(); }
  // Returns the number of updates so far, on which bias correction depends.
  int64_t updates() const { return updates_; }
  // Return the moments in device memory, size() values each.
  const float* first_moment() const { return first_moment_.data(); }
  const float* second_moment() const { return second_moment_.data(); }
  // Continues from saved moments (in host memory, size() values each).
  void Restore(int64_t updates, const float* first_moment,
               const float* second_moment);

 private:
  // Adjacent values that all decay or all do not.
  struct Segment {
    int64_t offset = 0;
    int64_t size = 0;
    bool decays = false;
  };

  AdamW(const v1::TrainingConfig& config, const ModelLayout& layout,
        int64_t begin, int64_t end, Ops* ops);

  // Does what Step does or, if `estimate` is not null, what Estimate does.
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
