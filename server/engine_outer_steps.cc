// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Engine that makes outer steps, on the merge thread.
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/duration_histogram.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "common/trace.h"
#include "glog/logging.h"
#include "outer_optimizer/merge.h"
#include "quantization/codec_config.h"
#include "server/engine.h"
#include "server/footprint.h"

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
  while (const auto order = AwaitNext(&Engine::orders_)) ExecuteOrder(*order);
}

void Engine::ExecuteOrder(const OuterStepOrder& order) {
  const absl::Time begin = options_.now();
  absl::StatusOr<OuterStepOutcome> outcome = Merge(order);
  const absl::Time end = options_.now();
  // Islands that hear of the version find room for the next contributions.
  if (outcome.ok()) {
    staging_.DiscardBefore(order.fragment, outcome->head.version());
  }
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
  const TraceSpan span("notify", order.fragment);
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
  const uint32_t fragment = order.fragment;

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
  std::vector<absl::string_view> bytes;
  double encoded_bytes = 0;
  for (size_t i = 0; i < encodings.size(); ++i) {
    inputs.push_back({.spec = UplinkSpec(sync),
                      .encoded = encodings[i].bytes,
                      .share = shares[i],
                      .norm = order.norms[i]});
    bytes.push_back(encodings[i].bytes);
    encoded_bytes += static_cast<double>(encodings[i].bytes.size());
  }
  std::shared_ptr<const StoredFragment> before =
      fragment_heads_->Newest(fragment);
  const bool with_gradient =
      RecordsGradient(config.storage(), encoded_bytes,
                      static_cast<double>(before->contents().theta.size()));
  std::optional<TraceSpan> span;
  span.emplace("outer step", fragment);
  ASSIGN_OR_RETURN(
      MergedFragment merged,
      MergeFragment(step_options_[fragment], before->contents(), inputs,
                    with_gradient, merge_memory_, merge_pool_));
  if (with_gradient) bytes = {merged.gradient};
  before.reset();
  span.emplace("store", fragment);
  uint64_t record_bytes = 0;
  ASSIGN_OR_RETURN(CommitRecord commit,
                   WriteMerge(order, merged, bytes, record_bytes));
  span.emplace("commit", fragment);
  const OuterStepOutcome outcome{.head = commit.head,
                                 .merged_norm = commit.merged_norm,
                                 .similarity = merged.summary.similarity,
                                 .duration = commit.committed_at - begin};
  LogBatch batch = BatchOf(order, commit, shares, outcome);
  RETURN_IF_ERROR(Commit(order, batch));
  span.reset();
  for (const EventRecord& event : batch.events) {
    LOG(INFO) << Printable(event.text);
  }
  fragment_heads_->Install(std::move(merged.after), record_bytes);
  return outcome;
}

absl::StatusOr<CommitRecord> Engine::WriteMerge(
    const OuterStepOrder& order, const MergedFragment& merged,
    absl::Span<const absl::string_view> encodings, uint64_t& record_bytes) {
  CommitRecord commit{.head = merged.after.contents().head,
                      .merged_norm = merged.summary.gradient_norm,
                      .participation = order.participation};
  ASSIGN_OR_RETURN(
      commit.update_file,
      WriteUpdateOf(state_->fragments(), step_options_[order.fragment].downlink,
                    merged));
  ASSIGN_OR_RETURN(
      record_bytes,
      state_->merges().Write(MakeMergeRecord(merged, order.contributions),
                             options_.config, encodings));
  commit.committed_at = options_.now();
  return commit;
}

absl::Status Engine::Commit(const OuterStepOrder& order, LogBatch& batch) {
  {
    absl::MutexLock lock(&mu_);
    RETURN_IF_ERROR(coordinator_.CheckInOffice());
    commit_found_.reset();
  }
  const absl::Time began = options_.now();
  absl::Status committed = state_->log().Apply(batch);
  if (absl::IsUnknown(committed)) committed = AwaitOutcome(order, committed);
  RETURN_IF_ERROR(committed);
  feed_.AwaitDurable(state_->log().Position().index(),
                     options_.config.storage().sync_replicas());
  absl::MutexLock lock(&mu_);
  AddTo(options_.now() - began, commits_);
  return absl::OkStatus();
}

}  // namespace causeway
