// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The newest version of each fragment and the newest updates, in memory, and a
// thread that writes both to the disk in the background.
//
// A merged version is durable at once through the merge's record
// (server/storage/merge_store.h), from which its update can be made again, too.
// So the thread writes an update a little later, for islands that need it when
// it is no longer in memory. When many records have accumulated since a
// fragment's last snapshot, or the run has ended, the thread writes the newest
// version and removes the files that are no longer needed.
//
//   ASSIGN_OR_RETURN(auto heads, FragmentHeads::Restore(state, run, threads));
//   heads->StartSnapshots([&](SnapshotRecord snapshot) { ... });
//   auto before = heads->Newest(fragment);  // and merge, record, commit
//   heads->Install(std::move(after), std::move(update), merge);
//
// Thread-safe, except that at most one thread may install versions of a
// fragment.
#ifndef SERVER_FRAGMENT_HEADS_H_
#define SERVER_FRAGMENT_HEADS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "proto/run_config.pb.h"
#include "server/fragment_merge.h"
#include "server/storage/commit_log.h"
#include "server/storage/fragment_store.h"
#include "server/storage/state_directory.h"

namespace causeway {

class FragmentHeads {
 public:
  // Notes in the commit log that there is a snapshot. Called by the writing
  // thread, without a lock of this class.
  using NoteSnapshot = std::function<absl::Status(SnapshotRecord snapshot)>;

  // Reads the newest version of each fragment, so that damage is found now and
  // not in the middle of the next round, and remakes updates that a crash may
  // have lost. `run` has the configuration that is in force; `threads`
  // repeat merges. With `evictable`, the kernel may move the versions to files
  // of the state directory. `state` must outlive the result. Errors of
  // RestoreHead (server/fragment_merge.h) and FragmentStore::WriteUpdate.
  static absl::StatusOr<std::unique_ptr<FragmentHeads>> Restore(
      StateDirectory& state, const RunRecord& run, int threads, bool evictable);
  // If snapshots were started, makes one of each fragment that has records
  // since its last one, so that the next start has nothing to repeat. `note`
  // must still work.
  ~FragmentHeads();

  FragmentHeads(const FragmentHeads&) = delete;
  FragmentHeads& operator=(const FragmentHeads&) = delete;

  // Starts the writing thread. May be called again, with another `note`.
  void StartSnapshots(NoteSnapshot note) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns whether the heads are the versions of `commits`, which are ordered
  // by fragment, kept as `storage` says.
  bool Are(absl::Span<const CommitRecord> commits,
           const v1::StorageConfig& storage) const ABSL_LOCKS_EXCLUDED(mu_);

  size_t size() const { return size_; }
  // `fragment` must be less than size().
  std::shared_ptr<const StoredFragment> Newest(uint32_t fragment) const
      ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return fragments_[fragment].head;
  }
  // Returns `version` if it is the newest, or the one before and still in
  // memory; otherwise, or if there is no such fragment, null.
  std::shared_ptr<const StoredFragment> Find(uint32_t fragment,
                                             uint64_t version) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // Makes a committed version the newest, and keeps the update that led to it.
  // `merge` is the cost of repeating the merge. If too many updates are not in
  // files yet, writes the oldest that no thread writes. Removes the update that
  // is no longer kept.
  void Install(StoredFragment after, StoredUpdate update,
               const RecordedMerges& merge) ABSL_LOCKS_EXCLUDED(mu_);

  // Opens the update that led to a committed version.
  //   NOT_FOUND  It is no longer kept.
  //   DATA_LOSS  Its file is damaged.
  absl::StatusOr<std::shared_ptr<const StoredUpdate>> OpenUpdate(
      const CommitRecord& commit) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // A fragment's newest version, and what decides when a snapshot is due.
  struct Fragment {
    std::shared_ptr<const StoredFragment> head;
    // The version with which the run ends.
    uint64_t last_version = 0;
    // The version before, if it was still being read.
    std::shared_ptr<const StoredFragment> previous;
    // The merges since the newest snapshot.
    RecordedMerges recorded;
    struct Unwritten {
      std::shared_ptr<const StoredUpdate> update;
      // A second writer would use the same temporary file.
      bool is_being_written = false;
    };
    // The updates that are kept and not yet in files, by version.
    std::map<uint64_t, Unwritten> unwritten;
    // The update opened last. Its readers share it, so that its file is mapped
    // and verified once for many of them.
    std::weak_ptr<const StoredUpdate> opened;

    // Returns the oldest update that waits to be written; null if none does.
    std::shared_ptr<const StoredUpdate> OldestWaiting() const;
  };
  // A file to write: an update, or else a snapshot.
  struct Work {
    std::shared_ptr<const StoredUpdate> update;
    std::shared_ptr<const StoredFragment> head;
    RecordedMerges recorded;
  };

  FragmentHeads(StateDirectory& state, const v1::RunConfig& config,
                std::vector<Fragment> fragments);

  void WriteLoop() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the next file that is due, if any: first all updates, then the most
  // overdue snapshot, which ends the need for the records from which updates
  // could be made again. Leaves out updates that are being written.
  std::optional<Work> NextWork() const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Returns the fragment whose snapshot is most overdue: by the bytes of its
  // records, of which its last version needs none, or, if all fragments' merges
  // take too long to repeat, by its part of that time. Leaves out fragments
  // with updates that are not in files.
  std::optional<uint32_t> SnapshotDue() const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Returns whether files must not wait.
  bool IsUrgent() const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  void Write(const Work& work) ABSL_LOCKS_EXCLUDED(mu_);
  void WriteUpdate(const UpdateContents& update) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status MakeSnapshot(const Work& work) ABSL_LOCKS_EXCLUDED(mu_);
  void RemoveUpdate(uint32_t fragment, uint64_t version) const;

  StateDirectory& state_;
  const v1::StorageConfig storage_;
  const double state_bytes_per_value_;
  const size_t size_;

  mutable absl::Mutex mu_;
  NoteSnapshot note_ ABSL_GUARDED_BY(mu_);
  std::vector<Fragment> fragments_ ABSL_GUARDED_BY(mu_);
  // True if a snapshot failed; the next version clears it.
  bool snapshot_failed_ ABSL_GUARDED_BY(mu_) = false;
  // True if no more versions come, so that the files left must be written.
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;

  std::thread writer_;
};

// An open state directory, and the heads of its run unless they are yet to be
// read. The heads need the directory.
struct OpenedRun {
  std::unique_ptr<StateDirectory> state;
  std::unique_ptr<FragmentHeads> heads;
};

}  // namespace causeway

#endif  // SERVER_FRAGMENT_HEADS_H_
