// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The coordinator's state directory in virtual time: what
// server/storage/commit_log.h promises, without files. A batch becomes durable
// as a whole, in the order of writing; a write that failed wrote nothing,
// unless its outcome is unknown: then later writes are refused until Reconcile,
// or a restart, shows what is there.
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
#include "server/rules/quarantine.h"
#include "server/rules/token_ledger.h"
#include "tests/simulation/contents.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/virtual_time.h"

namespace causeway::simulation {

// One version of one fragment.
struct Commit {
  v1::FragmentHead head;
  Contents contents;
  // What was merged into it, in the order it was summed in, and what that was.
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
    // Ids of entries that are part of the commit.
    std::vector<uint64_t> admitted;
    std::optional<RunFlags> flags;
    // Events and late contributions are only counted: nothing reads them back.
    uint64_t events = 0;

    bool empty() const {
      return !commit.has_value() && members.empty() && accounts.empty() &&
             quarantine.empty() && admitted.empty() && !flags.has_value() &&
             events == 0;
    }
  };
  using Done = std::function<void(const absl::Status&)>;

  // Holds version 0 of every fragment. `committed` hears of each commit that
  // has become durable. All outlive the disk.
  Disk(const Scenario* scenario, World* world,
       std::function<void(const Commit&)> committed);

  // Begins a write, which takes `work` and the disk's own time. `done` is
  // called with its outcome, unless Crash comes first.
  void Write(Batch batch, absl::Duration work, Done done);
  // The coordinator's process ends: of the writes under way, the first few may
  // have been done.
  void Crash();
  // From now on no write fails or takes long.
  void Heal() { healed_ = true; }
  // Refuses every write until Reconcile or the next Crash.
  bool poisoned() const { return unknown_.has_value(); }
  // Whether what the write of unknown outcome was to write is there.
  bool Reconcile();

  // What is durable. By version.
  const std::vector<Commit>& commits(uint32_t fragment) const {
    return commits_[fragment];
  }
  const std::map<std::string, Member>& members() const { return members_; }
  CoordinatorHistory History() const;

  // Bytes of quarantined contributions, in files: there at once.
  void KeepBytes(uint64_t id, std::string bytes) {
    quarantined_bytes_[id] = std::move(bytes);
  }
  // Empty if there are none.
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
  // Counts crashes: what was begun before the last one has no end.
  uint64_t life_ = 0;
  absl::Time busy_until_ = absl::InfinitePast();
  std::deque<Batch> under_way_;
  // The batch whose outcome is unknown.
  std::optional<Batch> unknown_;
};

// The digest of version 0, and of the version that is made from one with
// `digest` by merging `encodings` in this order.
std::string InitialDigest(uint32_t fragment);
std::string NextDigest(const std::string& digest,
                       const std::vector<std::string>& encodings);

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_DISK_H_
