// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An island's local checkpoint: the state with which a process continues where
// another one stopped, in one directory:
//
//   lock                 held by the process that uses the directory
//   island.safetensors   parameters and anchors of the whole model, the moments
//                        of AdamW; all flat, F32. Its metadata holds the rest
//                        (IslandCheckpoint of proto/island.proto) and a digest
//                        of each tensor.
//   process              instance_id of the last process that was a member,
//                        which may have contributed and died before it saved
//
// Contributions are not saved: they follow from anchors and parameters, and the
// coordinator knows how much is merged.
//
//   ASSIGN_OR_RETURN(auto store, IslandCheckpointStore::Open("/data/east"));
//   ASSIGN_OR_RETURN(std::optional<IslandState> state, store->Load());
//   ...
//   store->SaveLater(std::move(next), clock);   // beside training
//
// For use by one thread. All calls except SaveLater block on the disk.
#ifndef WORKER_ISLAND_CHECKPOINT_H_
#define WORKER_ISLAND_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/os/file.h"
#include "proto/island.pb.h"
#include "worker/inner_trainer.h"

namespace causeway {

// The checkpoint's name in its directory.
inline constexpr char kIslandCheckpointFile[] = "island.safetensors";

// Removes unfinished checkpoints of killed processes, which may take much
// memory. The caller must hold the directory's lock.
absl::Status RemoveUnfinishedCheckpoints(const std::string& directory);

struct IslandState {
  v1::IslandCheckpoint position;
  // The process that saved the state (JoinRequest.saved_by).
  uint64_t saved_by = 0;
  // In the order of common/tensors/model_layout.h.
  std::vector<float> anchors;
  TrainerState trainer;
};

class IslandCheckpointStore {
 public:
  // Makes the directory (not its parents) if it is missing. `patience` limits
  // the wait for a write; the limit is at least three times the shortest write.
  //   FAILED_PRECONDITION  Another process uses the directory.
  //   DATA_LOSS            Its file `process` is damaged or not an island's.
  static absl::StatusOr<std::unique_ptr<IslandCheckpointStore>> Open(
      const std::string& directory, absl::Duration patience = absl::Minutes(1));
  // Waits for a write in progress. If that takes too long, logs this, and
  // leaves the write and the directory's lock to a thread.
  ~IslandCheckpointStore();

  // Returns the last saved state, if any. Its instance_id names the last
  // process that was a member, even if another one saved the state. DATA_LOSS:
  // the checkpoint is damaged.
  absl::StatusOr<std::optional<IslandState>> Load() const {
    return LoadFrom(directory_);
  }
  // LoadFrom does the same for a directory that need not exist, be writable or
  // be free.
  static absl::StatusOr<std::optional<IslandState>> LoadFrom(
      const std::string& directory) {
    return Read(directory, /*values=*/true);
  }

  // Returns the run_step of the state that Load returns, without reading its
  // values. Errors are those of Load, but damaged values go unnoticed.
  absl::StatusOr<std::optional<uint64_t>> SavedStep() const;

  // Notes that this process has become a member. Call before it contributes.
  absl::Status SetProcess(uint64_t instance_id) const;

  // Returns whether a write is in progress, for which SaveLater would wait.
  bool busy() const;
  // Writes the state atomically, on its own thread, and measures the time by
  // `now`. The previous checkpoint stays until then. A failure is only logged:
  // the next write may succeed.
  void SaveLater(IslandState state, Clock now);
  // Returns the shortest time that a write of SaveLater has taken, free of
  // delays by other threads; InfiniteDuration before the first one. There must
  // be no write in progress.
  absl::Duration least_write() const;
  // Waits for a write in progress, then writes the state atomically.
  // UNAVAILABLE if the write takes too long.
  absl::Status Save(const IslandState& state) const;
  // Waits for a write in progress, then removes the checkpoint and the record
  // of the last process, if they exist, so that no process continues from them.
  // UNAVAILABLE if the write takes too long.
  absl::Status Remove();

 private:
  // The data of the writing thread, which may outlive the store.
  struct Writing {
    explicit Writing(FileLock held) : lock(std::move(held)) {}
    bool IsDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
      return !step.has_value();
    }

    absl::Mutex mu;
    std::optional<FileLock> lock ABSL_GUARDED_BY(mu);
    // The step of the state that is being written, if one is.
    std::optional<uint64_t> step ABSL_GUARDED_BY(mu);
    absl::Duration least ABSL_GUARDED_BY(mu) = absl::InfiniteDuration();
  };

  IslandCheckpointStore(std::string directory, FileLock lock,
                        absl::Duration patience)
      : directory_(std::move(directory)),
        patience_(patience),
        writing_(std::make_shared<Writing>(std::move(lock))) {}

  // Waits for a write in progress. UNAVAILABLE if it takes too long.
  absl::Status AwaitWritten() const;
  static std::string FilePath(const std::string& directory) {
    return directory + "/" + kIslandCheckpointFile;
  }
  static std::string ProcessPath(const std::string& directory) {
    return directory + "/process";
  }
  // Returns the last saved state, if any; its vectors are empty without
  // `values`.
  static absl::StatusOr<std::optional<IslandState>> Read(
      const std::string& directory, bool values);
  // Returns the last process that was a member, if any.
  static absl::StatusOr<std::optional<uint64_t>> ReadProcess(
      const std::string& directory);

  const std::string directory_;
  const absl::Duration patience_;
  const std::shared_ptr<Writing> writing_;
};

// Returns the newest state of `store` and `recent`, either of which may be
// null, and of the directory `copy`, unless that is "". Another process may
// write into `copy`. Does not read the values of older states. The instance_id
// of a copy's state is 0, because the process that made it may live. If the
// state in `recent` or `copy` is damaged, logs that and returns the next
// newest.
absl::StatusOr<std::optional<IslandState>> LoadNewest(
    const IslandCheckpointStore* store, const IslandCheckpointStore* recent,
    const std::string& copy = "");

}  // namespace causeway

#endif  // WORKER_ISLAND_CHECKPOINT_H_
