// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's state directory in virtual time: what
// server/storage/commit_log.h promises, without files. A batch becomes durable
// as a whole, in the order of writing; a write that failed wrote nothing,
// unless its outcome is unknown: then later writes are refused until Reconcile,
// or a restart, shows whether it took place.
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
#include "server/rules/membership.h"
#include "server/rules/token_ledger.h"
#include "tests/simulation/contents.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/virtual_time.h"

namespace causeway::simulation {

// One version of one fragment.
struct Commit {
  v1::FragmentHead head;
  Contents contents;
  // The contributions merged into it, in the order of summation, and what each
  // contained.
  std::vector<v1::ContributionHeader> merged;
  std::vector<std::vector<Interval>> intervals;
};

class Disk {
 public:
  struct Batch {
    std::optional<Commit> commit;
    std::vector<Member> members;
    std::vector<AccountRecord> accounts;
    std::vector<QuarantineEntry> quarantine;
    // The ids of quarantine entries that are part of the commit.
    std::vector<uint64_t> admitted;
    std::optional<RunFlags> flags;
    std::vector<v1::ValidationPoint> validations;
    // Events and late contributions are only counted: nothing reads them back.
    uint64_t events = 0;

    bool empty() const {
      return !commit.has_value() && members.empty() && accounts.empty() &&
             quarantine.empty() && admitted.empty() && !flags.has_value() &&
             validations.empty() && events == 0;
    }
  };
  using Done = std::function<void(const absl::Status&)>;

  // Holds version 0 of every fragment. Calls `committed` for each commit that
  // becomes durable. All arguments outlive the disk.
  Disk(const Scenario* scenario, World* world,
       std::function<void(const Commit&)> committed);

  // Begins a write, which takes `work` and the disk's own time. Calls `done`
  // with its outcome, unless Crash comes first.
  void Write(Batch batch, absl::Duration work, Done done);
  // Ends the coordinator's process: the first few of the writes under way may
  // take place.
  void Crash();
  // Makes all later writes fast and successful.
  void Heal() { healed_ = true; }
  // Returns whether the disk refuses every write until Reconcile or the next
  // Crash.
  bool poisoned() const { return unknown_.has_value(); }
  // Returns whether the write of unknown outcome took place.
  bool Reconcile();

  // Returns the durable commits of a fragment, by version.
  const std::vector<Commit>& commits(uint32_t fragment) const {
    return commits_[fragment];
  }
  const std::map<std::string, Member>& members() const { return members_; }
  CoordinatorHistory History() const;

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
  absl::Duration Latency();
  void Finish(const Done& done);
  absl::Status Try(const Batch& batch);
  void Apply(const Batch& batch);

  const Scenario* const scenario_;
  World* const world_;
  const std::function<void(const Commit&)> committed_;
  bool healed_ = false;
  std::vector<std::vector<Commit>> commits_;
  std::map<std::string, Member> members_;
  std::map<IncarnationKey, uint64_t> processes_;
  std::map<IncarnationKey, AccountRecord> accounts_;
  std::map<uint64_t, QuarantineEntry> quarantine_;
  std::map<uint64_t, std::string> quarantined_bytes_;
  RunFlags flags_;
  std::optional<v1::ValidationPoint> validation_;
  // Counts crashes. Writes that began before the last one never end.
  uint64_t life_ = 0;
  absl::Time busy_until_ = absl::InfinitePast();
  std::deque<Batch> under_way_;
  // The batch whose outcome is unknown.
  std::optional<Batch> unknown_;
};

// Return the digest of version 0, and of the version that follows the one with
// `digest` when `encodings` are merged in this order.
std::string InitialDigest(uint32_t fragment);
std::string NextDigest(const std::string& digest,
                       const std::vector<std::string>& encodings);

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_DISK_H_
