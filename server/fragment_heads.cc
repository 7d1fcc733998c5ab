// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/fragment_heads.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/os/thread_pool.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "quantization/codec_config.h"
#include "server/buffer_pool.h"
#include "server/footprint.h"
#include "server/fragment_merge.h"

namespace causeway {
namespace {

// Makes the disk serve this thread after all others.
void LowerDiskPriority() {
  // linux/ioprio.h: the lowest of eight levels of the class "best effort".
  constexpr int kThisThread = 1;
  constexpr int kBestEffort = 2 << 13;
  constexpr int kLowest = 7;
  syscall(SYS_ioprio_set, kThisThread, 0, kBestEffort | kLowest);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FragmentHeads>> FragmentHeads::Restore(
    StateDirectory& state, const RunRecord& run, int threads, bool evictable) {
  ThreadPool pool(threads);
  BufferPool memory(0, evictable ? state.path() : "");
  const uint64_t window = run.config.storage().update_history();
  std::vector<Fragment> fragments;
  for (const v1::Fragment& placed : run.plan.fragments()) {
    ASSIGN_OR_RETURN(const std::vector<CommitRecord> newest,
                     state.log().History(placed.id(), 1));
    // A power loss may have torn the updates that are not yet durable.
    const auto rewrite = [&](const CommitRecord& commit,
                             const MergedFragment& merged) {
      return commit.head.version() + window > newest[0].head.version()
                 ? WriteUpdateOf(state.fragments(),
                                 DownlinkSpec(run.config.synchronization()),
                                 merged)
                       .status()
                 : absl::OkStatus();
    };
    ASSIGN_OR_RETURN(
        RestoredFragment restored,
        RestoreHead(state, run, placed.id(), memory, pool, rewrite));
    fragments.push_back({.head = std::make_shared<const StoredFragment>(
                             std::move(restored.head)),
                         .record_bytes = restored.record_bytes});
  }
  // The constructor is private, so std::make_unique cannot call it.
  return std::unique_ptr<FragmentHeads>(
      new FragmentHeads(state, run.config, std::move(fragments)));
}

FragmentHeads::FragmentHeads(StateDirectory& state, const v1::RunConfig& config,
                             std::vector<Fragment> fragments)
    : state_(state),
      storage_(config.storage()),
      state_bytes_per_value_(StateBytesPerValue(config)),
      size_(fragments.size()),
      fragments_(std::move(fragments)) {}

FragmentHeads::~FragmentHeads() {
  {
    absl::MutexLock lock(&mu_);
    finishing_ = true;
    snapshot_failed_ = false;
  }
  if (snapshotter_.joinable()) snapshotter_.join();
}

void FragmentHeads::StartSnapshots(NoteSnapshot note) {
  {
    absl::MutexLock lock(&mu_);
    note_ = std::move(note);
  }
  if (snapshotter_.joinable()) return;
  snapshotter_ = std::thread([this] { SnapshotLoop(); });
}

bool FragmentHeads::Are(absl::Span<const CommitRecord> commits,
                        const v1::StorageConfig& storage) const {
  const auto is_head = [](const Fragment& fragment,
                          const CommitRecord& commit) {
    const v1::FragmentHead& head = fragment.head->contents().head;
    return head.fragment() == commit.head.fragment() &&
           head.version() == commit.head.version() &&
           head.digest() == commit.head.digest();
  };
  absl::MutexLock lock(&mu_);
  return storage.SerializeAsString() == storage_.SerializeAsString() &&
         std::equal(fragments_.begin(), fragments_.end(), commits.begin(),
                    commits.end(), is_head);
}

std::shared_ptr<const StoredFragment> FragmentHeads::Find(
    uint32_t fragment, uint64_t version) const {
  if (fragment >= size_) return nullptr;
  absl::MutexLock lock(&mu_);
  const Fragment& found = fragments_[fragment];
  for (const auto* const kept : {&found.head, &found.previous}) {
    if (*kept != nullptr && (*kept)->contents().head.version() == version) {
      return *kept;
    }
  }
  return nullptr;
}

void FragmentHeads::Install(StoredFragment after, uint64_t record_bytes) {
  const v1::FragmentHead head = after.contents().head;
  {
    absl::MutexLock lock(&mu_);
    Fragment& fragment = fragments_[head.fragment()];
    // Copies are made only under the lock.
    const bool is_read = fragment.head.use_count() > 1;
    fragment.previous = is_read ? std::move(fragment.head) : nullptr;
    fragment.head = std::make_shared<const StoredFragment>(std::move(after));
    fragment.record_bytes += record_bytes;
    snapshot_failed_ = false;
  }
  // An old file only takes space: if it cannot be removed now, the next start
  // removes it.
  const uint64_t kept = storage_.update_history();
  if (head.version() <= kept) return;
  const absl::Status removed =
      state_.fragments().RemoveUpdate(head.fragment(), head.version() - kept);
  LOG_IF(WARNING, !removed.ok()) << "cannot remove an old update: " << removed;
}

std::optional<uint32_t> FragmentHeads::SnapshotDue() const {
  if (snapshot_failed_) return std::nullopt;
  const double ratio = finishing_ ? 0 : storage_.snapshot_log_ratio();
  std::optional<uint32_t> due;
  double most = 0;
  for (uint32_t i = 0; i < fragments_.size(); ++i) {
    const Fragment& fragment = fragments_[i];
    const double bytes = static_cast<double>(fragment.record_bytes);
    const double size =
        state_bytes_per_value_ *
        static_cast<double>(fragment.head->contents().theta.size());
    if (bytes <= ratio * size || bytes / size <= most) continue;
    most = bytes / size;
    due = i;
  }
  return due;
}

void FragmentHeads::SnapshotLoop() {
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

absl::Status FragmentHeads::MakeSnapshot(uint32_t fragment) {
  std::shared_ptr<const StoredFragment> head;
  uint64_t record_bytes = 0;
  {
    absl::MutexLock lock(&mu_);
    head = fragments_[fragment].head;
    record_bytes = fragments_[fragment].record_bytes;
  }
  FragmentContents contents = head->contents();
  const uint64_t version = contents.head.version();
  SnapshotRecord snapshot{.head = contents.head};
  ASSIGN_OR_RETURN(snapshot.file, state_.fragments().WriteFragment(contents));
  RETURN_IF_ERROR(state_.fragments().SyncUpdates(
      fragment,
      version - std::min<uint64_t>(version, storage_.update_history()),
      version));
  NoteSnapshot note;
  {
    absl::MutexLock lock(&mu_);
    note = note_;
  }
  RETURN_IF_ERROR(note(std::move(snapshot)));
  {
    absl::MutexLock lock(&mu_);
    fragments_[fragment].record_bytes -= record_bytes;
  }
  return state_.RemoveOldSnapshot(fragment, storage_.versions_kept());
}

}  // namespace causeway
