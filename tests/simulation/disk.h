// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's state directory in virtual time: what server/storage
// promises, without files. A batch of the log becomes durable as a whole, in
// the order of writing; a write that failed wrote nothing, unless its outcome
// is unknown: then later writes are refused until Reconcile, or a restart,
// shows whether it took place. Records of merges and snapshots become durable
// one by one, in any order.
#ifndef TESTS_SIMULATION_DISK_H_
#define TESTS_SIMULATION_DISK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/rules/coordinator_history.h"
#include "server/rules/log_batch.h"
#include "server/rules/membership.h"
#include "server/rules/token_ledger.h"
#include "tests/simulation/contents.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/virtual_time.h"

namespace causeway::simulation {

class Disk {
 public:
  using Done = std::function<void(const absl::Status&)>;
  // A commit has become durable; `record` is null if the record of its merge
  // has not.
  using Committed = std::function<void(const v1::FragmentHead& head,
                                       const MergeRecord* record)>;

  // Holds version 0 of every fragment. All arguments outlive the disk.
  Disk(const Scenario* scenario, World* world, Committed committed);

  // Begin a write of a batch of the log, of a record or of a snapshot. Call
  // `done` with the outcome, unless Crash comes first.
  void Write(LogBatch batch, Done done);
  void WriteRecord(MergeRecord record, Done done);
  void WriteSnapshot(Version snapshot, Done done);
  // Removes the snapshots of a fragment before the newest `kept`, and the
  // records that only they needed.
  void RemoveOldSnapshots(uint32_t fragment, uint64_t kept);

  // Ends the coordinator's process. The first few log writes under way may
  // still take place, and any of the other writes.
  void Crash();
  // Makes all later writes fast and successful.
  void Heal() { healed_ = true; }
  // Returns whether the log refuses every write until Reconcile or the next
  // Crash.
  bool poisoned() const { return unknown_.has_value(); }
  // Returns the outcome of the write whose outcome was unknown.
  DoubtfulWrite Reconcile();

  // --- What is durable. ---

  // The log's versions of a fragment.
  const std::vector<CommitRecord>& commits(uint32_t fragment) const {
    return commits_[fragment];
  }
  // The newest `limit` snapshots of a fragment, newest first.
  std::vector<SnapshotRecord> Snapshots(uint32_t fragment,
                                        uint64_t limit) const;
  // The contributions of an island that were merged into the version after
  // `base_version`.
  std::vector<ContributionRecord> Merged(uint32_t fragment,
                                         uint64_t base_version,
                                         const std::string& island_id) const;
  const std::map<std::string, Member>& members() const { return members_; }
  CoordinatorHistory History() const;
  // Return null if there is no such file.
  const MergeRecord* FindRecord(uint32_t fragment, uint64_t version) const;
  const Version* FindSnapshot(const v1::FragmentHead& head) const;
  // The training in the update that led to a committed version.
  const std::vector<Interval>& Update(const v1::FragmentHead& head) const {
    return updates_.at(NameOf(head));
  }

  // Keeps the bytes of a quarantined contribution, which are in files and
  // durable at once.
  void KeepBytes(uint64_t id, std::string bytes) {
    quarantined_bytes_[id] = std::move(bytes);
  }
  // Returns an empty string if there are none.
  std::string QuarantinedBytes(uint64_t id) const {
    const auto found = quarantined_bytes_.find(id);
    return found == quarantined_bytes_.end() ? "" : found->second;
  }

 private:
  using FragmentVersion = std::pair<uint32_t, uint64_t>;
  static FragmentVersion NameOf(const v1::FragmentHead& head) {
    return {head.fragment(), head.version()};
  }

  absl::Duration Latency();
  bool DrawFailure();
  // Begins to write a file, which `apply` makes durable.
  void WriteFile(std::function<void()> apply, Done done);
  absl::Status Try(const LogBatch& batch);
  void Apply(const LogBatch& batch);

  const Scenario* const scenario_;
  World* const world_;
  const Committed committed_;
  bool healed_ = false;

  // The log.
  std::vector<std::vector<CommitRecord>> commits_;
  std::map<FragmentVersion, SnapshotRecord> snapshots_;
  // The contributions by fragment and base version, without late ones.
  std::map<FragmentVersion, std::vector<ContributionRecord>> merged_;
  std::map<std::string, Member> members_;
  std::map<IncarnationKey, uint64_t> processes_;
  std::map<IncarnationKey, AccountRecord> accounts_;
  std::map<uint64_t, QuarantineEntry> quarantine_;
  RunFlags flags_;
  std::optional<v1::ValidationPoint> validation_;

  // Files.
  std::map<FragmentVersion, MergeRecord> records_;
  std::map<FragmentVersion, std::vector<Interval>> updates_;
  std::map<FragmentVersion, Version> snapshot_files_;
  std::map<uint64_t, std::string> quarantined_bytes_;

  // Counts crashes. Writes that began before the last one never end.
  uint64_t life_ = 0;
  absl::Time busy_until_ = absl::InfinitePast();
  std::deque<LogBatch> under_way_;
  uint64_t files_begun_ = 0;
  std::map<uint64_t, std::function<void()>> files_under_way_;
  // The batch whose outcome is unknown.
  std::optional<LogBatch> unknown_;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_DISK_H_
