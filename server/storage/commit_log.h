// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The durable history of a run in one SQLite database: its configuration, the
// committed versions of every fragment, the members, the token ledger, the
// quarantine and the events. The values are in files: the record of each merge
// (server/storage/merge_store.h), and occasional snapshots of fragments
// (server/storage/fragment_store.h) that this log names.
//
// Apply() writes everything, one batch in one transaction. After OK, the batch
// survives a power loss (WAL, synchronous=FULL). After an error, nothing of the
// batch is written, except that after UNKNOWN it may be: the disk failed during
// the commit. The log then refuses every later write with FAILED_PRECONDITION,
// until Reconcile() has read what the disk holds.
//
// The log counts its transactions and chains them by a hash: logs with equal
// positions (v1::LogPosition) are equal. Followers get the rows that each
// transaction changes, and apply them to a copy of the database.
//
// Other processes may read while the coordinator writes (OpenReadOnly). People
// may also read the database. Times are microseconds since the Unix epoch:
//
//   sqlite3 run.sqlite3 "SELECT fragment, version, merged_norm,
//       datetime(committed_at / 1000000, 'unixepoch') FROM commits"
//
// Thread-safe. Every call may block on the disk. Besides the errors named
// below, calls return those of server/storage/sqlite.h.
#ifndef SERVER_STORAGE_COMMIT_LOG_H_
#define SERVER_STORAGE_COMMIT_LOG_H_

#include <cstdint>
#include <functional>
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
#include "absl/types/span.h"
#include "proto/fragment.pb.h"
#include "proto/replication.pb.h"
#include "proto/run_config.pb.h"
#include "proto/status.pb.h"
#include "server/rules/coordinator_history.h"
#include "server/rules/event_filter.h"
#include "server/rules/log_batch.h"
#include "server/rules/membership.h"
#include "server/rules/token_ledger.h"
#include "server/storage/file_identity.h"
#include "server/storage/sqlite.h"

namespace causeway {

struct RunRecord {
  std::string run_id;
  // The run was first started with this configuration. Every field is filled
  // in.
  v1::RunConfig config;
  v1::FragmentPlan plan;
  absl::Time created_at;
  // The epoch of the coordinator that writes this log. In a copy, the highest
  // epoch of a leader that it has followed.
  uint64_t epoch = 1;
};

// The coordinator whose log this one copies.
struct LeaderRecord {
  // Is true until the copy takes over.
  bool is_followed = false;
  // Is true if the log's coordinator was elected. Another may have been elected
  // since.
  bool is_elected = false;
  // The address at which the leader was last reached; empty if this log has
  // never been a copy.
  std::string address;
  // The configuration with which the run was led last, by that coordinator or
  // by this one; empty before CreateRun.
  v1::RunConfig config;
};

absl::string_view ContributionFateName(ContributionFate fate);

class CommitLog {
 public:
  // Opens or creates the database, for the run's only coordinator.
  //   FAILED_PRECONDITION  It belongs to a version of Causeway with another
  //                        schema, or to another program.
  //   DATA_LOSS            It is damaged or not a database.
  static absl::StatusOr<std::unique_ptr<CommitLog>> Open(
      const std::string& path);

  // Opens the database for tools, even while a coordinator runs. NOT_FOUND if
  // there is none. Writes fail with FAILED_PRECONDITION.
  static absl::StatusOr<std::unique_ptr<CommitLog>> OpenReadOnly(
      const std::string& path);
  // Does the same for a database that no process has open, in a directory that
  // this process may not write to.
  static absl::StatusOr<std::unique_ptr<CommitLog>> OpenUnused(
      const std::string& path);

  // Reads the whole database. DATA_LOSS if its structure is damaged; does not
  // find damaged values.
  absl::Status CheckStructure();

  // --- Writing. ---

  // Records the run, before the first batch, which commits version 0 of every
  // fragment. ALREADY_EXISTS if there is a run.
  absl::Status CreateRun(const RunRecord& run);

  // Writes the batch. Its events get the next of the ids 1, 2, ...
  //   UNKNOWN              Only Reconcile can tell whether the batch is there.
  //   FAILED_PRECONDITION  A commit is not the fragment's next version, the
  //                        outcome of an earlier write is unknown, or the
  //                        database is not in place.
  //   ALREADY_EXISTS       A contribution has been merged before.
  absl::Status Apply(const LogBatch& batch);

  // Returns why the outcome of a write is unknown, or OK if it is known. Does
  // not wait for a write under way.
  absl::Status Doubt() const {
    absl::MutexLock lock(&doubt_mutex_);
    return doubt_;
  }
  bool InDoubt() const { return !Doubt().ok(); }

  // Reopens the database, as a restart would, makes durable what it finds, and
  // returns whether the batch in doubt is there. Returns false for a batch of
  // snapshots alone, because such a batch can be written again. Fails, and
  // changes nothing, while the disk refuses writes.
  absl::StatusOr<DoubtfulWrite> Reconcile();

  // --- Copies of the log. ---

  v1::LogPosition Position() {
    absl::MutexLock lock(&mutex_);
    return position_;
  }

  // Calls `publish` with each transaction from now on, in order, once it is
  // durable. `publish` runs under the log's lock, so it must not call the log.
  // Returns the position before the first transaction.
  using Publisher = std::function<void(std::shared_ptr<const v1::LogChange>)>;
  v1::LogPosition Publish(Publisher publish);

  // Applies the next changes of the log that this one copies, all or none, in
  // one transaction.
  //   DATA_LOSS  A change does not continue this log, or a row differs from
  //              that log's.
  absl::Status ApplyChanges(absl::Span<const v1::LogChange> changes,
                            uint64_t epoch);

  // Marks this log as a copy of the log of `leader`. It must have been made by
  // CopyTo, or have been a copy before. Raises the log's epoch to at least
  // `epoch`, which is the leader's, so that no takeover by this copy reuses it.
  absl::Status Follow(const LeaderRecord& leader, uint64_t epoch = 0);
  // Makes these the only snapshots of a fragment.
  absl::Status ReplaceSnapshots(uint32_t fragment,
                                absl::Span<const SnapshotRecord> snapshots);
  absl::StatusOr<LeaderRecord> LoadLeader();
  // Records the configuration with which this coordinator leads
  // (LeaderRecord::config).
  absl::Status RecordConfig(const v1::RunConfig& config);

  // Makes a copy, the log of an elected coordinator, or one with an epoch up to
  // `known`, the run's log, whatever other coordinators have. Raises the epoch
  // to one more than the highest of its own and `known`, and returns it.
  //   FAILED_PRECONDITION  The log is none of these.
  // With an `epoch`, marks any log as written by a coordinator elected with
  // that epoch, and raises the log's epoch to at least that value.
  absl::StatusOr<uint64_t> TakeOver(std::optional<uint64_t> epoch = {},
                                    uint64_t known = 0);

  // Returns FAILED_PRECONDITION if the database or its write-ahead log was
  // removed or replaced since it was opened: writes would be lost.
  absl::Status CheckInPlace();

  // Copies everything committed to a database at `path`, even if this one's
  // file was removed.
  absl::Status CopyTo(const std::string& path) {
    absl::MutexLock lock(&mutex_);
    return database_.CopyTo(path);
  }

  // --- Reading. ---

  // Returns NOT_FOUND before CreateRun.
  absl::StatusOr<RunRecord> LoadRun();

  // Checks that no commits of a run of `fragments` fragments are missing: there
  // are as many rows as were ever added, for version 0 to the newest of each
  // fragment. Counts rows in an index. OK for a run that was created but has
  // not begun.
  //   DATA_LOSS  Rows are missing.
  absl::Status CheckCommits(uint32_t fragments);

  // Returns the newest version of each fragment, ordered by fragment.
  absl::StatusOr<std::vector<CommitRecord>> Heads();

  // Returns the newest `limit` versions of a fragment, newest first.
  absl::StatusOr<std::vector<CommitRecord>> History(uint32_t fragment,
                                                    uint64_t limit);

  // Returns the newest `limit` snapshots of a fragment, newest first. The files
  // of old snapshots may be gone.
  absl::StatusOr<std::vector<SnapshotRecord>> Snapshots(uint32_t fragment,
                                                        uint64_t limit);

  // Returns NOT_FOUND if there is no such version.
  absl::StatusOr<CommitRecord> FindCommit(uint32_t fragment, uint64_t version);

  // Returns the newest incarnation of every island, by name, with the sums over
  // its merged contributions.
  absl::StatusOr<std::vector<Member>> Members();

  // Returns flags, ledger, quarantine and merged norms of a run of `fragments`
  // fragments. For each fragment, reads the norms of the newest rounds that
  // together have `norms` contributions.
  absl::StatusOr<CoordinatorHistory> LoadHistory(uint32_t fragments,
                                                 uint64_t norms);

  // Returns the digest of the run's data (RunFlags); empty if it is not known.
  absl::StatusOr<std::string> LoadDataDigest();

  // The most points of a series of the run's history. When there are more, an
  // eighth is dropped, and the rest are evenly spread. A point takes less than
  // 16 KiB.
  static constexpr uint64_t kMostPoints = 1024;
  // Returns the points of both series after the versions of the request, until
  // the page reaches kHistoryPageBytes.
  static constexpr uint64_t kHistoryPageBytes = 256 << 10;
  absl::StatusOr<v1::GetHistoryResponse> HistoryAfter(
      const v1::GetHistoryRequest& request);

  // Returns the contributions of one island, or of all if no name is given,
  // that were merged into the version after `base_version`, ordered by island
  // and incarnation.
  absl::StatusOr<std::vector<ContributionRecord>> MergedContributions(
      uint32_t fragment, uint64_t base_version,
      absl::string_view island_id = "");

  // Returns the id of the newest event; 0 if there is none.
  absl::StatusOr<uint64_t> NewestEvent();

  // Returns the newest events with ids above `after_id` that pass `filter`, at
  // most `most`, oldest first. Writers wait only for a part of the search.
  absl::StatusOr<std::vector<v1::Event>> NewestEvents(
      uint64_t after_id, uint64_t most, const EventFilter& filter = {});

  // Returns the oldest such events instead: at most `limit`, until their texts
  // reach kEventPageBytes.
  static constexpr uint64_t kEventPageBytes = 16 << 10;
  absl::StatusOr<std::vector<v1::Event>> EventsAfter(
      uint64_t after_id, uint64_t limit, const EventFilter& filter = {});

 private:
  CommitLog(SqliteDatabase database, std::string path, bool read_only)
      : path_(std::move(path)),
        read_only_(read_only),
        database_(std::move(database)) {}

  static absl::StatusOr<std::unique_ptr<CommitLog>> Connect(
      const std::string& path, SqliteDatabase::Mode mode);

  absl::Status PrepareSchema() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NoteFiles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckInPlaceLocked() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  // Runs `body` as one transaction, and distinguishes known from unknown
  // outcomes.
  absl::Status TransactLocked(absl::FunctionRef<absl::Status()> body)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CommitLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetDoubt(absl::Status doubt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::MutexLock lock(&doubt_mutex_);
    doubt_ = std::move(doubt);
  }

  // Runs `body` as a transaction that also changes copies. `change` gets the
  // rows and the position, and is published.
  absl::Status ChangeLocked(std::shared_ptr<v1::LogChange> change,
                            absl::FunctionRef<absl::Status()> body)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReadPosition() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WritePosition(const v1::LogPosition& position, uint64_t epoch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Advance(std::shared_ptr<const v1::LogChange> change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const bool read_only_;

  absl::Mutex mutex_;
  SqliteDatabase database_ ABSL_GUARDED_BY(mutex_);
  // The files that this process writes: the database and its write-ahead log.
  std::vector<FileIdentity> files_ ABSL_GUARDED_BY(mutex_);
  // The change in doubt; null if there is none, or if it does not concern the
  // run.
  std::shared_ptr<const v1::LogChange> doubtful_ ABSL_GUARDED_BY(mutex_);
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 1;
  v1::LogPosition position_ ABSL_GUARDED_BY(mutex_);
  Publisher publish_ ABSL_GUARDED_BY(mutex_);

  mutable absl::Mutex doubt_mutex_ ABSL_ACQUIRED_AFTER(mutex_);
  // OK unless the outcome of a write is unknown.
  absl::Status doubt_ ABSL_GUARDED_BY(doubt_mutex_);
};

}  // namespace causeway

#endif  // SERVER_STORAGE_COMMIT_LOG_H_
