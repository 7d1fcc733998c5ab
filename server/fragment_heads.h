// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The newest version of each fragment, in memory, and the snapshots that make
// these versions durable in the background.
//
// A merged version is durable at once through the merge's record
// (server/storage/merge_store.h). When many records have accumulated since a
// fragment's last snapshot, the snapshot thread writes the newest version to
// the disk and removes the files that are no longer needed.
//
//   ASSIGN_OR_RETURN(auto heads, FragmentHeads::Restore(state, run, threads));
//   heads->StartSnapshots([&](SnapshotRecord snapshot) { ... });
//   auto before = heads->Newest(fragment);  // and merge, record, commit
//   heads->Install(std::move(after), record_bytes);
//
// Thread-safe, except that at most one thread may install versions of a
// fragment.
#ifndef SERVER_FRAGMENT_HEADS_H_
#define SERVER_FRAGMENT_HEADS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
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
#include "server/storage/commit_log.h"
#include "server/storage/fragment_store.h"
#include "server/storage/state_directory.h"

namespace causeway {

class FragmentHeads {
 public:
  // Notes in the commit log that there is a snapshot. Called by the snapshot
  // thread, without a lock of this class.
  using NoteSnapshot = std::function<absl::Status(SnapshotRecord snapshot)>;

  // Reads the newest version of each fragment, so that damage is found now and
  // not in the middle of the next round, and remakes updates that a power loss
  // may have torn. `run` has the configuration that is in force; `threads`
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

  // Starts the snapshot thread. May be called again, with another `note`.
  void StartSnapshots(NoteSnapshot note) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns whether these are the versions of `commits`, which are ordered by
  // fragment, kept as `storage` says.
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

  // Makes a committed version the newest. Its merge's record has
  // `record_bytes`. Removes the update that is no longer kept.
  void Install(StoredFragment after, uint64_t record_bytes)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // A fragment's newest version, and what decides when a snapshot is due.
  struct Fragment {
    std::shared_ptr<const StoredFragment> head;
    // The version before, if it was still being read.
    std::shared_ptr<const StoredFragment> previous;
    // The bytes of the merges' records since the newest snapshot.
    uint64_t record_bytes = 0;
  };

  FragmentHeads(StateDirectory& state, const v1::RunConfig& config,
                std::vector<Fragment> fragments);

  void SnapshotLoop() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the fragment whose snapshot is most overdue, if one is due.
  std::optional<uint32_t> SnapshotDue() const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  absl::Status MakeSnapshot(uint32_t fragment) ABSL_LOCKS_EXCLUDED(mu_);

  StateDirectory& state_;
  const v1::StorageConfig storage_;
  const double state_bytes_per_value_;
  const size_t size_;

  mutable absl::Mutex mu_;
  NoteSnapshot note_ ABSL_GUARDED_BY(mu_);
  std::vector<Fragment> fragments_ ABSL_GUARDED_BY(mu_);
  // Whether a snapshot failed; the next version clears it.
  bool snapshot_failed_ ABSL_GUARDED_BY(mu_) = false;
  // Whether the last version has come, so that only snapshots are left to make.
  bool finishing_ ABSL_GUARDED_BY(mu_) = false;

  std::thread snapshotter_;
};

// An open state directory, and the heads of its run unless they are yet to be
// read. The heads need the directory.
struct OpenedRun {
  std::unique_ptr<StateDirectory> state;
  std::unique_ptr<FragmentHeads> heads;
};

}  // namespace causeway

#endif  // SERVER_FRAGMENT_HEADS_H_
