// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Keeps the newest changes of a run's log in memory for followers, and how far
// each follower is.
//
//   log.Publish([&](auto change) { feed.Add(std::move(change)); });
//   ...
//   feed.Announce(head, record);
//   // Write the record to the disk, and the change to the log.
//   feed.AwaitDurable(log.Position().index(), sync_replicas);
//
// A follower is in sync once it has everything, or lacks only changes of the
// last kCaughtUpWithin: with changes faster than its round trip it never has
// the newest one. Once it has lacked a change for kBehindAfter without a
// message from it, or for kBehindAtMost in any case, versions no longer wait
// for it until it has caught up again. A follower that receives or repeats a
// large merge says so every second. Where coordinators are elected
// (server/election), the feed only proposes changes of this set (DueInSync),
// and versions wait for all followers of SetInSync, connected or not.
//
// Thread-safe.
#ifndef SERVER_REPLICATION_LOG_FEED_H_
#define SERVER_REPLICATION_LOG_FEED_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/listeners.h"
#include "common/os/file.h"
#include "proto/fragment.pb.h"
#include "proto/replication.pb.h"
#include "proto/status.pb.h"
#include "server/rules/coordinator.h"

namespace causeway {

class LogFeed {
 public:
  static constexpr absl::Duration kBehindAfter = absl::Seconds(5);
  // A merge of some billion values takes minutes to send and to repeat.
  static constexpr absl::Duration kBehindAtMost = absl::Minutes(5);
  static constexpr absl::Duration kCaughtUpWithin = absl::Seconds(1);
  // The kept changes take about this many bytes.
  static constexpr uint64_t kMostBytes = 16 << 20;

  // The record of a merge whose change may not have come yet. If the commit
  // fails, it never comes.
  struct AnnouncedRecord {
    // 1, 2, ... in the order of announcement.
    uint64_t number = 0;
    v1::FragmentHead head;
    std::shared_ptr<const MappedFile> file;
  };

  ~LogFeed();

  // --- The log. ---

  // `position` is the log's position before the first call of Add. If the
  // coordinator is elected, nothing is durable or begun before SetInSync.
  void Begin(const v1::LogPosition& position, bool is_elected = false);
  void Add(std::shared_ptr<const v1::LogChange> change);

  // Announces the record of the merge to a fragment's next version, in place of
  // the fragment's previous record. Followers may get it at once.
  void Announce(const v1::FragmentHead& head,
                std::shared_ptr<const MappedFile> file);
  // Returns the announced records whose changes have not come; none while there
  // is a change after the first `index`, because that change goes first.
  std::vector<AnnouncedRecord> RecordsAfter(uint64_t index) const;
  // Returns whether this is the number of the record that the commit of `head`
  // followed.
  bool IsNewestRecord(const v1::FragmentHead& head, uint64_t number) const;

  // Returns the position of the newest change.
  v1::LogPosition Newest() const {
    absl::MutexLock lock(&mu_);
    return kept_.empty() ? begin_ : kept_.back().change->position();
  }
  // Returns whether a log at this position lacks only changes that are kept.
  bool Continues(const v1::LogPosition& position) const;
  // Returns the change after the first `index`, or null if there is none yet.
  // NOT_FOUND if it is no longer kept.
  absl::StatusOr<std::shared_ptr<const v1::LogChange>> After(
      uint64_t index) const;

  // Returns listeners for changes and published versions. A thread of the feed,
  // which the first call starts, notifies them.
  Listeners& news();
  // Notifies the listeners that a version is published.
  void Published();
  // Set and return the revoked certificates to send to followers; null if never
  // set.
  void SetRevoked(v1::RevokedCertificates revoked);
  std::shared_ptr<const v1::RevokedCertificates> revoked() const;

  // --- Followers. ---

  // Says where a follower serves reads; both are empty if it does not.
  struct Place {
    std::string region;
    std::string address;
  };
  // ALREADY_EXISTS if a follower has this name.
  absl::Status Join(const std::string& name, const std::string& peer,
                    absl::Time now, Place place = {});
  // Returns the address of a follower in `region` that is due in sync and has
  // not lacked a change for kBehindAfter; empty if there is none. Keys are
  // spread over the followers of a region.
  std::string FindNear(absl::string_view region, absl::string_view key) const;
  // Notes that the first `index` changes are durable at the follower, and that
  // it is at work. The index may be lower than before.
  void Acknowledge(const std::string& name, uint64_t index);
  void CountSent(const std::string& name, uint64_t bytes);
  void Leave(const std::string& name, const std::string& why);

  // Determines which followers are behind. A change counts from the first call
  // after it. Returns the events since the last call. Call it often.
  std::vector<CoordinatorEvent> Tick(absl::Time now);

  // Makes versions wait for these followers, until the next call.
  void SetInSync(const std::set<std::string>& names);
  // Returns the names that should be in sync.
  std::set<std::string> DueInSync() const;

  // Waits until `replicas` followers, or all that are in sync if these are
  // fewer, have made the first `index` changes durable; after SetInSync, until
  // all in sync have.
  //   UNAVAILABLE  Stop was called before.
  absl::Status AwaitDurable(uint64_t index, uint32_t replicas);
  // Does the same without waiting: returns whether the changes are durable.
  bool TryDurable(uint64_t index, uint32_t replicas);
  // Returns whether all followers of SetInSync have what the log began with.
  // Until then, its versions may be in no other log and must not be published.
  bool IsBegun();
  // Returns whether these followers have all changes that were reported as
  // durable.
  bool HavePublished(const std::set<std::string>& names) const;
  // Ends all waits, now and later.
  void Stop() {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
  }

  // Describes the followers, ordered by name.
  std::vector<v1::FollowerStatus> Report(absl::Time now) const;

 private:
  struct Kept {
    std::shared_ptr<const v1::LogChange> change;
    // The time at which Tick first saw the change.
    absl::Time at = absl::InfiniteFuture();
  };
  struct Follower {
    std::string peer;
    Place place;
    bool is_connected = false;
    v1::FollowerStatus::State state = v1::FollowerStatus::CATCHING_UP;
    // Is true if it should be in sync.
    bool is_due = false;
    uint64_t durable = 0;
    uint64_t bytes_sent = 0;
    // The time from which changes are expected to reach it.
    absl::Time joined_at = absl::InfinitePast();
    // Is true if Acknowledge was called since the last Tick.
    bool is_heard = false;
    // The time of the first Tick after the last Acknowledge of the connection.
    absl::Time heard_at = absl::InfinitePast();
    // Is true if it had lacked a change for kBehindAfter at the last Tick.
    bool is_late = false;
  };

  // Returns the time at which Tick first saw the change after the first
  // `index`; infinite future if it has seen none, infinite past if the change
  // is no longer kept.
  absl::Time SeenAfter(uint64_t index) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Returns the time since which a follower has lacked a change; infinite
  // future if it lacks none that Tick has seen.
  absl::Time LacksSince(const Follower& follower) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return std::max(follower.joined_at, SeenAfter(follower.durable));
  }
  void MakeDue(const std::string& name, Follower& follower)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Change the state of a follower and record it.
  void MarkInSync(const std::string& name, Follower& follower)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MarkBehind(const std::string& name, Follower& follower)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NotifyLoop();
  uint64_t NewestIndex() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return begin_.index() + kept_.size();
  }
  bool IsDurable(uint64_t index, uint32_t replicas) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // If the changes are durable, notes that they may be published, and returns
  // true.
  bool PublishIfDurable(uint64_t index, uint32_t replicas)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  v1::LogPosition begin_ ABSL_GUARDED_BY(mu_);
  std::deque<Kept> kept_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // By fragment, the record announced last. It has no file once its change has
  // come.
  struct Announced {
    AnnouncedRecord record;
    bool is_committed = false;
  };
  std::map<uint32_t, Announced> announced_ ABSL_GUARDED_BY(mu_);
  uint64_t announcements_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, Follower> followers_ ABSL_GUARDED_BY(mu_);
  // The number of changes that the log began with.
  uint64_t first_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_elected_ ABSL_GUARDED_BY(mu_) = false;
  bool is_begun_ ABSL_GUARDED_BY(mu_) = false;
  // The number of changes that may be published.
  uint64_t published_ ABSL_GUARDED_BY(mu_) = 0;
  // Is true once SetInSync was called.
  bool is_set_ ABSL_GUARDED_BY(mu_) = false;
  // The followers that left before they were in sync. Their further tries, of
  // which there may be many, as with a full disk, are not recorded.
  std::set<std::string> unsteady_ ABSL_GUARDED_BY(mu_);
  std::vector<CoordinatorEvent> events_ ABSL_GUARDED_BY(mu_);
  // The number of changes that listeners were notified of.
  uint64_t notified_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<const v1::RevokedCertificates> revoked_ ABSL_GUARDED_BY(mu_);
  // Is true if listeners must be notified of something other than changes.
  bool is_woken_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  Listeners news_;
  std::once_flag notifier_started_;
  std::thread notifier_;
};

}  // namespace causeway

#endif  // SERVER_REPLICATION_LOG_FEED_H_
