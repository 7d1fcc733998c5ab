// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// An island's local checkpoint: all that a process needs to go on where another
// one was, in one file of one directory:
//
//   lock                 held by the process that uses the directory
//   island.safetensors   parameters and anchors of the whole model, the moments
//                        of AdamW; all flat, F32. Its metadata holds the rest
//                        (IslandCheckpoint of proto/island.proto) and a digest
//                        of each tensor.
//   process              instance_id of the process that was a member last: it
//                        may have contributed, and died before it had saved
//
// Contributions are not kept: what they hold is the difference of anchors and
// parameters, and how much of it is merged is for the coordinator to say.
//
//   ASSIGN_OR_RETURN(auto store, IslandCheckpointStore::Open("/data/east"));
//   ASSIGN_OR_RETURN(std::optional<IslandState> state, store->Load());
//   ...
//   store->SaveLater(std::move(next));   // beside training
//
// For one thread, whose calls but SaveLater block on the disk.
#ifndef WORKER_ISLAND_CHECKPOINT_H_
#define WORKER_ISLAND_CHECKPOINT_H_

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file.h"
#include "proto/island.pb.h"
#include "worker/inner_trainer.h"

namespace causeway {

struct IslandState {
  v1::IslandCheckpoint position;
  // In the order of common/model_layout.h.
  std::vector<float> parameters;
  std::vector<float> anchors;
  TrainerState trainer;
};

class IslandCheckpointStore {
 public:
  // Makes the directory (not its parents) if there is none.
  //   FAILED_PRECONDITION  another process uses it.
  //   DATA_LOSS            its file `process` is damaged or somebody else's.
  static absl::StatusOr<std::unique_ptr<IslandCheckpointStore>> Open(
      const std::string& directory);
  // Waits for a write under way.
  ~IslandCheckpointStore();

  // Returns what was saved last; none if nothing was. Its instance_id is that
  // of the process that was a member last, which may not be the one that saved.
  // DATA_LOSS if it is damaged.
  absl::StatusOr<std::optional<IslandState>> Load() const;

  // This process has become a member. To be called before it contributes.
  absl::Status SetProcess(uint64_t instance_id) const;

  // Whether a write is under way: SaveLater would wait for it.
  bool busy() const;
  // Writes the state on a thread of its own, atomically: what was saved before
  // stays until then. What goes wrong is logged, and the next one may do
  // better.
  void SaveLater(IslandState state);
  // Removes what was saved, if anything, after a write under way: nobody goes
  // on from it.
  absl::Status Remove();

 private:
  IslandCheckpointStore(std::string directory, FileLock lock)
      : directory_(std::move(directory)), lock_(std::move(lock)) {}

  std::string FilePath() const { return directory_ + "/island.safetensors"; }
  std::string ProcessPath() const { return directory_ + "/process"; }
  absl::Status Save(const IslandState& state) const;
  // The process that was a member last; none if none was.
  absl::StatusOr<std::optional<uint64_t>> ReadProcess() const;

  const std::string directory_;
  const FileLock lock_;
  std::future<void> writing_;
};

}  // namespace causeway

#endif  // WORKER_ISLAND_CHECKPOINT_H_
