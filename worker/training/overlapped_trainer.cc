// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/overlapped_trainer.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <utility>

#include "absl/time/time.h"
#include "common/status_macros.h"
#include "worker/model/device_array.h"
#include "worker/optimizer/learning_rate.h"
#include "worker/optimizer/sharded_adamw.h"
#include "worker/training/accumulated_gradients.h"
#include "worker/training/step_result.h"

namespace causeway {
namespace {

class OverlappedTrainer : public RankTrainer {
 public:
  explicit OverlappedTrainer(const RankTrainerOptions& options)
      : options_(options), share_(MicroBatchesPerRank(options)) {}

  absl::Status Allocate() {
    Ops* const ops = options_.ops;
    const int64_t size = options_.layout->size;
    ASSIGN_OR_RETURN(gradients_, AccumulatedGradients::Create(
                                     options_.bf16_gradients, size, ops));
    for (DeviceArray<float>* vector : {&compute_, &exchange_}) {
      ASSIGN_OR_RETURN(*vector, DeviceArray<float>::Create(ops, size));
    }
    if (predicts()) {
      ASSIGN_OR_RETURN(committed_, DeviceArray<float>::Create(ops, size));
    }
    ASSIGN_OR_RETURN(optimizer_,
                     ShardedAdamW::Create(options_.training, *options_.layout,
                                          options_.communicator,
                                          options_.communication_ops));
    ASSIGN_OR_RETURN(master_,
                     DeviceArray<float>::Create(options_.ops, shard().size()));
    return absl::OkStatus();
  }

  // Between steps the compute copy is the committed one, except with WP.
  absl::Span<float> parameters() override {
    return All(predicts() ? committed_ : compute_);
  }

  void ParametersWritten() override {
    options_.ops->Copy(parameters().data() + shard().begin, shard().size(),
                       master_.data());
    if (predicts()) {
      options_.ops->Copy(committed_.data(), committed_.size(), compute_.data());
    }
  }

  const Slice& shard() const override { return optimizer_->shard(); }
  absl::Span<float> master() override { return All(master_); }

  absl::Status MastersChanged() override {
    options_.ops->Copy(master_.data(), shard().size(),
                       parameters().data() + shard().begin);
    RETURN_IF_ERROR(options_.ops->Synchronize());
    RETURN_IF_ERROR(options_.communicator->AllGather(parameters()));
    // A prediction from the old parameters is obsolete.
    if (predicts()) {
      options_.ops->Copy(committed_.data(), committed_.size(), compute_.data());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<InnerStepResult> Step(uint64_t run_step) override {
    const double rate = LearningRate(options_.training, run_step - 1);
    if (!started_) {
      started_ = true;
      next_micro_batch_ =
          (static_cast<int64_t>(run_step) - 1) * size() * share_ +
          options_.communicator->rank();
    }
    communication_ = exposed_ = absl::ZeroDuration();
    const bool acco =
        options_.training.inner_algorithm() == v1::TrainingConfig::ACCO;
    // Only the first step has no gradients from the previous one.
    if (own_.count == 0) {
      RETURN_IF_ERROR(
          Accumulate(acco ? second_half() : share_, [] { return false; }));
    }
    if (acco) RETURN_IF_ERROR(EstimateHalf(rate));
    ASSIGN_OR_RETURN(const ReducedGradient reduced,
                     Commit(rate, acco ? second_half() : share_));
    InnerStepResult result =
        MakeInnerStepResult(reduced, rate, *options_.gradients);
    result.communication = communication_;
    result.exposed_communication = exposed_;
    return result;
  }

  absl::Status Save(TrainerState& state) override {
    RETURN_IF_ERROR(optimizer_->Save(state.optimizer));
    // Accumulated gradients are computed again. Ranks may have got unequally
    // far; rank 0's position counts.
    state.next_micro_batch = static_cast<uint64_t>(
        next_micro_batch_ - options_.communicator->rank() -
        own_.count * size());
    return absl::OkStatus();
  }

  void Restore(const TrainerState& state) override {
    optimizer_->Restore(state.optimizer);
    started_ = true;
    next_micro_batch_ = static_cast<int64_t>(state.next_micro_batch) +
                        options_.communicator->rank();
  }

 private:
  int size() const { return options_.communicator->size(); }
  bool predicts() const {
    return options_.training.inner_algorithm() == v1::TrainingConfig::WP;
  }
  // ACCO's parts of this rank's share.
  int64_t first_half() const { return share_ - share_ / 2; }
  int64_t second_half() const { return std::max<int64_t>(1, share_ / 2); }

  static absl::Span<float> All(DeviceArray<float>& vector) {
    return absl::MakeSpan(vector.data(), vector.size());
  }
  float* ExchangedShard() { return exchange_.data() + shard().begin; }

  // ACCO's first half: communicates an estimate of the next parameters, which
  // becomes the compute copy, and meanwhile accumulates at the true ones.
  absl::Status EstimateHalf(double rate) {
    // The gradients are copied because the real update needs them, too.
    gradients_.CopyTo(exchange_.data());
    RETURN_IF_ERROR(
        Overlap(first_half(), [this, rate, own = own_]() -> absl::Status {
          ASSIGN_OR_RETURN(const ReducedGradient reduced,
                           optimizer_->Reduce(own, All(exchange_)));
          RETURN_IF_ERROR(optimizer_->Estimate(
              rate, reduced, All(exchange_), master_.data(), ExchangedShard()));
          return Gather(exchange_);
        }));
    std::swap(compute_, exchange_);
    return absl::OkStatus();
  }

  // Communicates the real update with all accumulated gradients, and meanwhile
  // begins the next step's gradients.
  absl::StatusOr<ReducedGradient> Commit(double rate, int64_t share) {
    gradients_.MoveTo(exchange_);
    gradients_.Clear();
    const MicroBatches own = std::exchange(own_, {});
    ReducedGradient reduced;
    RETURN_IF_ERROR(Overlap(share, [&]() -> absl::Status {
      ASSIGN_OR_RETURN(reduced, optimizer_->Reduce(own, All(exchange_)));
      RETURN_IF_ERROR(
          optimizer_->Step(rate, reduced, All(exchange_), master_.data()));
      if (predicts()) {
        CopyMasterTo(committed_);
        RETURN_IF_ERROR(Gather(committed_));
        RETURN_IF_ERROR(optimizer_->Estimate(rate, reduced, All(exchange_),
                                             master_.data(), ExchangedShard()));
      } else {
        CopyMasterTo(exchange_);
      }
      return Gather(exchange_);
    }));
    std::swap(compute_, exchange_);
    return reduced;
  }

  // Both are for the thread that communicates.
  void CopyMasterTo(DeviceArray<float>& vector) {
    options_.communication_ops->Copy(master_.data(), shard().size(),
                                     vector.data() + shard().begin);
  }
  absl::Status Gather(DeviceArray<float>& vector) {
    RETURN_IF_ERROR(options_.communication_ops->Synchronize());
    return options_.communicator->AllGather(All(vector));
  }

  // Runs `communicate` on a thread of its own and accumulates meanwhile.
  absl::Status Overlap(int64_t share,
                       const std::function<absl::Status()>& communicate) {
    // The communicated values must be written before.
    RETURN_IF_ERROR(options_.ops->Synchronize());
    const absl::Time begin = options_.now();
    absl::Time end;
    std::future<absl::Status> communicated =
        std::async(std::launch::async, [&] {
          absl::Status status = communicate();
          end = options_.now();
          return status;
        });
    const absl::Status computed = Accumulate(share, [&] {
      return communicated.wait_for(std::chrono::seconds(0)) !=
             std::future_status::ready;
    });
    // Otherwise the communication would wait for this rank's next operation.
    if (!computed.ok()) options_.communicator->Abort(computed);
    const absl::Time stalled = options_.now();
    const absl::Status status = communicated.get();
    communication_ += end - begin;
    exposed_ += std::max(absl::ZeroDuration(), end - stalled);
    return computed.ok() ? status : computed;
  }

  // Accumulates micro-batches at the compute copy, as many as the rule says.
  absl::Status Accumulate(int64_t share,
                          const std::function<bool()>& communicating) {
    for (int64_t count = 0; options_.accumulate(count, share, communicating());
         ++count) {
      RETURN_IF_ERROR(options_.gradients->Accumulate(
          next_micro_batch_, compute_.data(), gradients_.sum()));
      next_micro_batch_ += size();
      ++own_.count;
    }
    ASSIGN_OR_RETURN(const double loss, options_.gradients->TakeLoss());
    own_.loss += loss;
    return absl::OkStatus();
  }

  const RankTrainerOptions options_;
  // The micro-batches in this rank's share of a step.
  const int64_t share_;
  std::unique_ptr<ShardedAdamW> optimizer_;

  // The parameters at which gradients are computed.
  DeviceArray<float> compute_;
  AccumulatedGradients gradients_;
  // The communicated vector: first gradients, then parameters.
  DeviceArray<float> exchange_;
  // The shard of the committed parameters.
  DeviceArray<float> master_;
  // WP only: all committed parameters.
  DeviceArray<float> committed_;

  // The micro-batches in `gradients_`.
  MicroBatches own_;
  bool started_ = false;
  // The next one in the island's series, in which the ranks take turns.
  int64_t next_micro_batch_ = 0;
  // Times of the current step.
  absl::Duration communication_;
  absl::Duration exposed_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RankTrainer>> MakeOverlappedTrainer(
    const RankTrainerOptions& options) {
  auto trainer = std::make_unique<OverlappedTrainer>(options);
  RETURN_IF_ERROR(trainer->Allocate());
  return trainer;
}

}  // namespace causeway
