// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/single_rank_trainer.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/model/device_array.h"
#include "worker/model/ops_cpu.h"
#include "worker/model/transformer.h"
#include "worker/optimizer/adamw.h"
#include "worker/optimizer/learning_rate.h"

namespace causeway {
namespace {

class SingleRankTrainer : public InnerTrainer {
 public:
  static absl::StatusOr<std::unique_ptr<InnerTrainer>> Create(
      const v1::RunConfig& config, const SingleRankTrainerOptions& options,
      std::vector<float> parameters) {
    // Everything that can be wrong with the data is said before memory is
    // taken.
    ASSIGN_OR_RETURN(Dataset dataset, OpenDataset(config, options.data));
    auto trainer = std::make_unique<SingleRankTrainer>(
        config, std::move(dataset), std::move(parameters));
    RETURN_IF_ERROR(trainer->Allocate(options));
    return trainer;
  }

  SingleRankTrainer(const v1::RunConfig& config, Dataset dataset,
                    std::vector<float> parameters)
      : config_(config),
        dataset_(std::move(dataset)),
        parameters_(std::move(parameters)) {}

  absl::Span<float> parameters() override {
    return absl::MakeSpan(parameters_);
  }

  absl::StatusOr<InnerStepResult> Step(uint64_t run_step) override {
    sampler_->FillBatch(static_cast<int64_t>(run_step) - 1, /*rank=*/0,
                        absl::MakeSpan(tokens_), absl::MakeSpan(targets_));
    const size_t micro_tokens = config_.training().micro_batch_size() *
                                config_.model().sequence_length();
    const size_t micro_batches = tokens_.size() / micro_tokens;
    ops_->Zero(gradients_.size(), gradients_.data());
    InnerStepResult result{.tokens = tokens_.size()};
    for (size_t i = 0; i < micro_batches; ++i) {
      ASSIGN_OR_RETURN(
          const double loss,
          model_->ForwardBackward(parameters_.data(),
                                  absl::MakeConstSpan(tokens_).subspan(
                                      i * micro_tokens, micro_tokens),
                                  absl::MakeConstSpan(targets_).subspan(
                                      i * micro_tokens, micro_tokens),
                                  1.0 / static_cast<double>(micro_batches),
                                  gradients_.data()));
      result.loss += loss / static_cast<double>(micro_batches);
    }
    result.learning_rate = LearningRate(config_.training(), run_step - 1);
    result.gradient_norm =
        std::sqrt(optimizer_->SquaredNorm(gradients_.data()));
    if (!std::isfinite(result.loss) || !std::isfinite(result.gradient_norm)) {
      return absl::OutOfRangeError(absl::StrCat(
          "training diverged at step ", run_step, ": loss ", result.loss,
          ", gradient norm ", result.gradient_norm,
          "; lower training.learning_rate or lengthen training.warmup_steps"));
    }
    RETURN_IF_ERROR(optimizer_->Step(
        {.learning_rate = result.learning_rate,
         .gradient_scale = ClipScale(result.gradient_norm,
                                     config_.training().gradient_clip())},
        gradients_.data(), parameters_.data()));
    return result;
  }

 private:
  absl::Status Allocate(const SingleRankTrainerOptions& options) {
    const v1::TrainingConfig& training = config_.training();
    ASSIGN_OR_RETURN(
        Sampler sampler,
        Sampler::Create(&dataset_, {.seed = config_.seed(),
                                    .shard = options.shard,
                                    .batch_size = training.batch_size()}));
    sampler_ = std::make_unique<Sampler>(std::move(sampler));
    ops_ = MakeCpuOps(options.threads);
    ASSIGN_OR_RETURN(
        model_, Transformer::Create(
                    config_.model(),
                    {.micro_batch = training.micro_batch_size(),
                     .recompute_activations = training.recompute_activations()},
                    ops_.get()));
    ASSIGN_OR_RETURN(gradients_, DeviceArray<float>::Create(
                                     ops_.get(), model_->layout().size));
    const ModelLayout& layout = model_->layout();
    ASSIGN_OR_RETURN(optimizer_, AdamW::Create(training, layout, 0, layout.size,
                                               ops_.get()));
    const size_t tokens =
        size_t{training.batch_size()} * config_.model().sequence_length();
    tokens_.resize(tokens);
    targets_.resize(tokens);
    LOG(INFO) << model_->layout().size << " parameters, "
              << (model_->activation_bytes() >> 20) << " MiB of activations, "
              << dataset_.corpus.size() << " tokens of data, "
              << sampler_->epoch_windows()
              << " training sequences in this shard";
    return absl::OkStatus();
  }

  const v1::RunConfig config_;
  const Dataset dataset_;
  std::vector<float> parameters_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Transformer> model_;
  DeviceArray<float> gradients_;
  std::unique_ptr<AdamW> optimizer_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> targets_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeSingleRankTrainer(
    const v1::RunConfig& config, const SingleRankTrainerOptions& options,
    std::vector<float> parameters) {
  return SingleRankTrainer::Create(config, options, std::move(parameters));
}

}  // namespace causeway
