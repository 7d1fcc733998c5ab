// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Engine that makes snapshots, on the snapshot thread.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/status_macros.h"
#include "glog/logging.h"
#include "server/engine.h"
#include "server/footprint.h"

namespace causeway {
namespace {

// Lets the disk serve this thread after all others.
void LowerDiskPriority() {
  // linux/ioprio.h: the lowest of eight levels of the class "best effort".
  constexpr int kThisThread = 1;
  constexpr int kBestEffort = 2 << 13;
  constexpr int kLowest = 7;
  syscall(SYS_ioprio_set, kThisThread, 0, kBestEffort | kLowest);
}

}  // namespace

std::optional<uint32_t> Engine::SnapshotDue() const {
  if (snapshot_failed_) return std::nullopt;
  const double ratio =
      finishing_ ? 0 : options_.config.storage().snapshot_log_ratio();
  const double state = StateBytesPerValue(options_.config);
  std::optional<uint32_t> due;
  double most = 0;
  for (uint32_t i = 0; i < fragments_.size(); ++i) {
    const double bytes = static_cast<double>(fragments_[i].record_bytes);
    const double size =
        state *
        static_cast<double>(fragments_[i].head->contents().theta.size());
    if (bytes <= ratio * size || bytes / size <= most) continue;
    most = bytes / size;
    due = i;
  }
  return due;
}

void Engine::SnapshotLoop() {
  LowerDiskPriority();
  while (true) {
    std::optional<uint32_t> due;
    {
      absl::MutexLock lock(&mu_);
      const auto is_due = [this] {
        mu_.AssertReaderHeld();
        return finishing_ || SnapshotDue().has_value();
      };
      mu_.Await(absl::Condition(&is_due));
      due = SnapshotDue();
      if (!due.has_value()) return;
    }
    const absl::Status made = MakeSnapshot(*due);
    if (made.ok()) continue;
    LOG(ERROR) << "cannot make a snapshot of fragment " << *due
               << ", so the records of its merges stay: " << made;
    absl::MutexLock lock(&mu_);
    snapshot_failed_ = true;
  }
}

absl::Status Engine::MakeSnapshot(uint32_t fragment) {
  std::shared_ptr<const StoredFragment> head;
  uint64_t record_bytes = 0;
  {
    absl::MutexLock lock(&mu_);
    head = fragments_[fragment].head;
    record_bytes = fragments_[fragment].record_bytes;
  }
  FragmentContents contents = head->contents();
  const v1::StorageConfig& storage = options_.config.storage();
  const uint64_t version = contents.head.version();
  SnapshotRecord snapshot{.head = contents.head};
  ASSIGN_OR_RETURN(snapshot.file, state_->fragments().WriteFragment(contents));
  RETURN_IF_ERROR(state_->fragments().SyncUpdates(
      fragment, version - std::min<uint64_t>(version, storage.update_history()),
      version));
  {
    absl::MutexLock lock(&mu_);
    unwritten_.snapshots.push_back(std::move(snapshot));
    Effects effects;
    RETURN_IF_ERROR(Persist(effects));
    fragments_[fragment].record_bytes -= record_bytes;
  }
  return state_->RemoveOldSnapshot(fragment, storage.versions_kept());
}

}  // namespace causeway
