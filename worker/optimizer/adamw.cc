// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/adamw.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {

double ClipScale(double norm, double max_norm) {
  // Otherwise an infinite norm would give 0, and 0 * infinity in the update.
  if (!std::isfinite(norm)) return std::numeric_limits<double>::quiet_NaN();
  if (max_norm == 0) return 1;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

absl::StatusOr<std::unique_ptr<AdamW>> AdamW::Create(
    const v1::TrainingConfig& config, const ModelLayout& layout, int64_t begin,
    int64_t end, Ops* ops) {
  auto optimizer = absl::WrapUnique(new AdamW(config, layout, begin, end, ops));
  ASSIGN_OR_RETURN(optimizer->first_moment_,
                   DeviceArray<float>::Create(ops, end - begin));
  ASSIGN_OR_RETURN(optimizer->second_moment_,
                   DeviceArray<float>::Create(ops, end - begin));
  return optimizer;
}

AdamW::AdamW(const v1::TrainingConfig& config, const ModelLayout& layout,
             int64_t begin, int64_t end, Ops* ops)
    : ops_(ops),
      beta1_(config.beta1()),
      beta2_(config.beta2()),
      epsilon_(config.epsilon()),
      weight_decay_(config.weight_decay()) {
  CHECK_GE(begin, 0);
  CHECK_LE(begin, end);
  CHECK_LE(end, layout.size);
  for (const TensorSpec& tensor : layout.tensors) {
    const int64_t first = std::max(begin, tensor.offset);
    const int64_t last = std::min(end, tensor.offset + tensor.size);
    if (first >= last) continue;
    const bool decays = tensor.shape.size() > 1;
    if (segments_.empty() || segments_.back().decays != decays) {
      segments_.push_back({.offset = first - begin, .decays = decays});
    }
    segments_.back().size += last - first;
  }
}

double AdamW::SquaredNorm(const float* gradients) {
  return ops_->SquaredNorm(gradients, size());
}

absl::Status AdamW::Step(const StepOptions& options, const float* gradients,
                         float* parameters) {
  RETURN_IF_ERROR(Update(options, gradients, parameters, nullptr));
  ++updates_;
  return absl::OkStatus();
}

absl::Status AdamW::Estimate(const StepOptions& options, const float* gradients,
                             const float* parameters, float* estimate) {
  return Update(options, gradients, const_cast<float*>(parameters), estimate);
}

absl::Status AdamW::Update(const StepOptions& options, const float* gradients,
                           float* parameters, float* estimate) {
  if (!std::isfinite(options.learning_rate) ||
      !std::isfinite(options.gradient_scale)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "update ", updates_ + 1, " has learning rate ", options.learning_rate,
        " and gradient scale ", options.gradient_scale,
        "; both must be finite: the loss has diverged, a lower "
        "training.learning_rate or a longer warm-up may help"));
  }
  const double update = static_cast<double>(updates_ + 1);
  AdamWCoefficients coefficients = {
      .gradient_scale = static_cast<float>(options.gradient_scale),
      .beta1 = static_cast<float>(beta1_),
      .beta2 = static_cast<float>(beta2_),
      .step_size = static_cast<float>(options.learning_rate /
                                      (1 - std::pow(beta1_, update))),
      .inverse_sqrt_correction2 =
          static_cast<float>(1 / std::sqrt(1 - std::pow(beta2_, update))),
      .epsilon = static_cast<float>(epsilon_)};
  for (const Segment& segment : segments_) {
    const int64_t at = segment.offset;
    const double decay =
        segment.decays ? options.learning_rate * weight_decay_ : 0;
    coefficients.decay = static_cast<float>(1 - decay);
    ops_->AdamW(coefficients, gradients + at, segment.size, parameters + at,
                first_moment_.data() + at, second_moment_.data() + at,
                estimate == nullptr ? nullptr : estimate + at);
  }
  return absl::OkStatus();
}

void AdamW::Restore(int64_t updates, const float* first_moment,
                    const float* second_moment) {
  CHECK_GE(updates, 0);
  updates_ = updates;
  ops_->CopyToDevice(first_moment, first_moment_.size_bytes(),
                     first_moment_.data());
  ops_->CopyToDevice(second_moment, second_moment_.size_bytes(),
                     second_moment_.data());
}

}  // namespace causeway
