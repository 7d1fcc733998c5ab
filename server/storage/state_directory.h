// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The directory in which a coordinator keeps a run:
//
//   lock          held by the coordinator as long as it lives
//   run.sqlite3   the commit log, which tells what is committed (and its -wal
//                 and -shm)
//   merges/       records of merges, by fragment and version
//   fragments/    snapshots: parameters, by fragment and version
//   updates/      encoded updates, by fragment and version
//   quarantine/   contributions that wait for an operator's decision
//   incomplete-copy   there while a copy of another coordinator's run is made
//   revoked       certificates that the leader of a copy has revoked
//                 (server/trust/revoked.h)
//
// A commit first makes the record of its merge durable, then the transaction
// that makes it count. The resulting parameters are in memory; occasional
// snapshots make them durable, and a restart repeats the merges since the
// newest snapshot (server/fragment_merge.h). A crash between the two leaves
// unnamed files of the next version, which are written again.
//
// A file of the run is removed only if the log names what supersedes it. A
// directory is refused and left untouched if its log is missing or empty, is
// older than its files (as after a partial restore), or lacks rows of commits.
//
// Tools open the directory read-only, even while a coordinator runs. A file may
// be superseded and removed before they open it: on NOT_FOUND they ask the log
// again.
#ifndef SERVER_STORAGE_STATE_DIRECTORY_H_
#define SERVER_STORAGE_STATE_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/os/file.h"
#include "proto/coordinator.pb.h"
#include "server/rules/effects.h"
#include "server/storage/commit_log.h"
#include "server/storage/file_identity.h"
#include "server/storage/fragment_store.h"
#include "server/storage/merge_store.h"

namespace causeway {

class StateDirectory {
 public:
  struct Options {
    // If true, creates the directory (not its parents) if it does not exist.
    bool create = false;
    FragmentStore::Options fragments;
  };

  // Opens the directory for a coordinator. Also returns the errors of
  // CommitLog::Open.
  //   UNAVAILABLE          Another coordinator has it open.
  //   FAILED_PRECONDITION  It holds files that are not a run's, or files of a
  //                        run whose log is missing or older than they are, or
  //                        an incomplete copy.
  //   DATA_LOSS            The log lacks rows of commits.
  //   NOT_FOUND            There is no directory, and `create` is false.
  // After these errors all files are as they were.
  static absl::StatusOr<std::unique_ptr<StateDirectory>> Open(
      const std::string& path, Options options);

  // Opens the directory for tools: takes no lock and changes nothing. A
  // directory that no process has open, such as a backup, need not be writable.
  // NOT_FOUND if there is no run.
  static absl::StatusOr<std::unique_ptr<StateDirectory>> OpenReadOnly(
      const std::string& path);

  // --- Copies of another coordinator's run (server/replication/follower.h).

  // Removes the run from the directory if its copy was never completed.
  static absl::Status RemoveIncompleteCopy(const std::string& path);
  // Marks the copy as incomplete, so that Open refuses the directory until
  // EndCopy.
  absl::Status BeginCopy() const;
  // Replaces the log of a directory that is not open by the file `log`, and
  // marks the copy as complete.
  static absl::Status EndCopy(const std::string& path, const std::string& log);
  // Returns the file into which the copy of the log is received. If a crash
  // leaves it, the next Open removes it.
  std::string ReceivedLog() const;
  // Removes a fragment's snapshots, updates and records.
  absl::Status RemoveFragment(uint32_t fragment) const;

  const std::string& path() const { return path_; }
  // Returns whether it was opened for a coordinator, so that no other process
  // changes it.
  bool is_held() const { return lock_.has_value(); }
  CommitLog& log() { return *log_; }
  const FragmentStore& fragments() const { return fragments_; }
  MergeStore& merges() { return merges_; }

  // Returns FAILED_PRECONDITION, with what to do, if the lock or the log was
  // removed or replaced since the directory was opened. Nothing may then be
  // committed, because another coordinator could take the run up, or writes
  // could be lost.
  absl::Status CheckInPlace() const;
  // Copies the log to run.sqlite3.rescued if its files are not in place.
  // Returns whether it did.
  absl::StatusOr<bool> RescueLog() const;

  // Copies the log through its own connection, so that no write waits. Returns
  // the path of the copy, which the caller removes; if the caller crashes, the
  // next Open does. Errors of CommitLog::OpenReadOnly and CopyTo.
  //   RESOURCE_EXHAUSTED  The copy takes more than half of the free disk space.
  absl::StatusOr<std::string> CopyLogFor(absl::string_view follower) const;

  // Reads the history through its own connection, so that no write waits.
  // Errors of CommitLog::OpenReadOnly and HistoryAfter.
  absl::StatusOr<v1::GetHistoryResponse> ReadHistory(
      const v1::GetHistoryRequest& request) const;

  // Keep events for the coordinator that takes the open directory up, which
  // records them in its first change (Engine::Start). So a follower that has
  // the whole log lacks only changes that this coordinator can send. Not
  // thread-safe.
  void AddFirstEvent(CoordinatorEvent event) {
    first_events_.push_back(std::move(event));
  }
  std::vector<CoordinatorEvent> TakeFirstEvents() {
    return std::exchange(first_events_, {});
  }

  // Store the encoded bytes of quarantined contributions, by id. An entry whose
  // bytes cannot be read cannot be admitted. Not thread-safe for the same id.
  absl::Status WriteQuarantined(uint64_t id, absl::string_view encoded) const;
  absl::StatusOr<std::string> ReadQuarantined(uint64_t id) const;
  // Does nothing if there are none.
  absl::Status RemoveQuarantined(uint64_t id) const;

  // Keeps the newest `versions_kept` snapshots of every fragment, the records
  // since the oldest of them, and the newest `updates_kept` updates. Removes
  // the run's older files, and returns the paths of the removed snapshots and
  // updates. Call it when a coordinator starts. Snapshots of committed versions
  // may be made meanwhile (server/fragment_heads.h).
  absl::StatusOr<std::vector<std::string>> RemoveUnreferenced(
      absl::string_view run_id, uint64_t versions_kept, uint64_t updates_kept);

  // Call after each new snapshot of a fragment. Removes the snapshot that is no
  // longer kept, and the records that only it needed.
  absl::Status RemoveOldSnapshot(uint32_t fragment, uint64_t versions_kept);

 private:
  std::string QuarantineFile(uint64_t id) const;

  StateDirectory(std::string path, std::optional<FileLock> lock,
                 std::unique_ptr<CommitLog> log, FragmentStore fragments)
      : path_(std::move(path)),
        lock_(std::move(lock)),
        log_(std::move(log)),
        fragments_(std::move(fragments)),
        merges_(path_) {}

  const std::string path_;
  // Held while a copy of the log is made, so that the next one finds its space
  // taken.
  mutable absl::Mutex copying_;
  // Released last, after the log is closed.
  const std::optional<FileLock> lock_;
  std::optional<FileIdentity> lock_file_;
  const std::unique_ptr<CommitLog> log_;
  const FragmentStore fragments_;
  MergeStore merges_;
  std::vector<CoordinatorEvent> first_events_;
};

}  // namespace causeway

#endif  // SERVER_STORAGE_STATE_DIRECTORY_H_
