// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/sharded_adamw.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// Returns the factor, at most 1, that reduces a gradient of norm `norm` to
// `max_norm`; 1 if max_norm is 0 (no clipping).
double ClipScale(double norm, double max_norm) {
  return max_norm == 0 ? 1 : std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardedAdamW>> ShardedAdamW::Create(
    const v1::TrainingConfig& config, const ModelLayout& layout,
    Communicator* communicator, Ops* ops) {
  auto optimizer =
      absl::WrapUnique(new ShardedAdamW(config, layout, communicator, ops));
  const int64_t size = optimizer->shard_.size();
  ASSIGN_OR_RETURN(optimizer->first_moment_,
                   DeviceArray<float>::Create(ops, size));
  ASSIGN_OR_RETURN(optimizer->second_moment_,
                   DeviceArray<float>::Create(ops, size));
  return optimizer;
}

ShardedAdamW::ShardedAdamW(const v1::TrainingConfig& config,
                           const ModelLayout& layout,
                           Communicator* communicator, Ops* ops)
    : config_(config),
      size_(layout.size),
      communicator_(communicator),
      ops_(ops),
      shard_(communicator->shard(layout.size, communicator->rank())) {
  for (const TensorSpec& tensor : layout.tensors) {
    const int64_t first = std::max(shard_.begin, tensor.offset);
    const int64_t last = std::min(shard_.end, tensor.offset + tensor.size);
    if (first >= last) continue;
    const bool decays = tensor.shape.size() > 1;
    if (segments_.empty() || segments_.back().decays != decays) {
      segments_.push_back({.offset = first - shard_.begin, .decays = decays});
    }
    segments_.back().size += last - first;
  }
}

absl::StatusOr<ReducedGradient> ShardedAdamW::Reduce(
    const MicroBatches& own, absl::Span<float> gradients) {
  RETURN_IF_ERROR(communicator_->ReduceScatter(gradients));
  // Holds the squares, the losses, and one place for each rank's count.
  std::vector<double> sums(2 + communicator_->size());
  sums[0] = ops_->SquaredNorm(gradients.data() + shard_.begin, shard_.size());
  RETURN_IF_ERROR(ops_->Synchronize());
  sums[1] = own.loss;
  sums[2 + communicator_->rank()] = static_cast<double>(own.count);
  RETURN_IF_ERROR(communicator_->AllReduce(absl::MakeSpan(sums)));

  ReducedGradient reduced;
  for (size_t i = 2; i < sums.size(); ++i) {
    reduced.rank_micro_batches.push_back(static_cast<int64_t>(sums[i]));
    reduced.micro_batches += reduced.rank_micro_batches.back();
  }
  CHECK_GT(reduced.micro_batches, 0);
  const double count = static_cast<double>(reduced.micro_batches);
  reduced.loss = sums[1] / count;
  reduced.gradient_norm = std::sqrt(sums[0]) / count;
  if (!std::isfinite(reduced.loss) || !std::isfinite(reduced.gradient_norm)) {
    return absl::OutOfRangeError(absl::StrCat(
        "training diverged: loss ", reduced.loss, ", gradient norm ",
        reduced.gradient_norm,
        "; lower training.learning_rate or lengthen training.warmup_steps"));
  }
  return reduced;
}

void ShardedAdamW::Step(double learning_rate, const ReducedGradient& reduced,
                        absl::Span<const float> gradients, float* master) {
  Update(learning_rate, reduced, gradients, master, nullptr);
  ++updates_;
}

void ShardedAdamW::Estimate(double learning_rate,
                            const ReducedGradient& reduced,
                            absl::Span<const float> gradients,
                            const float* master, float* estimate) {
  Update(learning_rate, reduced, gradients, const_cast<float*>(master),
         estimate);
}

void ShardedAdamW::Update(double learning_rate, const ReducedGradient& reduced,
                          absl::Span<const float> gradients, float* master,
                          float* estimate) {
  const double scale =
      ClipScale(reduced.gradient_norm, config_.gradient_clip());
  const double update = static_cast<double>(updates_ + 1);
  AdamWCoefficients coefficients = {
      .gradient_scale = static_cast<float>(
          scale / static_cast<double>(reduced.micro_batches)),
      .beta1 = static_cast<float>(config_.beta1()),
      .beta2 = static_cast<float>(config_.beta2()),
      .step_size = static_cast<float>(learning_rate /
                                      (1 - std::pow(config_.beta1(), update))),
      .inverse_sqrt_correction2 = static_cast<float>(
          1 / std::sqrt(1 - std::pow(config_.beta2(), update))),
      .epsilon = static_cast<float>(config_.epsilon())};
  for (const Segment& segment : segments_) {
    const int64_t at = segment.offset;
    const double decay =
        segment.decays ? learning_rate * config_.weight_decay() : 0;
    coefficients.decay = static_cast<float>(1 - decay);
    ops_->AdamW(coefficients, gradients.data() + shard_.begin + at,
                segment.size, master + at, first_moment_.data() + at,
                second_moment_.data() + at,
                estimate == nullptr ? nullptr : estimate + at);
  }
}

absl::Status ShardedAdamW::Save(AdamWState& state) {
  state.updates = updates_;
  const std::pair<const DeviceArray<float>*, std::vector<float>*> moments[] = {
      {&first_moment_, &state.first_moment},
      {&second_moment_, &state.second_moment}};
  for (const auto& [own, whole] : moments) {
    whole->resize(static_cast<size_t>(size_));
    ops_->CopyToHost(own->data(), own->size_bytes(),
                     whole->data() + shard_.begin);
    RETURN_IF_ERROR(ops_->Synchronize());
    RETURN_IF_ERROR(GatherShards(communicator_, absl::MakeSpan(*whole)));
  }
  return absl::OkStatus();
}

void ShardedAdamW::Restore(const AdamWState& state) {
  CHECK_EQ(state.first_moment.size(), static_cast<size_t>(size_));
  CHECK_EQ(state.second_moment.size(), static_cast<size_t>(size_));
  updates_ = state.updates;
  ops_->CopyToDevice(state.first_moment.data() + shard_.begin,
                     first_moment_.size_bytes(), first_moment_.data());
  ops_->CopyToDevice(state.second_moment.data() + shard_.begin,
                     second_moment_.size_bytes(), second_moment_.data());
}

}  // namespace causeway
