// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/ddp_trainer.h"

#include <utility>

#include "common/status_macros.h"
#include "worker/model/device_array.h"
#include "worker/optimizer/learning_rate.h"
#include "worker/optimizer/sharded_adamw.h"
#include "worker/training/accumulated_gradients.h"
#include "worker/training/step_result.h"

namespace causeway {
namespace {

class DdpTrainer : public RankTrainer {
 public:
  DdpTrainer(const RankTrainerOptions& options,
             std::unique_ptr<ShardedAdamW> optimizer)
      : options_(options), optimizer_(std::move(optimizer)) {}

  absl::Status Allocate() {
    Ops* const ops = options_.ops;
    const int64_t size = options_.layout->size;
    ASSIGN_OR_RETURN(parameters_, DeviceArray<float>::Create(ops, size));
    ASSIGN_OR_RETURN(gradients_, AccumulatedGradients::Create(
                                     options_.bf16_gradients, size, ops));
    if (gradients_.is_bf16()) {
      ASSIGN_OR_RETURN(exchange_, DeviceArray<float>::Create(ops, size));
    }
    if (has_master()) {
      ASSIGN_OR_RETURN(master_,
                       DeviceArray<float>::Create(ops, shard().size()));
    }
    return absl::OkStatus();
  }

  absl::Span<float> parameters() override {
    return absl::MakeSpan(parameters_.data(), parameters_.size());
  }
  void ParametersWritten() override {
    if (!has_master()) return;
    options_.ops->Copy(OwnParameters().data(), shard().size(), master_.data());
  }

  const Slice& shard() const override { return optimizer_->shard(); }
  absl::Span<float> master() override {
    return has_master() ? absl::MakeSpan(master_.data(), master_.size())
                        : OwnParameters();
  }
  absl::Status MastersChanged() override {
    if (has_master()) {
      options_.ops->Copy(master_.data(), shard().size(),
                         OwnParameters().data());
    }
    RETURN_IF_ERROR(options_.ops->Synchronize());
    return options_.communicator->AllGather(parameters());
  }

  absl::StatusOr<InnerStepResult> Step(uint64_t run_step) override {
    ASSIGN_OR_RETURN(const MicroBatches own, Accumulate(run_step));
    const absl::Span<float> gradients = gradients_.InFp32(exchange_);
    // The communicated values must be written before.
    RETURN_IF_ERROR(options_.ops->Synchronize());
    ASSIGN_OR_RETURN(const ReducedGradient reduced,
                     optimizer_->Reduce(own, gradients));
    const double rate = LearningRate(options_.training, run_step - 1);
    RETURN_IF_ERROR(
        optimizer_->Step(rate, reduced, gradients, master().data()));
    RETURN_IF_ERROR(MastersChanged());
    return MakeInnerStepResult(reduced, rate, *options_.gradients);
  }

  absl::Status Save(TrainerState& state) override {
    return optimizer_->Save(state.optimizer);
  }
  void Restore(const TrainerState& state) override {
    optimizer_->Restore(state.optimizer);
  }

 private:
  // Returns whether parameters are rounded, so that masters need memory of
  // their own.
  bool has_master() const { return options_.communicator->rounds(); }
  absl::Span<float> OwnParameters() {
    return parameters().subspan(shard().begin, shard().size());
  }

  // Accumulates this rank's part of the batch.
  absl::StatusOr<MicroBatches> Accumulate(uint64_t run_step) {
    const int64_t share = MicroBatchesPerRank(options_);
    const int64_t steps = static_cast<int64_t>(run_step) - 1;
    const int64_t first = (steps * options_.communicator->size() +
                           options_.communicator->rank()) *
                          share;
    gradients_.Clear();
    MicroBatches own = {.count = share};
    for (int64_t i = 0; i < share; ++i) {
      RETURN_IF_ERROR(options_.gradients->Accumulate(
          first + i, parameters_.data(), gradients_.sum()));
    }
    ASSIGN_OR_RETURN(own.loss, options_.gradients->TakeLoss());
    return own;
  }

  const RankTrainerOptions options_;
  const std::unique_ptr<ShardedAdamW> optimizer_;
  DeviceArray<float> parameters_;
  AccumulatedGradients gradients_;
  // The communicated vector, unless that is `gradients_`.
  DeviceArray<float> exchange_;
  // The master of the shard, or empty.
  DeviceArray<float> master_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RankTrainer>> MakeDdpTrainer(
    const RankTrainerOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ShardedAdamW> optimizer,
                   ShardedAdamW::Create(options.training, *options.layout,
                                        options.communicator, options.ops));
  auto trainer = std::make_unique<DdpTrainer>(options, std::move(optimizer));
  RETURN_IF_ERROR(trainer->Allocate());
  return trainer;
}

}  // namespace causeway
