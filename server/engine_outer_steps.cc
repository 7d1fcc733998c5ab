// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Engine that makes outer steps, on the merge thread.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/duration_histogram.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "outer_optimizer/merge.h"
#include "quantization/codec.h"
#include "quantization/codec_config.h"
#include "quantization/encoded_object.h"
#include "server/engine.h"

namespace causeway {

absl::Status Engine::AwaitOutcome(const OuterStepOrder& order,
                                  const absl::Status& unknown) {
  Effects effects;
  {
    absl::MutexLock lock(&mu_);
    coordinator_.OuterStepInDoubt(order, unknown, effects);
    // The event says that the outcome is in doubt; it is written once the disk
    // allows.
    Persist(effects).IgnoreError();
  }
  CarryOut(effects);
  absl::MutexLock lock(&mu_);
  const auto known = [this] {
    mu_.AssertReaderHeld();
    return stopping_ || commit_found_.has_value();
  };
  mu_.Await(absl::Condition(&known));
  if (!commit_found_.has_value()) return unknown;
  if (*commit_found_) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the commit was not written: ", unknown.message()));
}

void Engine::OuterStepLoop() {
  while (true) {
    OuterStepOrder order;
    {
      absl::MutexLock lock(&mu_);
      const auto due = [this] {
        mu_.AssertReaderHeld();
        return stopping_ || !orders_.empty();
      };
      mu_.Await(absl::Condition(&due));
      if (stopping_) return;
      order = std::move(orders_.front());
      orders_.pop_front();
    }
    ExecuteOrder(order);
  }
}

void Engine::ExecuteOrder(const OuterStepOrder& order) {
  const absl::Time begin = options_.now();
  absl::StatusOr<OuterStepOutcome> outcome = Merge(order);
  const absl::Time end = options_.now();
  Effects effects;
  {
    absl::MutexLock lock(&mu_);
    if (outcome.ok()) {
      outcome->duration = end - begin;
      AddTo(outcome->duration, outer_steps_);
      const double size = static_cast<double>(FragmentSize(order.fragment));
      for (const v1::ContributionHeader& header : order.contributions) {
        merged_step_values_ += static_cast<double>(header.inner_steps()) * size;
      }
      coordinator_.OuterStepCommitted(order, *outcome, end, effects);
    } else {
      coordinator_.OuterStepFailed(order, outcome.status(), end, effects);
    }
    const absl::Status persisted = Persist(effects);
    LOG_IF(ERROR, !persisted.ok())
        << "cannot write the commit log: " << persisted;
  }
  if (outcome.ok()) {
    staging_.DiscardBefore(order.fragment, outcome->head.version());
  }
  CarryOut(effects);
}

absl::StatusOr<StagedEncoding> Engine::EncodingOf(const ContributionKey& key) {
  {
    absl::MutexLock lock(&mu_);
    const auto admitted = admitted_.find(key);
    if (admitted != admitted_.end()) return admitted->second;
  }
  return staging_.Get(key);
}

LogBatch Engine::BatchOf(const OuterStepOrder& order,
                         const CommitRecord& commit,
                         absl::Span<const float> shares,
                         const OuterStepOutcome& outcome) {
  LogBatch batch;
  batch.commits.push_back(commit);
  batch.admitted = order.admitted;
  for (size_t i = 0; i < order.contributions.size(); ++i) {
    const v1::ContributionHeader& header = order.contributions[i];
    ContributionRecord& record = batch.contributions.emplace_back(
        RecordOf(header,
                 header.partial() ? ContributionFate::kPartial
                                  : ContributionFate::kMerged,
                 commit.committed_at));
    record.weight = shares[i];
    record.norm = order.norms[i];
  }
  absl::MutexLock lock(&mu_);
  for (CoordinatorEvent& event : coordinator_.CommitEvents(order, outcome)) {
    batch.events.push_back({.time = commit.committed_at,
                            .kind = std::move(event.kind),
                            .text = std::move(event.text)});
  }
  return batch;
}

absl::StatusOr<OuterStepOutcome> Engine::Merge(const OuterStepOrder& order) {
  const absl::Time begin = options_.now();
  const v1::RunConfig& config = options_.config;
  const v1::SynchronizationConfig& sync = config.synchronization();
  ASSIGN_OR_RETURN(const StoredFragment stored,
                   state_->ReadHead(run_id_, order.fragment));
  const FragmentContents& before = stored.contents();

  std::vector<Effort> efforts;
  std::vector<StagedEncoding> encodings;
  for (const v1::ContributionHeader& header : order.contributions) {
    efforts.push_back(
        {.tokens = header.tokens(), .inner_steps = header.inner_steps()});
    ASSIGN_OR_RETURN(encodings.emplace_back(), EncodingOf(KeyOf(header)));
  }
  ASSIGN_OR_RETURN(const std::vector<float> shares,
                   MergeShares(config.outer_optimizer().weighting(), efforts));
  std::vector<MergeInput> inputs;
  for (size_t i = 0; i < encodings.size(); ++i) {
    inputs.push_back({.spec = UplinkSpec(sync),
                      .encoded = encodings[i].bytes,
                      .share = shares[i],
                      .norm = order.norms[i]});
  }
  std::optional<double> similarity;
  ASSIGN_OR_RETURN(CommitRecord commit,
                   StepAndStore(before, inputs, similarity));
  commit.participation = order.participation;
  if (config.storage().record_contributions()) {
    std::vector<absl::string_view> merged;
    for (const StagedEncoding& encoding : encodings) {
      merged.push_back(encoding.bytes);
    }
    RETURN_IF_ERROR(state_->RecordMerge(run_id_, config, commit,
                                        order.contributions, merged));
  }
  const OuterStepOutcome outcome{.head = commit.head,
                                 .merged_norm = commit.merged_norm,
                                 .similarity = similarity,
                                 .duration = commit.committed_at - begin};
  LogBatch batch = BatchOf(order, commit, shares, outcome);
  {
    absl::MutexLock lock(&mu_);
    commit_found_.reset();
  }
  const absl::Time commit_began = options_.now();
  absl::Status committed = state_->log().Apply(batch);
  if (absl::IsUnknown(committed)) committed = AwaitOutcome(order, committed);
  RETURN_IF_ERROR(committed);
  {
    absl::MutexLock lock(&mu_);
    AddTo(options_.now() - commit_began, commits_);
  }
  for (const EventRecord& event : batch.events)
    LOG(INFO) << Printable(event.text);

  // Old files only take space; those that cannot be removed now are removed
  // later.
  const auto removed =
      state_->RemoveUnreferenced(run_id_, config.storage().versions_kept(),
                                 config.storage().update_history());
  LOG_IF(WARNING, !removed.ok())
      << "cannot remove old versions: " << removed.status();
  return outcome;
}

absl::StatusOr<CommitRecord> Engine::StepAndStore(
    const FragmentContents& before, absl::Span<const MergeInput> inputs,
    std::optional<double>& similarity) {
  const FragmentStore& store = state_->fragments();
  const OuterStepOptions& options = step_options_[before.head.fragment()];
  FragmentContents like = before;
  like.head.set_version(before.head.version() + 1);
  // Only the size matters. Operators turn the penalty's clip on and off.
  like.merged_norms = absl::MakeConstSpan(static_cast<const float*>(nullptr),
                                          options.tensor_merge.merged_norms());
  // The step writes straight into the new version's file.
  ASSIGN_OR_RETURN(NewFragment after, store.BeginFragment(like));
  std::string encoding(MaxEncodedBytes(options.downlink, before.theta.size()),
                       '\0');
  ASSIGN_OR_RETURN(const OuterStepSummary summary,
                   RunOuterStep(options,
                                {.version = before.head.version(),
                                 .theta = before.theta,
                                 .momentum = before.momentum,
                                 .residual = before.residual,
                                 .gradient_sum = before.gradient_sum,
                                 .merged_norms = before.merged_norms},
                                inputs,
                                {.theta = after.theta,
                                 .momentum = after.momentum,
                                 .residual = after.residual,
                                 .gradient_sum = after.gradient_sum,
                                 .merged_norms = after.merged_norms,
                                 .update = absl::MakeSpan(encoding)},
                                merge_pool_));
  similarity = summary.similarity;
  CommitRecord commit{.merged_norm = summary.gradient_norm};
  ASSIGN_OR_RETURN(commit.file,
                   store.CommitFragment(std::move(after), commit.head));
  UpdateContents update{
      .run_id = run_id_,
      .head = commit.head,
      .object = DescribeOpen(options.downlink, before.theta.size()),
      .encoding = absl::string_view(encoding.data(), summary.update_bytes)};
  ASSIGN_OR_RETURN(commit.update_file, store.WriteUpdate(update));
  commit.committed_at = options_.now();
  return commit;
}

}  // namespace causeway
