// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/fragment_heads.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/time/time.h"
#include "common/os/thread_pool.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "outer_optimizer/sync_schedule.h"
#include "server/buffer_pool.h"
#include "server/footprint.h"

namespace causeway {
namespace {

// The file of an update waits for this long, because islands fetch the update
// at once, which may need the processors.
constexpr absl::Duration kPause = absl::Milliseconds(100);

// The most updates of a fragment that wait in memory while a snapshot is
// written. Installing one more writes the oldest.
constexpr size_t kMostUnwritten = 2;

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
  ASSIGN_OR_RETURN(const SyncSchedule schedule,
                   SyncSchedule::Create(run.config, run.plan));
  ThreadPool pool(threads);
  const uint64_t window = run.config.storage().update_history();
  std::vector<Fragment> fragments;
  for (const v1::Fragment& placed : run.plan.fragments()) {
    ASSIGN_OR_RETURN(const std::vector<CommitRecord> newest,
                     state.log().History(placed.id(), 1));
    BufferPool memory(UINT64_MAX, evictable ? state.path() : "");
    // The updates since the snapshot may be torn or not written yet.
    const auto rewrite = [&](const CommitRecord& commit,
                             const MergedFragment& merged) {
      return commit.head.version() + window > newest[0].head.version()
                 ? state.fragments().WriteUpdate(merged.update.contents())
                 : absl::OkStatus();
    };
    ASSIGN_OR_RETURN(
        RestoredFragment restored,
        RestoreHead(state, run, placed.id(), memory, pool, rewrite));
    fragments.push_back({.head = std::make_shared<const StoredFragment>(
                             std::move(restored.head)),
                         .last_version = schedule.FinalVersion(placed.id()),
                         .recorded = restored.repeated});
  }
  // The constructor is private, so std::make_unique cannot call it.
  return std::unique_ptr<FragmentHeads>(
      new FragmentHeads(state, run.config, std::move(fragments)));
}

std::shared_ptr<const StoredUpdate> FragmentHeads::Fragment::OldestWaiting()
    const {
  for (const auto& [version, waiting] : unwritten) {
    if (!waiting.is_being_written) return waiting.update;
  }
  return nullptr;
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
  if (writer_.joinable()) writer_.join();
}

void FragmentHeads::StartSnapshots(NoteSnapshot note) {
  {
    absl::MutexLock lock(&mu_);
    note_ = std::move(note);
  }
  if (writer_.joinable()) return;
  writer_ = std::thread([this] { WriteLoop(); });
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

void FragmentHeads::Install(StoredFragment after, StoredUpdate update,
                            const RecordedMerges& merge) {
  const v1::FragmentHead head = after.contents().head;
  const uint64_t kept = storage_.update_history();
  const uint64_t gone = head.version() - std::min(head.version(), kept);
  std::shared_ptr<const StoredUpdate> overdue;
  {
    absl::MutexLock lock(&mu_);
    Fragment& fragment = fragments_[head.fragment()];
    // Copies are made only under the lock.
    const bool is_read = fragment.head.use_count() > 1;
    fragment.previous = is_read ? std::move(fragment.head) : nullptr;
    fragment.head = std::make_shared<const StoredFragment>(std::move(after));
    fragment.recorded.Add(merge);
    fragment.unwritten[head.version()] = {
        .update = std::make_shared<const StoredUpdate>(std::move(update))};
    fragment.unwritten.erase(fragment.unwritten.begin(),
                             fragment.unwritten.upper_bound(gone));
    if (fragment.unwritten.size() > kMostUnwritten) {
      overdue = fragment.OldestWaiting();
      fragment.unwritten[overdue->contents().head.version()].is_being_written =
          true;
    }
    snapshot_failed_ = false;
  }
  if (overdue != nullptr) WriteUpdate(overdue->contents());
  if (gone > 0) RemoveUpdate(head.fragment(), gone);
}

absl::StatusOr<std::shared_ptr<const StoredUpdate>> FragmentHeads::OpenUpdate(
    const CommitRecord& commit) {
  const v1::FragmentHead& head = commit.head;
  std::string run_id;
  {
    absl::MutexLock lock(&mu_);
    const Fragment& fragment = fragments_[head.fragment()];
    const auto found = fragment.unwritten.find(head.version());
    if (found != fragment.unwritten.end()) return found->second.update;
    // If a commit fails, its version is made again with other contents.
    const std::shared_ptr<const StoredUpdate> opened = fragment.opened.lock();
    if (opened != nullptr &&
        opened->contents().head.version() == head.version() &&
        opened->contents().head.digest() == head.digest()) {
      return opened;
    }
    run_id = fragment.head->contents().run_id;
  }
  ASSIGN_OR_RETURN(StoredUpdate stored, state_.fragments().OpenUpdate(
                                            commit.update_file, run_id, head));
  auto update = std::make_shared<const StoredUpdate>(std::move(stored));
  absl::MutexLock lock(&mu_);
  fragments_[head.fragment()].opened = update;
  return update;
}

// An old file only takes space: if it cannot be removed now, the next start
// removes it.
void FragmentHeads::RemoveUpdate(uint32_t fragment, uint64_t version) const {
  const absl::Status removed =
      state_.fragments().RemoveUpdate(fragment, version);
  LOG_IF(WARNING, !removed.ok()) << "cannot remove an old update: " << removed;
}

std::optional<uint32_t> FragmentHeads::SnapshotDue() const {
  if (snapshot_failed_) return std::nullopt;
  std::optional<uint32_t> due;
  double most = 0;
  absl::Duration replay;
  absl::Duration most_replay;
  std::optional<uint32_t> longest;
  for (uint32_t i = 0; i < fragments_.size(); ++i) {
    const RecordedMerges& recorded = fragments_[i].recorded;
    replay += recorded.duration;
    // Without its records, an update that is not in a file could be lost.
    if (!fragments_[i].unwritten.empty()) continue;
    if (recorded.duration > most_replay) {
      most_replay = recorded.duration;
      longest = i;
    }
    const FragmentContents& head = fragments_[i].head->contents();
    const bool is_last =
        finishing_ || head.head.version() == fragments_[i].last_version;
    const double ratio = is_last ? 0 : storage_.snapshot_log_ratio();
    const double bytes = static_cast<double>(recorded.bytes);
    const double size =
        state_bytes_per_value_ * static_cast<double>(head.theta.size());
    if (bytes <= ratio * size || bytes / size <= most) continue;
    most = bytes / size;
    due = i;
  }
  if (due.has_value()) return due;
  if (replay <= absl::Seconds(storage_.replay_seconds())) return std::nullopt;
  return longest;
}

std::optional<FragmentHeads::Work> FragmentHeads::NextWork() const {
  for (const Fragment& fragment : fragments_) {
    if (auto update = fragment.OldestWaiting()) {
      return Work{.update = std::move(update)};
    }
  }
  const std::optional<uint32_t> due = SnapshotDue();
  if (!due.has_value()) return std::nullopt;
  return Work{.head = fragments_[*due].head,
              .recorded = fragments_[*due].recorded};
}

bool FragmentHeads::IsUrgent() const {
  return finishing_ || absl::c_any_of(fragments_, [](const Fragment& fragment) {
           return fragment.unwritten.size() > 1;
         });
}

void FragmentHeads::WriteLoop() {
  LowerDiskPriority();
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      const auto is_due = [this] {
        mu_.AssertReaderHeld();
        return finishing_ || NextWork().has_value();
      };
      mu_.Await(absl::Condition(&is_due));
      const auto is_urgent = [this] {
        mu_.AssertReaderHeld();
        return IsUrgent();
      };
      mu_.AwaitWithTimeout(absl::Condition(&is_urgent), kPause);
    }
    std::optional<Work> work;
    do {
      {
        absl::MutexLock lock(&mu_);
        work = NextWork();
        if (!work.has_value() && finishing_) return;
        if (work.has_value() && work->update != nullptr) {
          const v1::FragmentHead& head = work->update->contents().head;
          fragments_[head.fragment()]
              .unwritten[head.version()]
              .is_being_written = true;
        }
      }
      if (work.has_value()) Write(*work);
    } while (work.has_value());
  }
}

void FragmentHeads::Write(const Work& work) {
  if (work.update != nullptr) return WriteUpdate(work.update->contents());
  const absl::Status made = MakeSnapshot(work);
  if (made.ok()) return;
  LOG(ERROR) << "cannot make a snapshot of fragment "
             << work.head->contents().head.fragment()
             << ", so the records of its merges stay: " << made;
  absl::MutexLock lock(&mu_);
  snapshot_failed_ = true;
}

void FragmentHeads::WriteUpdate(const UpdateContents& update) {
  const uint32_t fragment = update.head.fragment();
  const uint64_t version = update.head.version();
  const absl::Status written = state_.fragments().WriteUpdate(update);
  LOG_IF(ERROR, !written.ok())
      << "cannot write the update to version " << version << " of fragment "
      << fragment
      << ", so islands that lack it fetch the parameters: " << written;
  uint64_t newest = 0;
  {
    absl::MutexLock lock(&mu_);
    fragments_[fragment].unwritten.erase(version);
    newest = fragments_[fragment].head->contents().head.version();
  }
  // Later versions may have come meanwhile.
  if (version + storage_.update_history() <= newest) {
    RemoveUpdate(fragment, version);
  }
}

absl::Status FragmentHeads::MakeSnapshot(const Work& work) {
  FragmentContents contents = work.head->contents();
  const uint32_t fragment = contents.head.fragment();
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
    RecordedMerges& recorded = fragments_[fragment].recorded;
    recorded.bytes -= work.recorded.bytes;
    recorded.duration -= work.recorded.duration;
  }
  return state_.RemoveOldSnapshot(fragment, storage_.versions_kept());
}

}  // namespace causeway
