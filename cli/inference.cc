// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/inference.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/model/ops_cpu.h"

namespace causeway {
namespace {

constexpr uint64_t kMaxThreads = 1024;

}  // namespace

absl::StatusOr<std::unique_ptr<Inference>> Inference::Create(
    const TrainedModel& model, int64_t batch, uint64_t threads) {
  if (threads < 1 || threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", threads, "; allowed: 1 to ", kMaxThreads));
  }
  // The constructor is private, so make_unique cannot call it.
  std::unique_ptr<Inference> inference(new Inference());
  inference->ops_ = MakeCpuOps(static_cast<int>(threads));
  Ops* const ops = inference->ops_.get();
  ASSIGN_OR_RETURN(inference->parameters_,
                   DeviceArray<float>::Create(ops, model.layout.size));
  ops->CopyToDevice(model.parameters.data(),
                    inference->parameters_.size_bytes(),
                    inference->parameters_.data());
  ASSIGN_OR_RETURN(
      inference->transformer_,
      Transformer::Create(model.config.model(),
                          {.micro_batch = batch, .training = false}, ops));
  inference->logits_.resize(
      static_cast<size_t>(inference->transformer_->vocab_size()));
  return inference;
}

absl::StatusOr<double> Inference::Loss(absl::Span<const int32_t> tokens,
                                       absl::Span<const int32_t> targets) {
  return transformer_->Loss(parameters_.data(), tokens, targets);
}

absl::StatusOr<absl::Span<const float>> Inference::NextTokenLogits(
    absl::Span<const int32_t> prefix) {
  RETURN_IF_ERROR(transformer_->NextTokenLogits(parameters_.data(), prefix,
                                                absl::MakeSpan(logits_)));
  return absl::MakeConstSpan(logits_);
}

}  // namespace causeway
