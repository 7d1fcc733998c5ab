// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The changes that a run's log gets in one transaction: server/rules/journal.h
// makes them, and server/storage/commit_log.h writes them.
#ifndef SERVER_RULES_LOG_BATCH_H_
#define SERVER_RULES_LOG_BATCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/fragment.pb.h"
#include "proto/status.pb.h"
#include "server/rules/coordinator_history.h"
#include "server/rules/effects.h"
#include "server/rules/membership.h"
#include "server/rules/token_ledger.h"

namespace causeway {

// One version of one fragment.
struct CommitRecord {
  // Fragment, version and digest of the parameters.
  v1::FragmentHead head;
  // The file of the encoded update that led to this version, relative to the
  // state directory; empty for version 0.
  std::string update_file;
  // The Euclidean norm of the merged pseudo-gradient; 0 for version 0.
  double merged_norm = 0;
  absl::Time committed_at;
  // The participation in the round that made this version.
  v1::Participation participation;
};

// A version of a fragment that has a durable file of its own.
struct SnapshotRecord {
  v1::FragmentHead head;
  // Relative to the state directory.
  std::string file;
};

// The fate of a contribution. Quarantined contributions are in QuarantineEntry,
// and tokens that are lost with their incarnation follow from its account
// (server/rules/token_ledger.h).
enum class ContributionFate {
  // Part of the version after its base version.
  kMerged,
  // The same, from a window cut short because the island left.
  kPartial,
  // It came after its round had closed; the island keeps its progress.
  kLate,
};

// One contribution in the token ledger.
struct ContributionRecord {
  uint32_t fragment = 0;
  uint64_t base_version = 0;
  std::string island_id;
  uint64_t incarnation = 0;
  uint64_t tokens = 0;
  // The part of `tokens` that an earlier process of the island trained.
  uint64_t restored_tokens = 0;
  uint64_t inner_steps = 0;
  // The share in the merge, 0 to 1; 0 unless merged.
  double weight = 0;
  // The Euclidean norm; 0 unless merged.
  double norm = 0;
  // XXH3-128 of the encoding; empty if it never arrived.
  std::string digest;
  ContributionFate fate = ContributionFate::kMerged;
  absl::Time at;
};

// Changes that become durable together.
struct LogBatch {
  // The fragments' next versions. Each must be the newest plus one.
  std::vector<CommitRecord> commits;
  // New snapshots, of committed versions. A snapshot may be noted again.
  std::vector<SnapshotRecord> snapshots;
  // New incarnations, and new states of known ones. The log stores the
  // identity, state, description, times, reason, place and first versions.
  std::vector<Member> members;
  // Each (fragment, base version, island, incarnation) can be merged only once.
  // Other fates may be noted repeatedly; the first note stays.
  std::vector<ContributionRecord> contributions;
  // New states of accounts.
  std::vector<AccountRecord> accounts;
  // New entries, and new states of known ones.
  std::vector<QuarantineEntry> quarantine;
  // Ids of entries that the batch admits.
  std::vector<uint64_t> admitted;
  std::optional<RunFlags> flags;
  // Points of the run's history. A second point of a version is left out.
  std::vector<v1::TrainingPoint> training;
  std::vector<v1::ValidationPoint> validations;
  std::vector<CoordinatorEvent> events;

  bool empty() const {
    return commits.empty() && snapshots.empty() && members.empty() &&
           contributions.empty() && accounts.empty() && quarantine.empty() &&
           admitted.empty() && !flags.has_value() && training.empty() &&
           validations.empty() && events.empty();
  }
};

// The outcome of a batch, once it is found out.
struct DoubtfulWrite {
  bool found = false;
  // The fragment whose commit was in the batch, if any.
  std::optional<uint32_t> fragment;
};

}  // namespace causeway

#endif  // SERVER_RULES_LOG_BATCH_H_
