// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/trained_model.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "absl/types/span.h"
#include "common/config/run_config.h"
#include "common/os/thread_pool.h"
#include "common/status_macros.h"
#include "outer_optimizer/fragment_plan.h"
#include "server/buffer_pool.h"
#include "server/fragment_merge.h"
#include "server/storage/state_directory.h"

namespace causeway {
namespace {

constexpr uint64_t kMaxThreads = 1024;

}  // namespace

std::vector<uint64_t> StoredModel::Versions() const {
  std::vector<uint64_t> versions;
  for (const StoredFragment& fragment : fragments) {
    versions.push_back(fragment.contents().head.version());
  }
  return versions;
}

absl::StatusOr<StoredModel> OpenStoredModel(const std::string& state_dir) {
  ASSIGN_OR_RETURN(const std::unique_ptr<StateDirectory> state,
                   StateDirectory::OpenReadOnly(state_dir));
  StoredModel model;
  ASSIGN_OR_RETURN(model.run, state->log().LoadRun());
  ASSIGN_OR_RETURN(LeaderRecord leader, state->log().LoadLeader());
  model.run.config = std::move(leader.config);
  ASSIGN_OR_RETURN(model.data_digest, state->log().LoadDataDigest());
  ThreadPool pool(1);
  BufferPool memory(0);
  for (const v1::Fragment& fragment : model.run.plan.fragments()) {
    ASSIGN_OR_RETURN(
        RestoredFragment restored,
        RestoreHead(*state, model.run, fragment.id(), memory, pool));
    StoredFragment& stored = restored.head;
    if (stored.contents().theta.size() != fragment.size()) {
      return absl::DataLossError(absl::Substitute(
          "$0: fragment $1 has $2 values, its plan $3", state_dir,
          fragment.id(), stored.contents().theta.size(), fragment.size()));
    }
    model.fragments.push_back(std::move(stored));
  }
  return model;
}

absl::StatusOr<TrainedModel> LoadTrainedModel(const std::string& state_dir) {
  ASSIGN_OR_RETURN(const StoredModel stored, OpenStoredModel(state_dir));
  if (stored.run.config.has_tensors()) {
    return absl::FailedPreconditionError(absl::Substitute(
        "run $0 is defined by its tensors, not by a model that Causeway can "
        "compute with; `causeway export $1` writes them",
        stored.run.run_id, state_dir));
  }
  TrainedModel model{.run_id = stored.run.run_id,
                     .config = stored.run.config,
                     .layout = MakeModelLayout(stored.run.config.model()),
                     .versions = stored.Versions(),
                     .data_digest = stored.data_digest};
  ASSIGN_OR_RETURN(const FragmentMap map,
                   FragmentMap::Create(model.layout, stored.run.plan));
  model.parameters.resize(map.model_size());
  for (uint32_t fragment = 0; fragment < map.fragments(); ++fragment) {
    map.Scatter(fragment, stored.fragments[fragment].contents().theta,
                absl::MakeSpan(model.parameters));
  }
  return model;
}

std::string DescribeVersions(absl::string_view run_id,
                             absl::Span<const uint64_t> versions) {
  const auto [oldest, newest] =
      std::minmax_element(versions.begin(), versions.end());
  return *oldest == *newest
             ? absl::StrCat("run ", run_id, " at version ", *oldest)
             : absl::StrCat("run ", run_id, " at versions ", *oldest, " to ",
                            *newest);
}

absl::Status CheckThreads(absl::string_view text) {
  uint64_t threads = 0;
  if (absl::SimpleAtoi(text, &threads) && threads <= kMaxThreads) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("allowed: 0 to ", kMaxThreads));
}

absl::StatusOr<std::unique_ptr<Inference>> Inference::Create(
    const TrainedModel& model, int64_t batch, const Device& device,
    uint64_t threads) {
  if (threads < 1 || threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", threads, "; allowed: 1 to ", kMaxThreads));
  }
  // The constructor is private, so make_unique cannot call it.
  std::unique_ptr<Inference> inference(new Inference());
  RETURN_IF_ERROR(CheckDeviceModel(device, model.config.model()));
  ASSIGN_OR_RETURN(inference->ops_,
                   MakeDeviceOps(device, static_cast<int>(threads)));
  Ops* const ops = inference->ops_.get();
  ASSIGN_OR_RETURN(inference->parameters_,
                   DeviceArray<float>::Create(ops, model.layout.size));
  ops->CopyToDevice(model.parameters.data(),
                    inference->parameters_.size_bytes(),
                    inference->parameters_.data());
  ASSIGN_OR_RETURN(
      inference->transformer_,
      Transformer::Create(model.config.model(),
                          {.micro_batch = batch,
                           .training = false,
                           .keep_prefix = batch == 1,
                           .document_end = DocumentEnd(model.config.data())},
                          ops));
  inference->logits_.resize(
      static_cast<size_t>(inference->transformer_->vocab_size()));
  return inference;
}

absl::StatusOr<absl::Span<const float>> Inference::NextTokenLogits(
    absl::Span<const int32_t> prefix) {
  RETURN_IF_ERROR(transformer_->NextTokenLogits(parameters_.data(), prefix,
                                                absl::MakeSpan(logits_)));
  return absl::MakeConstSpan(logits_);
}

}  // namespace causeway
