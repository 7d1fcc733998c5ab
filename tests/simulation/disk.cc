// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/disk.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"
#include "server/rules/fragment_files.h"

namespace causeway::simulation {

Disk::Disk(const Scenario* scenario, World* world, Committed committed)
    : scenario_(scenario), world_(world), committed_(std::move(committed)) {
  for (const v1::Fragment& fragment : scenario->plan.fragments()) {
    const Version initial = InitialVersion(fragment.id());
    commits_.push_back({{.head = initial.head}});
    snapshots_[NameOf(initial.head)] = {.head = initial.head};
    snapshot_files_[NameOf(initial.head)] = initial;
  }
}

absl::Duration Disk::Latency() {
  Chance& chance = world_->chance;
  const bool slow = !healed_ && scenario_->Has(kSlowDisk) && chance.OneIn(8);
  return slow ? chance.Between(absl::Milliseconds(500), absl::Seconds(6))
              : chance.Between(absl::Milliseconds(1), absl::Milliseconds(8));
}

bool Disk::DrawFailure() {
  return !healed_ && scenario_->Has(kFailedWrite) && world_->chance.OneIn(12);
}

void Disk::Write(LogBatch batch, Done done) {
  under_way_.push_back(std::move(batch));
  busy_until_ = std::max(busy_until_, world_->loop.now()) + Latency();
  world_->loop.At(busy_until_, [this, life = life_, done = std::move(done)] {
    if (life != life_) return;
    const LogBatch batch = std::move(under_way_.front());
    under_way_.pop_front();
    done(Try(batch));
  });
}

void Disk::WriteFile(std::function<void()> apply, Done done) {
  const uint64_t file = files_begun_++;
  files_under_way_[file] = std::move(apply);
  world_->loop.After(
      Latency(), [this, life = life_, file, done = std::move(done)] {
        if (life != life_) return;
        const auto write = files_under_way_.extract(file);
        if (DrawFailure()) {
          world_->Trace("disk       a file cannot be written");
          return done(absl::ResourceExhaustedError("the disk is full"));
        }
        write.mapped()();
        done(absl::OkStatus());
      });
}

void Disk::WriteRecord(MergeRecord record, Done done) {
  WriteFile(
      [this, record = std::move(record)] {
        const FragmentVersion name = NameOf(record.version.head);
        std::vector<Interval>& update = updates_[name];
        update.clear();
        for (const std::vector<Interval>& intervals : record.intervals) {
          update.insert(update.end(), intervals.begin(), intervals.end());
        }
        records_[name] = record;
      },
      std::move(done));
}

void Disk::WriteSnapshot(Version snapshot, Done done) {
  WriteFile(
      [this, snapshot = std::move(snapshot)] {
        snapshot_files_[NameOf(snapshot.head)] = snapshot;
      },
      std::move(done));
}

void Disk::RemoveOldSnapshots(uint32_t fragment, uint64_t kept) {
  const std::vector<SnapshotRecord> snapshots = Snapshots(fragment, kept);
  snapshot_files_.erase(
      snapshot_files_.lower_bound({fragment, 0}),
      snapshot_files_.lower_bound(NameOf(snapshots.back().head)));
  records_.erase(
      records_.lower_bound({fragment, 0}),
      records_.upper_bound({fragment, LastUnneededRecord(snapshots)}));
}

absl::Status Disk::Try(const LogBatch& batch) {
  if (poisoned()) {
    return absl::FailedPreconditionError("an earlier write's outcome unknown");
  }
  for (const CommitRecord& commit : batch.commits) {
    if (commit.head.version() != commits_[commit.head.fragment()].size()) {
      return absl::FailedPreconditionError("not the next version");
    }
  }
  if (DrawFailure()) {
    world_->Trace("disk       a write fails, nothing is written");
    return absl::ResourceExhaustedError("the disk is full");
  }
  if (!healed_ && scenario_->Has(kUnknownWrite) && world_->chance.OneIn(25)) {
    world_->Trace("disk       a write fails, its outcome is unknown");
    unknown_ = batch;
    return absl::UnknownError("outcome unknown of a commit");
  }
  Apply(batch);
  return absl::OkStatus();
}

void Disk::Crash() {
  ++life_;
  busy_until_ = absl::InfinitePast();
  for (const auto& [file, apply] : files_under_way_) {
    if (world_->chance.OneIn(2)) apply();
  }
  files_under_way_.clear();
  if (unknown_.has_value()) {
    Reconcile();
  } else {
    for (const LogBatch& batch : under_way_) {
      if (!world_->chance.OneIn(2)) break;
      world_->Trace("disk       a write under way is there");
      Apply(batch);
    }
  }
  under_way_.clear();
}

DoubtfulWrite Disk::Reconcile() {
  DoubtfulWrite write = {.found = world_->chance.OneIn(2)};
  world_->Trace("disk       the write of unknown outcome is ",
                write.found ? "there" : "not there");
  if (!unknown_->commits.empty()) {
    write.fragment = unknown_->commits[0].head.fragment();
  }
  if (write.found) Apply(*unknown_);
  unknown_.reset();
  return write;
}

void Disk::Apply(const LogBatch& batch) {
  for (const Member& member : batch.members) {
    processes_[{member.island_id, member.incarnation}] = member.instance_id;
    Member& stored = members_[member.island_id];
    // Earlier incarnations are separate rows, which are never read.
    if (stored.incarnation > member.incarnation) continue;
    stored = member;
    // The commit log does not keep these.
    stored.progress.Clear();
    stored.last_heartbeat = absl::InfinitePast();
  }
  for (const AccountRecord& account : batch.accounts) {
    accounts_[account.key] = account;
    // The process is stored with the member.
    accounts_[account.key].process = 0;
  }
  for (const QuarantineEntry& entry : batch.quarantine) {
    QuarantineEntry& stored = quarantine_[entry.id];
    stored = entry;
    stored.in_round = false;
  }
  for (const uint64_t id : batch.admitted) {
    const auto found = quarantine_.find(id);
    if (found != quarantine_.end()) {
      found->second.state = v1::QuarantinedContribution::ADMITTED;
    }
  }
  if (batch.flags.has_value()) flags_ = *batch.flags;
  if (!batch.validations.empty()) validation_ = batch.validations.back();
  for (const ContributionRecord& record : batch.contributions) {
    if (record.fate == ContributionFate::kLate) continue;
    merged_[{record.fragment, record.base_version}].push_back(record);
  }
  for (const SnapshotRecord& snapshot : batch.snapshots) {
    snapshots_[NameOf(snapshot.head)] = snapshot;
  }
  for (const CommitRecord& commit : batch.commits) {
    commits_[commit.head.fragment()].push_back(commit);
    committed_(commit.head,
               FindRecord(commit.head.fragment(), commit.head.version()));
  }
}

std::vector<SnapshotRecord> Disk::Snapshots(uint32_t fragment,
                                            uint64_t limit) const {
  std::vector<SnapshotRecord> newest;
  auto next = snapshots_.lower_bound({fragment + 1, 0});
  while (next != snapshots_.begin() && newest.size() < limit) {
    --next;
    if (next->first.first != fragment) break;
    newest.push_back(next->second);
  }
  return newest;
}

std::vector<ContributionRecord> Disk::Merged(
    uint32_t fragment, uint64_t base_version,
    const std::string& island_id) const {
  std::vector<ContributionRecord> merged;
  const auto found = merged_.find({fragment, base_version});
  if (found == merged_.end()) return merged;
  for (const ContributionRecord& record : found->second) {
    if (record.island_id == island_id) merged.push_back(record);
  }
  return merged;
}

const MergeRecord* Disk::FindRecord(uint32_t fragment, uint64_t version) const {
  const auto found = records_.find({fragment, version});
  return found == records_.end() ? nullptr : &found->second;
}

const Version* Disk::FindSnapshot(const v1::FragmentHead& head) const {
  const auto found = snapshot_files_.find(NameOf(head));
  return found == snapshot_files_.end() ? nullptr : &found->second;
}

CoordinatorHistory Disk::History() const {
  CoordinatorHistory history{.flags = flags_, .validation = validation_};
  for (const auto& [key, account] : accounts_) {
    history.accounts.push_back(account);
    // A planted bug may lose the member.
    const auto process = processes_.find(key);
    CHECK(process != processes_.end()) << "an account without a member";
    history.accounts.back().process = process->second;
  }
  for (const auto& [round, records] : merged_) {
    for (const ContributionRecord& record : records) {
      history.settled.push_back(
          {.key = {record.island_id, record.incarnation},
           .fragment = record.fragment,
           .fate = record.fate == ContributionFate::kPartial
                       ? TokenLedger::Fate::kPartial
                       : TokenLedger::Fate::kMerged,
           .tokens = record.tokens,
           .restored = record.restored_tokens});
    }
  }
  for (const auto& [id, entry] : quarantine_) {
    history.quarantine.push_back(entry);
    // The merged contributions include the admitted ones.
    if (entry.state == v1::QuarantinedContribution::ADMITTED) continue;
    const v1::ContributionHeader& header = entry.header;
    history.settled.push_back(
        {.key = {header.identity().island_id(),
                 header.identity().incarnation()},
         .fragment = header.fragment(),
         .fate = entry.state == v1::QuarantinedContribution::HELD
                     ? TokenLedger::Fate::kQuarantined
                     : TokenLedger::Fate::kRefused,
         .tokens = header.tokens(),
         .restored = header.restored_tokens()});
  }
  return history;
}

}  // namespace causeway::simulation
