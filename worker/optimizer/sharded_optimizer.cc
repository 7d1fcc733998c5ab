// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/sharded_optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/optimizer/owners.h"

namespace causeway {
namespace {

// Returns the factor, at most 1, that reduces a gradient of norm `norm` to
// `max_norm`; 1 if max_norm is 0 (no clipping).
double ClipScale(double norm, double max_norm) {
  return max_norm == 0 ? 1 : std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace

int64_t ShardBytes(const v1::TrainingConfig& config, const ModelLayout& layout,
                   int ranks, int64_t vectors) {
  constexpr int64_t kBytes = sizeof(float);
  if (config.optimizer() != v1::TrainingConfig::MUON) {
    return kBytes * (2 + vectors) * ((layout.size + ranks - 1) / ranks);
  }
  int64_t most = 0;
  for (const Slice& shard : DivideAmongOwners(config, layout, ranks)) {
    int64_t values = (2 + vectors) * shard.size();
    for (const TensorSpec& tensor : layout.tensors) {
      if (tensor.offset >= shard.begin && tensor.offset < shard.end &&
          IsMuonMatrix(config, tensor)) {
        values -= tensor.size;
      }
    }
    most = std::max(most, values);
  }
  return kBytes * (most + MuonScratchSize(config, layout.tensors));
}

absl::StatusOr<std::unique_ptr<ShardedOptimizer>> ShardedOptimizer::Create(
    const v1::TrainingConfig& config, const ModelLayout& layout,
    Communicator* communicator, Ops* ops) {
  if (config.optimizer() == v1::TrainingConfig::MUON) {
    communicator->Divide(
        DivideAmongOwners(config, layout, communicator->size()));
  }
  auto optimizer =
      absl::WrapUnique(new ShardedOptimizer(config, layout, communicator, ops));
  ASSIGN_OR_RETURN(optimizer->first_moment_,
                   DeviceArray<float>::Create(ops, optimizer->shard_.size()));
  ASSIGN_OR_RETURN(
      optimizer->second_moment_,
      DeviceArray<float>::Create(ops, optimizer->second_moments()));
  if (!optimizer->matrices_.empty()) {
    ASSIGN_OR_RETURN(optimizer->muon_,
                     Muon::Create(config, layout.tensors, ops));
  }
  return optimizer;
}

ShardedOptimizer::ShardedOptimizer(const v1::TrainingConfig& config,
                                   const ModelLayout& layout,
                                   Communicator* communicator, Ops* ops)
    : config_(config),
      layout_(layout),
      communicator_(communicator),
      ops_(ops),
      shard_(communicator->shard(layout.size, communicator->rank())) {
  for (const TensorSpec& tensor : layout.tensors) {
    const int64_t first = std::max(shard_.begin, tensor.offset);
    const int64_t last = std::min(shard_.end, tensor.offset + tensor.size);
    if (first >= last) continue;
    const int64_t offset = first - shard_.begin;
    if (IsMuonMatrix(config, tensor)) {
      CHECK_EQ(last - first, tensor.size) << tensor.name << " is cut";
      matrices_.push_back({offset, tensor.shape[0], tensor.shape[1]});
      continue;
    }
    const bool decays = tensor.shape.size() > 1;
    if (segments_.empty() || segments_.back().decays != decays ||
        segments_.back().offset + segments_.back().size != offset) {
      segments_.push_back({.offset = offset,
                           .decays = decays,
                           .second_offset = second_moments()});
    }
    segments_.back().size += last - first;
  }
}

absl::StatusOr<ReducedGradient> ShardedOptimizer::Reduce(
    const MicroBatches& own, absl::Span<float> gradients) {
  RETURN_IF_ERROR(communicator_->ReduceScatter(gradients));
  // Holds the squares, the losses, the targets, and one place for each rank's
  // count.
  constexpr size_t kCounts = 3;
  std::vector<double> sums(kCounts + communicator_->size());
  sums[0] = ops_->SquaredNorm(gradients.data() + shard_.begin, shard_.size());
  RETURN_IF_ERROR(ops_->Synchronize());
  sums[1] = own.loss;
  sums[2] = static_cast<double>(own.targets);
  sums[kCounts + communicator_->rank()] = static_cast<double>(own.count);
  RETURN_IF_ERROR(communicator_->AllReduce(absl::MakeSpan(sums)));

  ReducedGradient reduced;
  for (size_t i = kCounts; i < sums.size(); ++i) {
    reduced.rank_micro_batches.push_back(static_cast<int64_t>(sums[i]));
    reduced.micro_batches += reduced.rank_micro_batches.back();
  }
  CHECK_GT(reduced.micro_batches, 0);
  const double count = static_cast<double>(reduced.micro_batches);
  // Without targets this is 0 / 0, an unknown loss.
  reduced.loss = sums[1] / sums[2];
  reduced.gradient_norm = std::sqrt(sums[0]) / count;
  if (!std::isfinite(sums[1]) || !std::isfinite(reduced.gradient_norm)) {
    return absl::OutOfRangeError(absl::StrCat(
        "training diverged: loss ", reduced.loss, ", gradient norm ",
        reduced.gradient_norm,
        "; lower training.learning_rate or lengthen training.warmup_steps"));
  }
  return reduced;
}

void ShardedOptimizer::Step(double learning_rate,
                            const ReducedGradient& reduced,
                            absl::Span<const float> gradients, float* master) {
  Update(learning_rate, reduced, gradients, master, nullptr);
  ++updates_;
}

void ShardedOptimizer::Estimate(double learning_rate,
                                const ReducedGradient& reduced,
                                absl::Span<const float> gradients,
                                const float* master, float* estimate) {
  Update(learning_rate, reduced, gradients, const_cast<float*>(master),
         estimate);
}

void ShardedOptimizer::Update(double learning_rate,
                              const ReducedGradient& reduced,
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
                second_moment_.data() + segment.second_offset,
                estimate == nullptr ? nullptr : estimate + at);
  }
  for (const MuonMatrix& matrix : matrices_) {
    const int64_t at = matrix.offset;
    muon_->Update(learning_rate, coefficients.gradient_scale,
                  {.rows = matrix.rows,
                   .columns = matrix.columns,
                   .gradient = gradients.data() + shard_.begin + at,
                   .momentum = first_moment_.data() + at,
                   .parameters = master + at,
                   .estimate = estimate == nullptr ? nullptr : estimate + at});
  }
}

absl::Status ShardedOptimizer::Save(OptimizerState& state) {
  state.updates = updates_;
  // Second moments travel in their parameters' places.
  std::vector<float> second(static_cast<size_t>(shard_.size()));
  for (const Segment& segment : segments_) {
    ops_->CopyToHost(second_moment_.data() + segment.second_offset,
                     static_cast<size_t>(segment.size) * sizeof(float),
                     second.data() + segment.offset);
  }
  state.first_moment.resize(static_cast<size_t>(shard_.size()));
  ops_->CopyToHost(first_moment_.data(), first_moment_.size_bytes(),
                   state.first_moment.data());
  RETURN_IF_ERROR(ops_->Synchronize());
  RETURN_IF_ERROR(
      GatherShards(communicator_, layout_.size, state.first_moment));
  RETURN_IF_ERROR(GatherShards(communicator_, layout_.size, second));
  if (communicator_->rank() != 0) return absl::OkStatus();
  int64_t kept = 0;
  for (const TensorSpec& tensor : layout_.tensors) {
    if (IsMuonMatrix(config_, tensor)) continue;
    if (kept < tensor.offset) {
      std::copy_n(second.data() + tensor.offset, tensor.size,
                  second.data() + kept);
    }
    kept += tensor.size;
  }
  second.resize(static_cast<size_t>(kept));
  state.second_moment = std::move(second);
  return absl::OkStatus();
}

absl::Status ShardedOptimizer::Restore(OptimizerState state) {
  updates_ = state.updates;
  RETURN_IF_ERROR(
      ScatterShards(communicator_, layout_.size, state.first_moment));
  ops_->CopyToDevice(state.first_moment.data(), first_moment_.size_bytes(),
                     first_moment_.data());
  std::vector<float> second = std::move(state.second_moment);
  if (communicator_->rank() == 0) {
    // The last ones move first, because they lie in the places of others.
    auto kept = static_cast<int64_t>(second.size());
    second.resize(static_cast<size_t>(layout_.size));
    for (auto tensor = layout_.tensors.rbegin();
         tensor != layout_.tensors.rend(); ++tensor) {
      if (IsMuonMatrix(config_, *tensor)) continue;
      kept -= tensor->size;
      CHECK(0 <= kept && kept <= tensor->offset);
      if (kept == tensor->offset) break;
      std::copy_backward(second.begin() + kept,
                         second.begin() + kept + tensor->size,
                         second.begin() + tensor->offset + tensor->size);
    }
  }
  RETURN_IF_ERROR(ScatterShards(communicator_, layout_.size, second));
  for (const Segment& segment : segments_) {
    ops_->CopyToDevice(second.data() + segment.offset,
                       static_cast<size_t>(segment.size) * sizeof(float),
                       second_moment_.data() + segment.second_offset);
  }
  return ops_->Synchronize();
}

}  // namespace causeway
