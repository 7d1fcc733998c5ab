// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A simulated coordinator's use of its disk besides the events' batches:
// server/outer_steps.cc and server/fragment_heads.cc in virtual time.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "glog/logging.h"
#include "server/rules/fragment_files.h"
#include "tests/simulation/coordinator_host.h"

namespace causeway::simulation {
namespace {

// The records of a fragment after which a snapshot is due.
constexpr uint64_t kRecordsPerSnapshot = 2;

// The outer steps that may be under way at once.
constexpr size_t kOuterStepsAtOnce = 2;

}  // namespace

absl::Status CoordinatorHost::Restore(uint32_t fragment) {
  const uint32_t kept = scenario_->config.storage().versions_kept();
  const std::vector<CommitRecord>& commits = disk_->commits(fragment);
  const std::vector<SnapshotRecord> snapshots =
      disk_->Snapshots(fragment, kept);
  const bool damaged = scenario_->Has(kDamagedSnapshot) &&
                       snapshots.size() > 1 && world_->chance.OneIn(2);
  Version& restored = newest_.emplace_back();
  uint64_t& records = records_since_.emplace_back();
  const auto open = [&](const SnapshotRecord& snapshot) -> absl::Status {
    const Version* const file = disk_->FindSnapshot(snapshot.head);
    if (file == nullptr) return absl::NotFoundError("a snapshot is not there");
    if (damaged && &snapshot == &snapshots.front()) {
      return absl::DataLossError("the newest snapshot is damaged");
    }
    restored = *file;
    return absl::OkStatus();
  };
  const auto repeat = [&](uint64_t version) -> absl::Status {
    const MergeRecord* const record = disk_->FindRecord(fragment, version);
    if (record == nullptr) return absl::NotFoundError("a record is not there");
    restored = NextVersion(restored, record->intervals);
    ++records;
    return restored.head.digest() == commits[version].head.digest()
               ? absl::OkStatus()
               : absl::DataLossError("a record makes another version");
  };
  RETURN_IF_ERROR(
      RestoreVersion(snapshots, commits.back().head.version(), open, repeat));
  disk_->RemoveOldSnapshots(fragment, kept);
  return absl::OkStatus();
}

void CoordinatorHost::BeginOuterSteps() {
  while (steps_.size() < kOuterStepsAtOnce && !closed_.empty()) {
    const ClosedRound closed = std::move(closed_.front());
    closed_.pop_front();
    BeginOuterStep(closed);
  }
}

void CoordinatorHost::BeginOuterStep(const ClosedRound& closed) {
  const uint32_t fragment = closed.fragment;
  const auto [step, is_new] =
      steps_.emplace(fragment, OuterStep{.closed = closed});
  CHECK(is_new) << "two outer steps on fragment " << fragment;
  absl::StatusOr<MergeRecord> made = Merge(closed);
  if (IsOutOfRange()) {
    made = absl::OutOfRangeError("the result is not finite");
  }
  if (made.ok()) step->second.made = *std::move(made);
  const absl::Duration work = world_->chance.Between(
      absl::Milliseconds(20),
      world_->chance.OneIn(8) ? absl::Seconds(4) : absl::Milliseconds(300));
  world_->loop.After(work,
                     [this, fragment, life = life_, status = made.status()] {
                       if (life != life_) return;
                       if (!status.ok()) return EndOuterStep(fragment, status);
                       TakeStep(fragment);
                     });
}

absl::StatusOr<MergeRecord> CoordinatorHost::Merge(
    const ClosedRound& closed) const {
  MergeRecord record{.contributions = closed.contributions};
  for (const v1::ContributionHeader& header : closed.contributions) {
    ASSIGN_OR_RETURN(const StagedEncoding staged, staging_->Get(KeyOf(header)));
    record.intervals.push_back(DecodeIntervals(staged.bytes));
  }
  record.version = NextVersion(newest_[closed.fragment], record.intervals);
  return record;
}

void CoordinatorHost::TakeStep(uint32_t fragment) {
  using Step = CommitSequence::Step;
  const auto done = [this, fragment](const absl::Status& status) {
    StepDone(fragment, status);
  };
  const OuterStep& step = steps_.at(fragment);
  const ClosedRound& closed = step.closed;
  const Version& made = step.made.version;
  const absl::Status& status = step.sequence.status();
  switch (step.sequence.next()) {
    case Step::kRecord:
      return disk_->WriteRecord(step.made, done);
    case Step::kCommit: {
      const std::vector<float> shares(closed.contributions.size());
      const absl::StatusOr<LogBatch> batch =
          journal_.BeginCommit(*core_, closed, {.head = made.head}, shares,
                               {.head = made.head, .committed_at = now()});
      if (!batch.ok()) return done(batch.status());
      return disk_->Write(*batch, done);
    }
    case Step::kDoubt:
      return Handle([this, closed, status](Effects& effects) {
        core_->OuterStepInDoubt(closed, status, effects);
        return absl::OkStatus();
      });
    case Step::kReplicate:
      // There are no followers.
      return done(absl::OkStatus());
    case Step::kInstall:
      newest_[fragment] = made;
      ++records_since_[fragment];
      MakeSnapshot();
      return done(absl::OkStatus());
    case Step::kEnd:
      return EndOuterStep(fragment, status);
  }
}

void CoordinatorHost::StepDone(uint32_t fragment, const absl::Status& status) {
  steps_.at(fragment).sequence.Done(status);
  TakeStep(fragment);
}

void CoordinatorHost::EndOuterStep(uint32_t fragment,
                                   const absl::Status& status) {
  Handle([this, fragment, status](Effects& effects) {
    const OuterStep step = std::move(steps_.extract(fragment).mapped());
    const ClosedRound& closed = step.closed;
    const v1::FragmentHead& head = step.made.version.head;
    checker_->OuterStepEnds(fragment, status.ok(), now());
    if (status.ok()) {
      core_->OuterStepCommitted(closed, {.head = head}, now(), effects);
      staging_->DiscardBefore(closed.fragment, head.version());
    } else {
      core_->OuterStepFailed(closed, status, now(), effects);
    }
    if (absl::IsOutOfRange(status)) checker_->SetAside(closed, *core_, effects);
    return absl::OkStatus();
  });
}

void CoordinatorHost::Reconcile() {
  Handle<absl::Status>(
      [this](Effects& effects) {
        journal_.Reconciled(disk_->Reconcile(), effects);
        return absl::OkStatus();
      },
      [this](const absl::Status&) {
        std::map<uint32_t, absl::Status> outcomes;
        for (const auto& [fragment, step] : steps_) {
          if (step.sequence.next() != CommitSequence::Step::kDoubt) continue;
          const std::optional<absl::Status> outcome =
              journal_.OutcomeOfCommit(fragment, step.sequence.status());
          if (outcome.has_value()) outcomes[fragment] = *outcome;
        }
        for (const auto& [fragment, outcome] : outcomes) {
          StepDone(fragment, outcome);
        }
      });
}

void CoordinatorHost::MakeSnapshot() {
  uint32_t due = 0;
  for (uint32_t fragment = 1; fragment < records_since_.size(); ++fragment) {
    if (records_since_[fragment] > records_since_[due]) due = fragment;
  }
  const uint64_t records = records_since_[due];
  if (snapshotting_ || records < kRecordsPerSnapshot) return;
  snapshotting_ = true;
  const v1::FragmentHead head = newest_[due].head;
  const auto noted = [this, due, records](const absl::Status& status) {
    snapshotting_ = false;
    if (!status.ok()) return;
    records_since_[due] -= records;
    disk_->RemoveOldSnapshots(due, scenario_->config.storage().versions_kept());
    MakeSnapshot();
  };
  disk_->WriteSnapshot(newest_[due],
                       [this, head, noted](const absl::Status& written) {
                         if (!written.ok()) return noted(written);
                         Handle<absl::Status>(
                             [this, head](Effects&) {
                               journal_.AddSnapshot({.head = head});
                               return absl::OkStatus();
                             },
                             noted);
                       });
}

}  // namespace causeway::simulation
