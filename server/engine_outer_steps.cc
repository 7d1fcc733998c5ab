// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Engine that makes outer steps, on the merge threads.
#include <memory>
#include <optional>
#include <utility>

#include "common/duration_histogram.h"
#include "common/file.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "common/trace.h"
#include "glog/logging.h"
#include "outer_optimizer/merge.h"
#include "quantization/codec_config.h"
#include "server/engine.h"
#include "server/footprint.h"

namespace causeway {

struct Engine::MadeVersion {
  absl::Time begin;
  MergedFragment merged;
  std::vector<float> shares;
  // The contents of the merge's record: the contributions' encodings, which
  // live as long as `encodings`, or the merged gradient.
  std::vector<absl::string_view> recorded;
  std::vector<StagedEncoding> encodings;
  uint64_t record_bytes = 0;
  CommitRecord commit;
  LogBatch batch;
  OuterStepOutcome outcome;
};

void Engine::OuterStepLoop() {
  while (const auto order = AwaitNext(&Engine::orders_)) ExecuteOrder(*order);
}

void Engine::ExecuteOrder(const OuterStepOrder& order) {
  const absl::Time begin = options_.now();
  absl::StatusOr<OuterStepOutcome> outcome = MakeVersion(order);
  const absl::Time end = options_.now();
  // Free memory before islands learn of the version and send contributions.
  if (outcome.ok()) {
    staging_.DiscardBefore(order.fragment, outcome->head.version());
  }
  const TraceSpan span("notify", order.fragment);
  const absl::Status told = Handle([&](Effects& effects) {
    mu_.AssertHeld();
    if (!outcome.ok()) {
      coordinator_.OuterStepFailed(order, outcome.status(), end, effects);
      return absl::OkStatus();
    }
    outcome->duration = end - begin;
    AddTo(outcome->duration, outer_steps_);
    const double size = static_cast<double>(FragmentSize(order.fragment));
    for (const v1::ContributionHeader& header : order.contributions) {
      merged_step_values_ += static_cast<double>(header.inner_steps()) * size;
    }
    coordinator_.OuterStepCommitted(order, *outcome, end, effects);
    return absl::OkStatus();
  });
  LOG_IF(ERROR, !told.ok()) << told;
}

absl::StatusOr<StagedEncoding> Engine::EncodingOf(const ContributionKey& key) {
  {
    absl::MutexLock lock(&mu_);
    const auto admitted = admitted_.find(key);
    if (admitted != admitted_.end()) return admitted->second;
  }
  return staging_.Get(key);
}

absl::StatusOr<Engine::MadeVersion> Engine::Merge(const OuterStepOrder& order) {
  const absl::Time begin = options_.now();
  const v1::RunConfig& config = options_.config;
  std::vector<Effort> efforts;
  std::vector<StagedEncoding> encodings;
  for (const v1::ContributionHeader& header : order.contributions) {
    efforts.push_back(
        {.tokens = header.tokens(), .inner_steps = header.inner_steps()});
    ASSIGN_OR_RETURN(encodings.emplace_back(), EncodingOf(KeyOf(header)));
  }
  ASSIGN_OR_RETURN(std::vector<float> shares,
                   MergeShares(config.outer_optimizer().weighting(), efforts));
  std::vector<MergeInput> inputs;
  std::vector<absl::string_view> recorded;
  double encoded_bytes = 0;
  for (size_t i = 0; i < encodings.size(); ++i) {
    inputs.push_back({.spec = UplinkSpec(config.synchronization()),
                      .encoded = encodings[i].bytes,
                      .share = shares[i],
                      .norm = order.norms[i]});
    recorded.push_back(encodings[i].bytes);
    encoded_bytes += static_cast<double>(encodings[i].bytes.size());
  }
  const std::shared_ptr<const StoredFragment> before =
      fragment_heads_->Newest(order.fragment);
  const bool with_gradient =
      RecordsGradient(config.storage(), encoded_bytes,
                      static_cast<double>(before->contents().theta.size()));
  absl::MutexLock turn(&merge_mu_);
  const TraceSpan span("outer step", order.fragment);
  ASSIGN_OR_RETURN(
      MergedFragment merged,
      MergeFragment(step_options_[order.fragment], before->contents(), inputs,
                    with_gradient, merge_memory_, merge_pool_));
  if (with_gradient) recorded = {merged.gradient};
  return MadeVersion{.begin = begin,
                     .merged = std::move(merged),
                     .shares = std::move(shares),
                     .recorded = std::move(recorded),
                     .encodings = std::move(encodings)};
}

absl::StatusOr<OuterStepOutcome> Engine::MakeVersion(
    const OuterStepOrder& order) {
  using Step = CommitSequence::Step;
  ASSIGN_OR_RETURN(MadeVersion made, Merge(order));
  CommitSequence sequence;
  const auto take = [&]() -> absl::Status {
    switch (sequence.next()) {
      case Step::kRecord:
        return WriteMerge(order, made);
      case Step::kCommit:
        return WriteCommit(order, made);
      case Step::kDoubt:
        return AwaitOutcome(order, sequence.status());
      case Step::kReplicate: {
        const TraceSpan span("replicate", order.fragment);
        RETURN_IF_ERROR(
            feed_.AwaitDurable(state_->log().Position().index(),
                               options_.config.storage().sync_replicas()));
        absl::MutexLock lock(&mu_);
        AddTo(options_.now() - made.commit.committed_at, commits_);
        return absl::OkStatus();
      }
      case Step::kInstall:
        for (const EventRecord& event : made.batch.events) {
          LOG(INFO) << Printable(event.text);
        }
        fragment_heads_->Install(std::move(made.merged.after),
                                 made.record_bytes);
        feed_.Published();
        return absl::OkStatus();
      case Step::kEnd:
        break;
    }
    return absl::OkStatus();
  };
  while (sequence.next() != Step::kEnd) sequence.Done(take());
  RETURN_IF_ERROR(sequence.status());
  return made.outcome;
}

absl::Status Engine::WriteMerge(const OuterStepOrder& order,
                                MadeVersion& made) {
  const TraceSpan span("store", order.fragment);
  ASSIGN_OR_RETURN(
      made.commit.update_file,
      WriteUpdateOf(state_->fragments(), step_options_[order.fragment].downlink,
                    made.merged));
  // Followers write the record and make the outer step while the disk is busy
  // here.
  const auto announce = [&](MappedFile record) {
    feed_.Announce(made.merged.after.contents().head,
                   std::make_shared<const MappedFile>(std::move(record)));
  };
  ASSIGN_OR_RETURN(
      made.record_bytes,
      state_->merges().Write(MakeMergeRecord(made.merged, order.contributions),
                             options_.config, made.recorded, announce));
  return absl::OkStatus();
}

absl::Status Engine::WriteCommit(const OuterStepOrder& order,
                                 MadeVersion& made) {
  const TraceSpan span("commit", order.fragment);
  const OuterStepSummary& summary = made.merged.summary;
  CommitRecord& commit = made.commit;
  commit.head = made.merged.after.contents().head;
  commit.merged_norm = summary.gradient_norm;
  commit.committed_at = options_.now();
  commit.participation = order.participation;
  made.outcome = {.head = commit.head,
                  .merged_norm = commit.merged_norm,
                  .similarity = summary.similarity,
                  .duration = commit.committed_at - made.begin};
  {
    absl::MutexLock lock(&mu_);
    ASSIGN_OR_RETURN(made.batch,
                     journal_.BeginCommit(coordinator_, order, made.outcome,
                                          made.shares, commit));
  }
  return state_->log().Apply(made.batch);
}

absl::Status Engine::AwaitOutcome(const OuterStepOrder& order,
                                  const absl::Status& unknown) {
  // The event about the doubt is written once the disk allows.
  Handle([&](Effects& effects) {
    mu_.AssertHeld();
    coordinator_.OuterStepInDoubt(order, unknown, effects);
    return absl::OkStatus();
  }).IgnoreError();
  std::optional<absl::Status> outcome;
  const auto known = [&] {
    mu_.AssertReaderHeld();
    outcome = journal_.OutcomeOfCommit(order.fragment, unknown);
    return stopping_ || outcome.has_value();
  };
  absl::MutexLock lock(&mu_, absl::Condition(&known));
  return outcome.value_or(unknown);
}

}  // namespace causeway
