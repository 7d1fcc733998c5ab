// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/training/transformer_gradients.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/types/span.h"
#include "common/config/run_config.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/data/held_out_loss.h"
#include "worker/data/sampler.h"
#include "worker/model/transformer.h"

namespace causeway {
namespace {

constexpr double kLossScale = 1;

class TransformerGradients : public GradientSource {
 public:
  TransformerGradients(const v1::RunConfig& config,
                       std::shared_ptr<const Dataset> dataset, Sampler sampler,
                       std::unique_ptr<Transformer> model)
      : micro_batch_size_(config.training().micro_batch_size()),
        dataset_(std::move(dataset)),
        sampler_(std::move(sampler)),
        model_(std::move(model)),
        tokens_(micro_batch_size_ * config.model().sequence_length()),
        targets_(tokens_.size()) {}

  absl::Status Accumulate(int64_t number, const float* parameters,
                          float* gradients) override {
    sampler_.Fill(number * micro_batch_size_, absl::MakeSpan(tokens_),
                  absl::MakeSpan(targets_));
    targets_seen_ += static_cast<int64_t>(targets_.size()) -
                     absl::c_count(targets_, kNoTarget);
    return model_->AddGradients(parameters, tokens_, targets_, kLossScale,
                                gradients);
  }

  void Prepare(const float* parameters, float* gradients) override {
    model_->PrepareGradients(parameters, kLossScale, gradients);
  }

  absl::StatusOr<LossSum> TakeLoss() override {
    ASSIGN_OR_RETURN(const double loss, model_->TakeLoss());
    // The model has divided each micro-batch's loss by its tokens.
    return LossSum{.sum = loss * static_cast<double>(tokens()),
                   .targets = std::exchange(targets_seen_, 0)};
  }

  absl::StatusOr<HeldOutLoss> MeasureHeldOut(const float* parameters,
                                             int64_t max_sequences, int rank,
                                             int ranks) override {
    return SumHeldOutLoss(
        ValidationSet(dataset_.get(), max_sequences),
        {.batch = micro_batch_size_, .rank = rank, .ranks = ranks},
        [&](absl::Span<const int32_t> tokens,
            absl::Span<const int32_t> targets) {
          return model_->Loss(parameters, tokens, targets);
        });
  }

  uint64_t tokens() const override { return tokens_.size(); }

 private:
  const int64_t micro_batch_size_;
  const std::shared_ptr<const Dataset> dataset_;
  const Sampler sampler_;
  const std::unique_ptr<Transformer> model_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> targets_;
  // Counts the targets since the last TakeLoss.
  int64_t targets_seen_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GradientSource>> MakeTransformerGradients(
    const v1::RunConfig& config, std::shared_ptr<const Dataset> dataset,
    uint32_t shard, uint32_t data_order, Ops* ops) {
  const v1::TrainingConfig& training = config.training();
  ASSIGN_OR_RETURN(
      Sampler sampler,
      Sampler::Create(dataset.get(), config.seed(), shard, data_order));
  ASSIGN_OR_RETURN(
      std::unique_ptr<Transformer> model,
      Transformer::Create(
          config.model(),
          {.micro_batch = training.micro_batch_size(),
           .recompute_activations = training.recompute_activations(),
           .document_end = DocumentEnd(config.data())},
          ops));
  LOG(INFO) << model->layout().size << " parameters, "
            << (model->activation_bytes() >> 20) << " MiB of activations, "
            << dataset->corpus.size() << " tokens of data, "
            << sampler.epoch_windows() << " training sequences in this shard";
  return std::make_unique<TransformerGradients>(
      config, std::move(dataset), std::move(sampler), std::move(model));
}

}  // namespace causeway
