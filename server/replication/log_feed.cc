// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replication/log_feed.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "common/checksum.h"

namespace causeway {

LogFeed::~LogFeed() {
  Stop();
  if (notifier_.joinable()) notifier_.join();
}

void LogFeed::Begin(const v1::LogPosition& position, bool is_elected) {
  absl::MutexLock lock(&mu_);
  is_elected_ = is_elected;
  begin_ = position;
  first_ = notified_ = position.index();
}

void LogFeed::NotifyLoop() {
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      const auto is_due = [this] {
        mu_.AssertReaderHeld();
        return stopped_ || is_woken_ || notified_ < NewestIndex();
      };
      mu_.Await(absl::Condition(&is_due));
      if (stopped_) return;
      is_woken_ = false;
      notified_ = NewestIndex();
    }
    news_.Notify();
  }
}

void LogFeed::Announce(const v1::FragmentHead& head,
                       std::shared_ptr<const MappedFile> file) {
  absl::MutexLock lock(&mu_);
  announced_[head.fragment()] = {
      .record = {++announcements_, head, std::move(file)}};
  is_woken_ = true;
}

std::vector<LogFeed::AnnouncedRecord> LogFeed::RecordsAfter(
    uint64_t index) const {
  absl::MutexLock lock(&mu_);
  std::vector<AnnouncedRecord> records;
  if (index < NewestIndex()) return records;
  for (const auto& [fragment, announced] : announced_) {
    if (!announced.is_committed) records.push_back(announced.record);
  }
  return records;
}

bool LogFeed::IsNewestRecord(const v1::FragmentHead& head,
                             uint64_t number) const {
  absl::MutexLock lock(&mu_);
  const auto found = announced_.find(head.fragment());
  return found != announced_.end() && found->second.record.number == number &&
         found->second.record.head.version() == head.version();
}

void LogFeed::Add(std::shared_ptr<const v1::LogChange> change) {
  absl::MutexLock lock(&mu_);
  for (const v1::FragmentHead& head : change->commits()) {
    const auto announced = announced_.find(head.fragment());
    if (announced == announced_.end()) continue;
    announced->second.record.file = nullptr;
    announced->second.is_committed = true;
  }
  bytes_ += change->rows().size();
  kept_.push_back({.change = std::move(change)});
  while (bytes_ > kMostBytes && kept_.size() > 1) {
    begin_ = kept_.front().change->position();
    bytes_ -= kept_.front().change->rows().size();
    kept_.pop_front();
  }
}

bool LogFeed::Continues(const v1::LogPosition& position) const {
  absl::MutexLock lock(&mu_);
  if (position.index() < begin_.index()) return false;
  const uint64_t skipped = position.index() - begin_.index();
  if (skipped > kept_.size()) return false;
  return position.hash() ==
         (skipped == 0 ? begin_.hash()
                       : kept_[skipped - 1].change->position().hash());
}

absl::StatusOr<std::shared_ptr<const v1::LogChange>> LogFeed::After(
    uint64_t index) const {
  absl::MutexLock lock(&mu_);
  if (index < begin_.index()) {
    return absl::NotFoundError(
        absl::Substitute("change $0 of the log is no longer kept", index + 1));
  }
  const uint64_t skipped = index - begin_.index();
  return skipped < kept_.size() ? kept_[skipped].change : nullptr;
}

Listeners& LogFeed::news() {
  std::call_once(notifier_started_,
                 [this] { notifier_ = std::thread([this] { NotifyLoop(); }); });
  return news_;
}

void LogFeed::Published() {
  absl::MutexLock lock(&mu_);
  is_woken_ = true;
}

void LogFeed::SetRevoked(v1::RevokedCertificates revoked) {
  absl::MutexLock lock(&mu_);
  revoked_ =
      std::make_shared<const v1::RevokedCertificates>(std::move(revoked));
  is_woken_ = true;
}

std::shared_ptr<const v1::RevokedCertificates> LogFeed::revoked() const {
  absl::MutexLock lock(&mu_);
  return revoked_;
}

absl::Status LogFeed::Join(const std::string& name, const std::string& peer,
                           absl::Time now, Place place) {
  absl::MutexLock lock(&mu_);
  Follower& follower = followers_[name];
  if (follower.is_connected) {
    return absl::AlreadyExistsError(absl::Substitute(
        "follower $0 is already connected, from $1; if that is not this one, "
        "choose another --name",
        name, follower.peer));
  }
  follower.is_connected = true;
  follower.peer = peer;
  follower.place = std::move(place);
  // Reconnecting does not make versions wait longer for a follower.
  if (!follower.is_due) follower.joined_at = now;
  follower.is_heard = false;
  follower.heard_at = absl::InfinitePast();
  if (!unsteady_.contains(name)) {
    events_.push_back(
        {"follower_joined", "",
         absl::StrCat("follower ", name, " has connected, from ", peer)});
  }
  return absl::OkStatus();
}

std::string LogFeed::FindNear(absl::string_view region,
                              absl::string_view key) const {
  if (region.empty()) return "";
  absl::MutexLock lock(&mu_);
  std::vector<const std::string*> near;
  for (const auto& [name, follower] : followers_) {
    if (follower.place.region == region && follower.is_connected &&
        follower.is_due && !follower.is_late) {
      near.push_back(&follower.place.address);
    }
  }
  return near.empty() ? "" : *near[Crc32c(key) % near.size()];
}

void LogFeed::Acknowledge(const std::string& name, uint64_t index) {
  absl::MutexLock lock(&mu_);
  const auto found = followers_.find(name);
  if (found == followers_.end()) return;
  Follower& follower = found->second;
  follower.is_heard = true;
  follower.durable = std::max(follower.durable, index);
  if (!follower.is_due && follower.durable >= NewestIndex()) {
    MakeDue(name, follower);
  }
}

void LogFeed::MakeDue(const std::string& name, Follower& follower) {
  follower.is_due = true;
  unsteady_.erase(name);
  if (!is_set_) MarkInSync(name, follower);
}

void LogFeed::MarkInSync(const std::string& name, Follower& follower) {
  follower.state = v1::FollowerStatus::IN_SYNC;
  events_.push_back(
      {"follower_in_sync", "", absl::StrCat("follower ", name, " is in sync")});
}

void LogFeed::MarkBehind(const std::string& name, Follower& follower) {
  follower.state = v1::FollowerStatus::BEHIND;
  events_.push_back(
      {"follower_behind", "",
       absl::Substitute("follower $0 has lacked changes for at least $1; no "
                        "version waits for it until it has caught up",
                        name, absl::FormatDuration(kBehindAfter))});
}

void LogFeed::SetInSync(const std::set<std::string>& names) {
  absl::MutexLock lock(&mu_);
  is_set_ = true;
  for (const std::string& name : names) {
    const auto [at, is_new] = followers_.try_emplace(name);
    Follower& follower = at->second;
    // An absent follower has some time to come.
    if (is_new) follower.is_due = true;
    if (follower.state != v1::FollowerStatus::IN_SYNC) {
      MarkInSync(name, follower);
    }
  }
  for (auto at = followers_.begin(); at != followers_.end();) {
    auto& [name, follower] = *at;
    if (follower.state == v1::FollowerStatus::IN_SYNC &&
        !names.contains(name)) {
      MarkBehind(name, follower);
    }
    at = follower.is_connected || names.contains(name) ? std::next(at)
                                                       : followers_.erase(at);
  }
}

std::set<std::string> LogFeed::DueInSync() const {
  absl::MutexLock lock(&mu_);
  std::set<std::string> due;
  for (const auto& [name, follower] : followers_) {
    if (follower.is_due) due.insert(name);
  }
  return due;
}

void LogFeed::CountSent(const std::string& name, uint64_t bytes) {
  absl::MutexLock lock(&mu_);
  const auto found = followers_.find(name);
  if (found != followers_.end()) found->second.bytes_sent += bytes;
}

void LogFeed::Leave(const std::string& name, const std::string& why) {
  absl::MutexLock lock(&mu_);
  const auto found = followers_.find(name);
  if (found == followers_.end() || !found->second.is_connected) return;
  found->second.is_connected = false;
  const bool is_news = found->second.is_due || unsteady_.insert(name).second;
  // Versions keep waiting for a follower that SetInSync has named.
  if (!is_set_ || found->second.state != v1::FollowerStatus::IN_SYNC) {
    followers_.erase(found);
  }
  if (!is_news) return;
  events_.push_back(
      {"follower_left", "",
       absl::StrCat("follower ", name, " has disconnected: ", why)});
}

absl::Time LogFeed::SeenAfter(uint64_t index) const {
  if (index >= NewestIndex()) return absl::InfiniteFuture();
  if (index < begin_.index()) return absl::InfinitePast();
  return kept_[index - begin_.index()].at;
}

std::vector<CoordinatorEvent> LogFeed::Tick(absl::Time now) {
  absl::MutexLock lock(&mu_);
  for (auto kept = kept_.rbegin();
       kept != kept_.rend() && kept->at == absl::InfiniteFuture(); ++kept) {
    kept->at = now;
  }
  for (auto& [name, follower] : followers_) {
    // Count from now for a follower that was set before it came.
    if (follower.joined_at == absl::InfinitePast()) follower.joined_at = now;
    if (std::exchange(follower.is_heard, false)) follower.heard_at = now;
    const absl::Duration lacks = now - LacksSince(follower);
    follower.is_late = lacks >= kBehindAfter;
    if (!follower.is_due) {
      if (now - SeenAfter(follower.durable) < kCaughtUpWithin) {
        MakeDue(name, follower);
      }
    } else if (lacks >= kBehindAtMost ||
               (follower.is_late && now - follower.heard_at >= kBehindAfter)) {
      follower.is_due = false;
      if (!is_set_) MarkBehind(name, follower);
    }
  }
  return std::exchange(events_, {});
}

bool LogFeed::IsDurable(uint64_t index, uint32_t replicas) const {
  // It is unknown which followers must have it.
  if (is_elected_ && !is_set_) return false;
  uint32_t in_sync = 0;
  uint32_t durable = 0;
  for (const auto& [name, follower] : followers_) {
    if (follower.state != v1::FollowerStatus::IN_SYNC) continue;
    ++in_sync;
    durable += follower.durable >= index ? 1 : 0;
  }
  return durable >= (is_set_ ? in_sync : std::min(in_sync, replicas));
}

absl::Status LogFeed::AwaitDurable(uint64_t index, uint32_t replicas) {
  absl::MutexLock lock(&mu_);
  const auto is_durable = [&] {
    mu_.AssertReaderHeld();
    return stopped_ || IsDurable(index, replicas);
  };
  mu_.Await(absl::Condition(&is_durable));
  if (PublishIfDurable(index, replicas)) return absl::OkStatus();
  return absl::UnavailableError(
      "the coordinator is exiting; followers may lack the version");
}

bool LogFeed::PublishIfDurable(uint64_t index, uint32_t replicas) {
  if (!IsDurable(index, replicas)) return false;
  published_ = std::max(published_, index);
  return true;
}

bool LogFeed::TryDurable(uint64_t index, uint32_t replicas) {
  absl::MutexLock lock(&mu_);
  return PublishIfDurable(index, replicas);
}

bool LogFeed::IsBegun() {
  absl::MutexLock lock(&mu_);
  if (!is_begun_) is_begun_ = PublishIfDurable(first_, 0);
  return is_begun_;
}

bool LogFeed::HavePublished(const std::set<std::string>& names) const {
  absl::MutexLock lock(&mu_);
  return absl::c_all_of(names, [this](const std::string& name) {
    mu_.AssertReaderHeld();
    const auto found = followers_.find(name);
    return found != followers_.end() && found->second.durable >= published_;
  });
}

std::vector<v1::FollowerStatus> LogFeed::Report(absl::Time now) const {
  absl::MutexLock lock(&mu_);
  const uint64_t newest = NewestIndex();
  std::vector<v1::FollowerStatus> report;
  for (const auto& [name, follower] : followers_) {
    v1::FollowerStatus& status = report.emplace_back();
    status.set_name(name);
    status.set_peer(follower.peer);
    status.set_state(follower.state);
    status.set_changes_behind(newest - std::min(newest, follower.durable));
    const absl::Time since = LacksSince(follower);
    // The next Tick sets this time for a follower that has not come yet.
    if (since > absl::InfinitePast() && since < absl::InfiniteFuture()) {
      status.set_seconds_behind(absl::ToDoubleSeconds(now - since));
    }
    status.set_bytes_sent(follower.bytes_sent);
    status.set_region(follower.place.region);
    status.set_at_work(follower.is_due && follower.is_late);
  }
  return report;
}

}  // namespace causeway
