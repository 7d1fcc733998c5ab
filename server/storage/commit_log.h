// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The durable history of a run, in one SQLite database: its configuration, the
// committed versions of every fragment, the members, the token ledger, the
// quarantine and the events. The fragments' values lie in files
// (server/storage/fragment_store.h) that this log names; a file that it does
// not name was never committed.
//
// Everything is written by Apply(), one batch in one transaction. When Apply
// has returned OK, the batch survives a power loss (WAL, synchronous=FULL).
// When it has failed, nothing of the batch is there, with one exception,
// UNKNOWN: the disk failed while the transaction was being committed, and
// nobody can know. The log then refuses every later write with
// FAILED_PRECONDITION, until Reconcile() has read what is really there.
//
// Other processes may read while the coordinator writes (OpenReadOnly). The
// schema is meant for people too; times are microseconds since the Unix epoch:
//
//   sqlite3 run.sqlite3 "SELECT fragment, version, merged_norm,
//       datetime(committed_at / 1000000, 'unixepoch') FROM commits"
//
// Thread-safe. Every call may block on the disk. Errors, besides those named:
// as in server/storage/sqlite.h.
#ifndef SERVER_STORAGE_COMMIT_LOG_H_
#define SERVER_STORAGE_COMMIT_LOG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/fragment.pb.h"
#include "proto/run_config.pb.h"
#include "server/rules/coordinator_history.h"
#include "server/rules/membership.h"
#include "server/rules/quarantine.h"
#include "server/rules/token_ledger.h"
#include "server/storage/sqlite.h"

namespace causeway {

struct RunRecord {
  std::string run_id;
  // Resolved: no value in it is left for a reader to choose.
  v1::RunConfig config;
  v1::FragmentPlan plan;
  absl::Time created_at;
};

// One version of one fragment.
struct CommitRecord {
  // Fragment, version and digest of its parameters.
  v1::FragmentHead head;
  // The fragment's file, relative to the state directory.
  std::string file;
  // The encoded update that led to this version; empty for version 0.
  std::string update_file;
  // Norm of the merged pseudo-gradient; 0 for version 0.
  double merged_norm = 0;
  absl::Time committed_at;
  // In the round that made it.
  v1::Participation participation;
};

// What became of a contribution. What was quarantined is noted there
// (QuarantineEntry), and what is lost with its incarnation follows from its
// account (server/rules/token_ledger.h).
enum class ContributionFate {
  // Part of the version after its base version.
  kMerged,
  // The same, cut short because the island left.
  kPartial,
  // Came after its round had closed; the island keeps its progress.
  kLate,
};

absl::string_view ContributionFateName(ContributionFate fate);

// One line of the token ledger.
struct ContributionRecord {
  uint32_t fragment = 0;
  uint64_t base_version = 0;
  std::string island_id;
  uint64_t incarnation = 0;
  uint64_t tokens = 0;
  // Of these, by an earlier process of the island (ContributionHeader).
  uint64_t restored_tokens = 0;
  uint64_t inner_steps = 0;
  // Share of the merge, 0 to 1; 0 unless merged.
  double weight = 0;
  // Euclidean norm; 0 unless merged.
  double norm = 0;
  // XXH3-128 of the encoded contribution; empty if it never came that far.
  std::string digest;
  ContributionFate fate = ContributionFate::kMerged;
  absl::Time at;
};

// The ledger's sum over all contributions to one fragment with one fate.
struct LedgerSum {
  uint32_t fragment = 0;
  ContributionFate fate = ContributionFate::kMerged;
  uint64_t contributions = 0;
  uint64_t tokens = 0;
  uint64_t inner_steps = 0;
};

struct EventRecord {
  // 1, 2, ... without gaps; given by the log.
  uint64_t id = 0;
  absl::Time time;
  // As in proto/status.proto.
  std::string kind;
  std::string island_id;
  std::string text;
};

// What is to become durable together.
struct LogBatch {
  // The fragments' next versions: each must be the newest plus one.
  std::vector<CommitRecord> commits;
  // New incarnations, and new states of known ones. Stored are the identity,
  // state, description, times, reason, shard and first versions.
  std::vector<Member> members;
  // (fragment, base version, island, incarnation) can be merged only once.
  // Other fates may be noted again; the first note stays.
  std::vector<ContributionRecord> contributions;
  // New states of accounts.
  std::vector<AccountRecord> accounts;
  // New entries, and new states of known ones.
  std::vector<QuarantineEntry> quarantine;
  // Ids of entries that are admitted from now on.
  std::vector<uint64_t> admitted;
  std::optional<RunFlags> flags;
  std::vector<EventRecord> events;

  bool empty() const {
    return commits.empty() && members.empty() && contributions.empty() &&
           accounts.empty() && quarantine.empty() && admitted.empty() &&
           !flags.has_value() && events.empty();
  }
};

class CommitLog {
 public:
  // Opens the database or makes it. For the one coordinator of the run. One of
  // the schema before this is brought up to date.
  //   FAILED_PRECONDITION  it was written by another version of Causeway that
  //                        has another schema, or is another program's.
  //   DATA_LOSS            it is damaged or not a database.
  static absl::StatusOr<std::unique_ptr<CommitLog>> Open(
      const std::string& path);

  // For tools, also while a coordinator runs. NOT_FOUND if there is no
  // database; writes are refused with FAILED_PRECONDITION.
  static absl::StatusOr<std::unique_ptr<CommitLog>> OpenReadOnly(
      const std::string& path);

  // --- Writing. ---

  // Names the run that the log is of; its first batch commits version 0 of
  // every fragment. ALREADY_EXISTS if there is a run.
  absl::Status CreateRun(const RunRecord& run);

  // Writes the batch and numbers its events.
  //   UNKNOWN              whether the batch is there can only Reconcile tell.
  //   FAILED_PRECONDITION  a commit is not the fragment's next version; or the
  //                        outcome of an earlier write is unknown.
  //   ALREADY_EXISTS       a contribution has been merged before.
  absl::Status Apply(LogBatch& batch);

  // Whether the outcome of a write is unknown.
  bool InDoubt();

  // Ends the doubt: opens the database anew, as a restart would, makes durable
  // what is found in it, and returns whether the batch in doubt is there. (If
  // it has neither commits nor events, false: it can be written again.) While
  // the disk takes no writes it fails, and nothing has changed.
  absl::StatusOr<bool> Reconcile();

  // --- Reading. ---

  // NOT_FOUND before CreateRun.
  absl::StatusOr<RunRecord> LoadRun();

  // The newest version of each fragment, by fragment.
  absl::StatusOr<std::vector<CommitRecord>> Heads();

  // The newest `limit` versions of a fragment, newest first.
  absl::StatusOr<std::vector<CommitRecord>> History(uint32_t fragment,
                                                    uint64_t limit);

  // NOT_FOUND if there is no such version.
  absl::StatusOr<CommitRecord> FindCommit(uint32_t fragment, uint64_t version);

  // The newest incarnation of every island, by name, with the sums of its
  // merged contributions.
  absl::StatusOr<std::vector<Member>> Members();

  // Flags, ledger, quarantine and usual norms of a run of so many fragments; of
  // each, the norms of its newest rounds that have `norms` contributions.
  absl::StatusOr<CoordinatorHistory> LoadHistory(uint32_t fragments,
                                                 uint64_t norms);

  // Contributions that were merged into the version after `base_version`, in
  // the order of island and incarnation.
  absl::StatusOr<std::vector<ContributionRecord>> MergedContributions(
      uint32_t fragment, uint64_t base_version);

  // By fragment and fate; combinations that never happened are left out.
  absl::StatusOr<std::vector<LedgerSum>> LedgerSums();

  // Events with an id above `after_id`, oldest first: at most `limit`, and none
  // after the one with which their texts reach kEventPageBytes.
  static constexpr uint64_t kEventPageBytes = 16 << 10;
  absl::StatusOr<std::vector<EventRecord>> EventsAfter(uint64_t after_id,
                                                       uint64_t limit);

 private:
  CommitLog(SqliteDatabase database, std::string path, bool read_only)
      : path_(std::move(path)),
        read_only_(read_only),
        database_(std::move(database)) {}

  static absl::StatusOr<std::unique_ptr<CommitLog>> Connect(
      const std::string& path, SqliteDatabase::Mode mode);

  absl::Status PrepareSchema() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Runs `body` as one transaction; tells a known outcome from an unknown one.
  absl::Status TransactLocked(absl::FunctionRef<absl::Status()> body)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CommitLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Whether the batch in doubt is in the database.
  absl::StatusOr<bool> FindDoubtful() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status WriteBatch(LogBatch& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteCommit(const CommitRecord& commit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteMember(const Member& member)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteContribution(const ContributionRecord& contribution)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteAccount(const AccountRecord& account)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteQuarantine(const QuarantineEntry& entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteAdmitted(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteFlags(const RunFlags& flags)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadFlags(RunFlags& flags) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadAccounts(CoordinatorHistory& history)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadQuarantine(CoordinatorHistory& history)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadRounds(uint64_t norms, CoordinatorHistory& history)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteEvent(EventRecord& event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const bool read_only_;

  absl::Mutex mutex_;
  SqliteDatabase database_ ABSL_GUARDED_BY(mutex_);
  // Not OK while the outcome of a write is unknown; says why.
  absl::Status unknown_outcome_ ABSL_GUARDED_BY(mutex_);
  // By what the batch in doubt can be known: a commit of it, or else an event.
  std::optional<v1::FragmentHead> doubtful_commit_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint64_t> doubtful_event_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace causeway

#endif  // SERVER_STORAGE_COMMIT_LOG_H_
