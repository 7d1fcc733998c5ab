// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/outer_steps.h"

#include <memory>
#include <utility>

#include "common/duration_histogram.h"
#include "common/os/file.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "common/trace.h"
#include "glog/logging.h"
#include "outer_optimizer/merge.h"
#include "quantization/codec.h"
#include "quantization/codec_config.h"
#include "server/footprint.h"
#include "server/fragment_merge.h"
#include "server/rules/commit_sequence.h"

namespace causeway {
namespace {

// Data parallel training sends and receives every gradient once per step, at
// 16 bits a value.
constexpr double kDataParallelBytesPerValue = 4;

// Waking the thread that writes contributions takes longer than writing fewer
// bytes with the merge.
constexpr uint64_t kLeastPrepared = 1 << 10;

std::vector<OuterStepOptions> StepOptions(const v1::RunConfig& config,
                                          const v1::FragmentPlan& plan) {
  std::vector<OuterStepOptions> options;
  for (const v1::Fragment& fragment : plan.fragments()) {
    options.push_back(MakeOuterStepOptions(config, fragment));
  }
  return options;
}

// Returns the bytes of the largest fragment's versions that are being made, and
// one more that was being read, with their updates and merged gradients.
uint64_t IdleMergeBytes(const v1::RunConfig& config,
                        const v1::FragmentPlan& plan) {
  const double values = LargestFragments(plan, 1);
  const double state = StateBytesPerValue(config) * values;
  const auto largest = static_cast<uint64_t>(values);
  const uint64_t version =
      static_cast<uint64_t>(state) +
      MaxEncodedBytes(DownlinkSpec(config.synchronization()), largest);
  const auto steps = static_cast<uint64_t>(
      OuterStepsAtOnce(static_cast<size_t>(plan.fragments_size())));
  return (steps + 1) * version + steps * sizeof(float) * largest;
}

}  // namespace

struct OuterSteps::MadeVersion {
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

OuterSteps::OuterSteps(Options options, Stores stores)
    : options_(std::move(options)),
      stores_(stores),
      step_options_(StepOptions(options_.config, options_.plan)),
      merge_pool_(options_.threads),
      memory_(IdleMergeBytes(options_.config, options_.plan),
              options_.memory_dir) {}

void OuterSteps::Start(Rules rules) {
  rules_ = std::move(rules);
  for (size_t i = 0; i < OuterStepsAtOnce(stores_.heads.size()); ++i) {
    threads_.emplace_back([this] {
      while (const auto closed = AwaitNext(&OuterSteps::closed_)) {
        Execute(*closed);
      }
    });
  }
  threads_.emplace_back([this] {
    while (const auto header = AwaitNext(&OuterSteps::verified_)) {
      WritePrepared(*header);
    }
  });
}

void OuterSteps::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

template <typename Work>
std::optional<Work> OuterSteps::AwaitNext(std::deque<Work> OuterSteps::*queue) {
  absl::MutexLock lock(&mu_);
  std::deque<Work>& waiting = this->*queue;
  const auto due = [&] {
    mu_.AssertReaderHeld();
    return stopping_ || !waiting.empty();
  };
  mu_.Await(absl::Condition(&due));
  if (stopping_) return std::nullopt;
  Work next = std::move(waiting.front());
  waiting.pop_front();
  return next;
}

void OuterSteps::Prepare(const v1::ContributionHeader& header,
                         absl::FunctionRef<uint32_t()> ready) {
  const uint64_t bytes = header.object().encoded_bytes();
  const int fragment = static_cast<int>(header.fragment());
  // The encodings are not needed if the gradient is recorded.
  if (bytes < kLeastPrepared ||
      RecordsGradient(
          options_.config.storage(), static_cast<double>(bytes) * ready(),
          static_cast<double>(options_.plan.fragments(fragment).size()))) {
    return;
  }
  absl::MutexLock lock(&mu_);
  verified_.push_back(header);
}

void OuterSteps::WritePrepared(const v1::ContributionHeader& header) {
  const uint32_t fragment = header.fragment();
  if (stores_.heads.Newest(fragment)->contents().head.version() !=
      header.base_version()) {
    return;
  }
  const TraceSpan span("prepare", fragment);
  const absl::StatusOr<StagedEncoding> staged =
      stores_.staging.Get(KeyOf(header));
  if (!staged.ok()) return;
  stores_.state.merges().Prepare(header, options_.config, staged->bytes);
}

void OuterSteps::Execute(const ClosedRound& closed) {
  const absl::Time begin = options_.now();
  absl::StatusOr<OuterStepOutcome> outcome = MakeVersion(closed);
  if (outcome.ok()) {
    outcome->duration = options_.now() - begin;
    // Free memory before islands learn of the version and send contributions.
    stores_.staging.DiscardBefore(closed.fragment, outcome->head.version());
    const auto size = static_cast<double>(
        options_.plan.fragments(static_cast<int>(closed.fragment)).size());
    absl::MutexLock lock(&mu_);
    AddTo(outcome->duration, durations_);
    for (const v1::ContributionHeader& header : closed.contributions) {
      merged_step_values_ += static_cast<double>(header.inner_steps()) * size;
    }
  }
  const TraceSpan span("notify", closed.fragment);
  rules_.ended(closed, outcome);
}

void OuterSteps::Describe(v1::RunStatus& status) const {
  absl::MutexLock lock(&mu_);
  // Months of a very large run may have more bytes than 64 bits can count.
  status.set_bytes_data_parallel(static_cast<uint64_t>(
      std::min(merged_step_values_ * kDataParallelBytesPerValue, 0x1p63)));
  status.set_outer_step_seconds(MeanSeconds(durations_));
  *status.mutable_outer_steps() = durations_;
  *status.mutable_commits() = commits_;
}

absl::StatusOr<OuterSteps::MadeVersion> OuterSteps::Merge(
    const ClosedRound& closed) {
  const absl::Time begin = options_.now();
  const v1::RunConfig& config = options_.config;
  std::vector<Effort> efforts;
  std::vector<StagedEncoding> encodings;
  for (const v1::ContributionHeader& header : closed.contributions) {
    efforts.push_back(
        {.tokens = header.tokens(), .inner_steps = header.inner_steps()});
    ASSIGN_OR_RETURN(encodings.emplace_back(),
                     stores_.staging.Get(KeyOf(header)));
  }
  std::vector<float> shares =
      MergeShares(config.outer_optimizer().weighting(), efforts);
  std::vector<MergeInput> inputs;
  std::vector<absl::string_view> recorded;
  double encoded_bytes = 0;
  for (size_t i = 0; i < encodings.size(); ++i) {
    inputs.push_back({.spec = UplinkSpec(config.synchronization()),
                      .encoded = encodings[i].bytes,
                      .share = shares[i],
                      .norm = closed.norms[i],
                      .codes = encodings[i].codes});
    recorded.push_back(encodings[i].bytes);
    encoded_bytes += static_cast<double>(encodings[i].bytes.size());
  }
  const std::shared_ptr<const StoredFragment> before =
      stores_.heads.Newest(closed.fragment);
  const bool with_gradient =
      RecordsGradient(config.storage(), encoded_bytes,
                      static_cast<double>(before->contents().theta.size()));
  absl::MutexLock turn(&merge_mu_);
  const TraceSpan span("outer step", closed.fragment);
  ASSIGN_OR_RETURN(
      MergedFragment merged,
      MergeFragment(step_options_[closed.fragment], before->contents(), inputs,
                    with_gradient, memory_, merge_pool_));
  if (with_gradient) recorded = {merged.gradient};
  return MadeVersion{.begin = begin,
                     .merged = std::move(merged),
                     .shares = std::move(shares),
                     .recorded = std::move(recorded),
                     .encodings = std::move(encodings)};
}

absl::StatusOr<OuterStepOutcome> OuterSteps::MakeVersion(
    const ClosedRound& closed) {
  using Step = CommitSequence::Step;
  ASSIGN_OR_RETURN(MadeVersion made, Merge(closed));
  CommitSequence sequence;
  const auto take = [&]() -> absl::Status {
    switch (sequence.next()) {
      case Step::kRecord:
        return WriteMerge(closed, made);
      case Step::kCommit:
        return WriteCommit(closed, made);
      case Step::kDoubt:
        return rules_.await_outcome(closed, sequence.status());
      case Step::kReplicate: {
        const TraceSpan span("replicate", closed.fragment);
        RETURN_IF_ERROR(stores_.feed.AwaitDurable(
            stores_.state.log().Position().index(),
            options_.config.storage().sync_replicas()));
        absl::MutexLock lock(&mu_);
        AddTo(options_.now() - made.commit.committed_at, commits_);
        return absl::OkStatus();
      }
      case Step::kInstall:
        for (const CoordinatorEvent& event : made.batch.events) {
          LOG(INFO) << Printable(event.text);
        }
        stores_.heads.Install(
            std::move(made.merged.after), std::move(made.merged.update),
            {.bytes = made.record_bytes, .duration = made.merged.duration});
        stores_.feed.Published();
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

absl::Status OuterSteps::WriteMerge(const ClosedRound& closed,
                                    MadeVersion& made) {
  const TraceSpan span("store", closed.fragment);
  // Followers write the record and make the outer step while the disk is busy
  // here.
  const auto announce = [&](MappedFile record) {
    stores_.feed.Announce(
        made.merged.after.contents().head,
        std::make_shared<const MappedFile>(std::move(record)));
  };
  ASSIGN_OR_RETURN(made.record_bytes,
                   stores_.state.merges().Write(
                       MakeMergeRecord(made.merged, closed.contributions),
                       options_.config, made.recorded, announce));
  return absl::OkStatus();
}

absl::Status OuterSteps::WriteCommit(const ClosedRound& closed,
                                     MadeVersion& made) {
  const TraceSpan span("commit", closed.fragment);
  const OuterStepSummary& summary = made.merged.summary;
  CommitRecord& commit = made.commit;
  commit.head = made.merged.after.contents().head;
  commit.update_file = FragmentStore::UpdatePath(commit.head);
  commit.merged_norm = summary.gradient_norm;
  commit.committed_at = options_.now();
  commit.participation = closed.participation;
  made.outcome = {.head = commit.head,
                  .merged_norm = commit.merged_norm,
                  .similarity = summary.similarity,
                  .duration = commit.committed_at - made.begin};
  ASSIGN_OR_RETURN(made.batch, rules_.begin_commit(closed, made.outcome,
                                                   made.shares, commit));
  return rules_.write(made.batch);
}

}  // namespace causeway
