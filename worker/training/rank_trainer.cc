// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/rank_trainer.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/config/run_config.h"
#include "common/status_macros.h"
#include "worker/model/device_array.h"
#include "worker/optimizer/learning_rate.h"
#include "worker/optimizer/sharded_optimizer.h"
#include "worker/training/gradient_audit.h"

namespace causeway {
namespace {

InnerStepResult MakeInnerStepResult(const ReducedGradient& reduced,
                                    double learning_rate,
                                    const GradientSource& gradients) {
  return {.loss = reduced.loss,
          .gradient_norm = reduced.gradient_norm,
          .learning_rate = learning_rate,
          .tokens =
              static_cast<uint64_t>(reduced.micro_batches) * gradients.tokens(),
          .rank_micro_batches = reduced.rank_micro_batches};
}

// Returns the micro-batches in a rank's share of the batch.
int64_t MicroBatchesPerRank(const RankTrainerOptions& options) {
  return int64_t{options.training.batch_size()} /
         (int64_t{options.training.micro_batch_size()} *
          options.communicator->size());
}

class Trainer : public RankTrainer {
 public:
  explicit Trainer(const RankTrainerOptions& options)
      : options_(options), share_(MicroBatchesPerRank(options)) {}

  absl::Status Allocate() {
    Ops* const ops = options_.ops;
    const int64_t size = options_.layout->size;
    ASSIGN_OR_RETURN(gradients_, DeviceArray<float>::Create(ops, size));
    ASSIGN_OR_RETURN(compute_, DeviceArray<float>::Create(ops, size));
    if (!is_ddp()) {
      ASSIGN_OR_RETURN(exchange_, DeviceArray<float>::Create(ops, size));
    }
    ASSIGN_OR_RETURN(
        optimizer_,
        ShardedOptimizer::Create(options_.training, *options_.layout,
                                 options_.communicator,
                                 is_ddp() ? ops : options_.communication_ops));
    if (!is_ddp()) {
      ASSIGN_OR_RETURN(master_,
                       DeviceArray<float>::Create(ops, shard().size()));
    }
    return absl::OkStatus();
  }

  absl::Span<float> parameters() override { return All(compute_); }

  void ParametersWritten() override {
    if (!is_ddp()) {
      options_.ops->Copy(OwnParameters().data(), shard().size(),
                         master_.data());
    }
  }

  const Slice& shard() const override { return optimizer_->shard(); }
  absl::Span<float> master() override {
    return is_ddp() ? OwnParameters() : All(master_);
  }
  absl::Status MastersChanged() override {
    if (!is_ddp()) {
      options_.ops->Copy(master_.data(), shard().size(),
                         OwnParameters().data());
    }
    RETURN_IF_ERROR(options_.ops->Synchronize());
    return options_.communicator->AllGather(parameters());
  }

  // With DDP, each step zeroes the gradients; otherwise each step writes the
  // exchanged vector before reading it.
  absl::Span<float> scratch() override {
    return All(is_ddp() ? gradients_ : exchange_);
  }

  absl::StatusOr<InnerStepResult> Step(uint64_t run_step) override {
    const double rate = LearningRate(options_.training, run_step - 1);
    const uint64_t audit_steps = options_.training.audit_steps();
    if (audit_steps > 0 && run_step % audit_steps == 0 && size() > 1) {
      RETURN_IF_ERROR(AuditGradients(
          static_cast<int64_t>(run_step), parameters(), scratch(),
          options_.gradients, options_.ops, options_.communicator));
    }
    if (is_ddp()) return StepDdp(run_step, rate);
    if (!started_) {
      started_ = true;
      next_micro_batch_ =
          (static_cast<int64_t>(run_step) - 1) * size() * share_ +
          options_.communicator->rank();
    }
    communication_ = exposed_ = absl::ZeroDuration();
    // Only the first step has no gradients from the previous one.
    if (own_.count == 0) {
      RETURN_IF_ERROR(Accumulate(second_half(), [] { return false; }));
    }
    if (!prepared_) PrepareGradients();
    RETURN_IF_ERROR(EstimateHalf(rate));
    ASSIGN_OR_RETURN(const ReducedGradient reduced, Commit(rate));
    InnerStepResult result =
        MakeInnerStepResult(reduced, rate, *options_.gradients);
    result.communication = communication_;
    result.exposed_communication = exposed_;
    prepared_ = true;
    return result;
  }

  absl::Status Save(TrainerState& state) override {
    RETURN_IF_ERROR(optimizer_->Save(state.optimizer));
    if (is_ddp()) return absl::OkStatus();
    // Accumulated gradients are computed again. Ranks may differ in progress;
    // rank 0's position counts.
    state.next_micro_batch = static_cast<uint64_t>(
        next_micro_batch_ - options_.communicator->rank() -
        own_.count * size());
    state.micro_batch_size = options_.training.micro_batch_size();
    return absl::OkStatus();
  }

  absl::Status Restore(TrainerState state) override {
    RETURN_IF_ERROR(optimizer_->Restore(std::move(state.optimizer)));
    // A state from before the first step has no position, which then follows
    // from the run's step.
    started_ = state.next_micro_batch > 0;
    // Micro-batches may have had another size. Rounding down skips no sequence.
    const uint64_t size = options_.training.micro_batch_size();
    const uint64_t saved =
        state.micro_batch_size == 0 ? size : state.micro_batch_size;
    next_micro_batch_ =
        static_cast<int64_t>(state.next_micro_batch * saved / size) +
        options_.communicator->rank();
    return absl::OkStatus();
  }

 private:
  int size() const { return options_.communicator->size(); }
  bool is_ddp() const {
    return options_.training.inner_algorithm() == v1::TrainingConfig::DDP;
  }
  // ACCO's parts of this rank's share.
  int64_t first_half() const { return share_ - share_ / 2; }
  int64_t second_half() const { return std::max<int64_t>(1, share_ / 2); }
  // Half of the micro-batches that count in a step.
  int64_t most_in_half() const { return kMostBatchesPerStep / 2 * share_; }

  static absl::Span<float> All(DeviceArray<float>& vector) {
    return absl::MakeSpan(vector.data(), vector.size());
  }
  absl::Span<float> OwnParameters() {
    return parameters().subspan(shard().begin, shard().size());
  }
  float* ExchangedShard() { return exchange_.data() + shard().begin; }

  absl::StatusOr<InnerStepResult> StepDdp(uint64_t run_step, double rate) {
    const int64_t steps = static_cast<int64_t>(run_step) - 1;
    const int64_t first =
        (steps * size() + options_.communicator->rank()) * share_;
    options_.ops->Zero(gradients_.size(), gradients_.data());
    for (int64_t i = 0; i < share_; ++i) {
      RETURN_IF_ERROR(options_.gradients->Accumulate(first + i, compute_.data(),
                                                     gradients_.data()));
    }
    if (!std::exchange(prepared_, true)) PrepareGradients();
    ASSIGN_OR_RETURN(const LossSum loss, options_.gradients->TakeLoss());
    const MicroBatches own = {
        .count = share_, .loss = loss.sum, .targets = loss.targets};
    const absl::Span<float> gradients = All(gradients_);
    // Values must be written before they are communicated.
    RETURN_IF_ERROR(options_.ops->Synchronize());
    ASSIGN_OR_RETURN(const ReducedGradient reduced,
                     optimizer_->Reduce(own, gradients));
    optimizer_->Step(rate, reduced, gradients, master().data());
    RETURN_IF_ERROR(MastersChanged());
    return MakeInnerStepResult(reduced, rate, *options_.gradients);
  }

  // ACCO's first half: communicates an estimate of the next parameters, which
  // becomes the compute copy, and meanwhile accumulates at the true ones.
  absl::Status EstimateHalf(double rate) {
    // Copy the gradients, because the real update needs them, too.
    options_.ops->Copy(gradients_.data(), gradients_.size(), exchange_.data());
    RETURN_IF_ERROR(
        Overlap(first_half(), [this, rate, own = own_]() -> absl::Status {
          ASSIGN_OR_RETURN(const ReducedGradient reduced,
                           optimizer_->Reduce(own, All(exchange_)));
          optimizer_->Estimate(rate, reduced, All(exchange_), master_.data(),
                               ExchangedShard());
          return GatherExchanged();
        }));
    std::swap(compute_, exchange_);
    return absl::OkStatus();
  }

  // Communicates the real update with all accumulated gradients, and meanwhile
  // begins the next step's gradients.
  absl::StatusOr<ReducedGradient> Commit(double rate) {
    std::swap(gradients_, exchange_);
    options_.ops->Zero(gradients_.size(), gradients_.data());
    const MicroBatches own = std::exchange(own_, {});
    ReducedGradient reduced;
    RETURN_IF_ERROR(Overlap(second_half(), [&]() -> absl::Status {
      ASSIGN_OR_RETURN(reduced, optimizer_->Reduce(own, All(exchange_)));
      optimizer_->Step(rate, reduced, All(exchange_), master_.data());
      options_.communication_ops->Copy(master_.data(), shard().size(),
                                       ExchangedShard());
      return GatherExchanged();
    }));
    std::swap(compute_, exchange_);
    return reduced;
  }

  // Prepares gradients for every pair of vectors that swaps can produce.
  void PrepareGradients() {
    if (is_ddp()) {
      options_.gradients->Prepare(compute_.data(), gradients_.data());
      return;
    }
    float* const vectors[] = {compute_.data(), exchange_.data(),
                              gradients_.data()};
    for (const float* const parameters : vectors) {
      for (float* const gradients : vectors) {
        if (gradients == parameters) continue;
        options_.gradients->Prepare(parameters, gradients);
      }
    }
  }

  // For the thread that communicates.
  absl::Status GatherExchanged() {
    RETURN_IF_ERROR(options_.communication_ops->Synchronize());
    return options_.communicator->AllGather(All(exchange_));
  }

  // Runs `communicate` on its own thread and accumulates meanwhile.
  absl::Status Overlap(int64_t share,
                       const std::function<absl::Status()>& communicate) {
    // Values must be written before they are communicated.
    RETURN_IF_ERROR(options_.ops->Synchronize());
    const absl::Time begin = options_.now();
    absl::Time end;
    std::future<absl::Status> communicated =
        std::async(std::launch::async, [&] {
          absl::Status status = communicate();
          end = options_.now();
          return status;
        });
    if (!prepared_) communicated.wait();
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

  // Accumulates micro-batches at the compute copy as options_.accumulate says.
  // After most_in_half() of them that rule is told that communication has
  // ended.
  absl::Status Accumulate(int64_t share,
                          const std::function<bool()>& communicating) {
    for (int64_t count = 0; options_.accumulate(
             count, share, count < most_in_half() && communicating());
         ++count) {
      RETURN_IF_ERROR(options_.gradients->Accumulate(
          next_micro_batch_, compute_.data(), gradients_.data()));
      next_micro_batch_ += size();
      ++own_.count;
    }
    ASSIGN_OR_RETURN(const LossSum loss, options_.gradients->TakeLoss());
    own_.loss += loss.sum;
    own_.targets += loss.targets;
    return absl::OkStatus();
  }

  const RankTrainerOptions options_;
  // The micro-batches in this rank's share of a step.
  const int64_t share_;
  std::unique_ptr<ShardedOptimizer> optimizer_;

  // The parameters at which gradients are computed.
  DeviceArray<float> compute_;
  // The sums of the gradients of micro-batches.
  DeviceArray<float> gradients_;
  // The communicated vector: first gradients, then parameters. Empty with DDP,
  // which communicates both in place.
  DeviceArray<float> exchange_;
  // The shard of the committed parameters. Empty with DDP, which has them in
  // `compute_`.
  DeviceArray<float> master_;

  // The micro-batches in `gradients_`.
  MicroBatches own_;
  bool started_ = false;
  // False in the first step, in which operations take memory, load code and
  // connect GPUs. These may wait for all GPUs of the process, and forever if
  // one of those waits for this rank in NCCL.
  bool prepared_ = false;
  // This rank's next micro-batch in the island's series, in which ranks take
  // turns.
  int64_t next_micro_batch_ = 0;
  // Times of the current step.
  absl::Duration communication_;
  absl::Duration exposed_;
};

}  // namespace

bool AccumulateWhileCommunicating(int64_t count, int64_t share,
                                  bool communicating) {
  return AccumulateShare(count, share, communicating) || communicating;
}

bool AccumulateShare(int64_t count, int64_t share, bool /*communicating*/) {
  return count < std::max<int64_t>(1, share);
}

int64_t RankTrainerBytes(const v1::TrainingConfig& training,
                         const ModelLayout& layout, int ranks) {
  const bool is_ddp = training.inner_algorithm() == v1::TrainingConfig::DDP;
  // Parameters, gradients, and what ACCO communicates.
  const int64_t vectors = is_ddp ? 2 : 3;
  const int64_t masters = is_ddp ? 0 : 1;
  return int64_t{sizeof(float)} * vectors * layout.size +
         ShardBytes(training, layout, ranks, masters);
}

absl::StatusOr<std::unique_ptr<RankTrainer>> MakeRankTrainer(
    const RankTrainerOptions& options) {
  const v1::TrainingConfig& training = options.training;
  const int64_t unit =
      int64_t{training.micro_batch_size()} * options.communicator->size();
  if (training.batch_size() % unit != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "training.batch_size is ", training.batch_size(), "; an island of ",
        options.communicator->size(),
        " ranks needs a multiple of ranks * micro_batch_size = ", unit));
  }
  auto trainer = std::make_unique<Trainer>(options);
  RETURN_IF_ERROR(trainer->Allocate());
  return trainer;
}

}  // namespace causeway
