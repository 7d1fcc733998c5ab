// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/optimizer/sharded_adamw.h"

#include <cmath>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {

absl::StatusOr<std::unique_ptr<ShardedAdamW>> ShardedAdamW::Create(
    const v1::TrainingConfig& config, const ModelLayout& layout,
    Communicator* communicator, Ops* ops) {
  auto optimizer =
      absl::WrapUnique(new ShardedAdamW(config, layout, communicator, ops));
  optimizer->shard_ = communicator->shard(layout.size, communicator->rank());
  ASSIGN_OR_RETURN(optimizer->adamw_,
                   AdamW::Create(config, layout, optimizer->shard_.begin,
                                 optimizer->shard_.end, ops));
  return optimizer;
}

ShardedAdamW::ShardedAdamW(const v1::TrainingConfig& config,
                           const ModelLayout& layout,
                           Communicator* communicator, Ops* ops)
    : gradient_clip_(config.gradient_clip()),
      size_(layout.size),
      communicator_(communicator),
      ops_(ops) {}

absl::StatusOr<ReducedGradient> ShardedAdamW::Reduce(
    const MicroBatches& own, absl::Span<float> gradients) {
  RETURN_IF_ERROR(communicator_->ReduceScatter(gradients));
  // Holds the squares, the losses, and one place for each rank's count.
  std::vector<double> sums(2 + communicator_->size());
  sums[0] = adamw_->SquaredNorm(gradients.data() + shard_.begin);
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

AdamW::StepOptions ShardedAdamW::OptionsFor(
    double learning_rate, const ReducedGradient& reduced) const {
  return {.learning_rate = learning_rate,
          .gradient_scale = ClipScale(reduced.gradient_norm, gradient_clip_) /
                            static_cast<double>(reduced.micro_batches)};
}

absl::Status ShardedAdamW::Step(double learning_rate,
                                const ReducedGradient& reduced,
                                absl::Span<const float> gradients,
                                float* master) {
  return adamw_->Step(OptionsFor(learning_rate, reduced),
                      gradients.data() + shard_.begin, master);
}

absl::Status ShardedAdamW::Estimate(double learning_rate,
                                    const ReducedGradient& reduced,
                                    absl::Span<const float> gradients,
                                    const float* master, float* estimate) {
  return adamw_->Estimate(OptionsFor(learning_rate, reduced),
                          gradients.data() + shard_.begin, master, estimate);
}

absl::Status ShardedAdamW::Save(AdamWState& state) {
  state.updates = static_cast<uint64_t>(adamw_->updates());
  const std::pair<const float*, std::vector<float>*> moments[] = {
      {adamw_->first_moment(), &state.first_moment},
      {adamw_->second_moment(), &state.second_moment}};
  for (const auto& [own, whole] : moments) {
    whole->resize(static_cast<size_t>(size_));
    ops_->CopyToHost(own, adamw_->size() * sizeof(float),
                     whole->data() + shard_.begin);
    RETURN_IF_ERROR(ops_->Synchronize());
    RETURN_IF_ERROR(GatherShards(communicator_, absl::MakeSpan(*whole)));
  }
  return absl::OkStatus();
}

void ShardedAdamW::Restore(const AdamWState& state) {
  CHECK_EQ(state.first_moment.size(), static_cast<size_t>(size_));
  CHECK_EQ(state.second_moment.size(), static_cast<size_t>(size_));
  adamw_->Restore(static_cast<int64_t>(state.updates),
                  state.first_moment.data() + shard_.begin,
                  state.second_moment.data() + shard_.begin);
}

}  // namespace causeway
