// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/election/election.h"

#include <algorithm>
#include <utility>

#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// The time after which the log says again that etcd does not answer.
constexpr absl::Duration kTellAgain = absl::Minutes(1);

}  // namespace

Election::Election(Options options)
    : options_(std::move(options)),
      etcd_(options_.etcd),
      book_(options_.prefix, options_.self),
      thread_([this] { Loop(); }) {}

Election::~Election() {
  stop_.Notify();
  thread_.join();
}

uint64_t Election::ReplacedBy() const {
  absl::MutexLock lock(&mu_);
  return book_.ReplacedBy();
}

void Election::Refresh() {
  etcdserverpb::TxnRequest reading;
  {
    absl::MutexLock lock(&mu_);
    reading = book_.Reading();
  }
  const auto answer = etcd_.Transact(reading);
  absl::MutexLock lock(&mu_);
  const bool was_ok = book_.view().ok();
  book_.NoteRead(answer);
  const bool is_ok = book_.view().ok();
  const bool is_news = was_ok != is_ok || told_at_ == absl::InfinitePast();
  const absl::Time now = options_.now();
  if (!is_news && (is_ok || now - told_at_ < kTellAgain)) return;
  told_at_ = now;
  LOG_IF(INFO, is_ok) << "etcd answers";
  LOG_IF(WARNING, !is_ok) << book_.Unread();
}

void Election::Loop() {
  const absl::Duration pause =
      std::min(options_.lease / 10, absl::Milliseconds(500));
  do {
    Refresh();
    TendLease();
  } while (!stop_.WaitForNotificationWithTimeout(pause));
}

void Election::TendLease() {
  using LeaseStep = OfficeBook::LeaseStep;
  LeaseStep step = LeaseStep::kNone;
  int64_t lease = 0;
  absl::Duration silence;
  OfficeBook::Change change;
  {
    absl::MutexLock lock(&mu_);
    step = book_.lease_step();
    if (step == LeaseStep::kRestore) change = book_.Restore();
    lease = book_.lease();
    silence = options_.now() - alive_at_;
  }
  if (step == LeaseStep::kNone) return;
  if (step == LeaseStep::kRestore) {
    const absl::Status restored = Write(change);
    LOG_IF(WARNING, restored.ok())
        << "etcd had an older office, as after a restore from a snapshot; this "
           "leader wrote its own again";
    return;
  }
  if (silence > kLongestSilence) {
    LOG_EVERY_T(WARNING, 10)
        << "this coordinator has done nothing for "
        << absl::FormatDuration(absl::Trunc(silence, absl::Seconds(1)))
        << ", so that another one may lead; check its disk";
    return;
  }
  if (step == LeaseStep::kKeepAlive &&
      !absl::IsNotFound(etcd_.KeepAlive(lease))) {
    return;
  }
  const absl::StatusOr<int64_t> granted = GrantLease();
  if (!granted.ok()) return;
  LOG(WARNING)
      << "etcd has lost the office's lease, or all its data; asking again";
  {
    absl::MutexLock lock(&mu_);
    if (!book_.leads()) return;
    change = book_.Renew(*granted);
  }
  Write(change).IgnoreError();
}

absl::StatusOr<int64_t> Election::GrantLease() {
  absl::StatusOr<int64_t> lease = etcd_.GrantLease(options_.lease);
  absl::MutexLock lock(&mu_);
  book_.NoteWrite(lease.status());
  return lease;
}

absl::Status Election::Write(const OfficeBook::Change& change) {
  const auto answer = etcd_.Transact(change.request);
  absl::MutexLock lock(&mu_);
  book_.NoteWrite(answer.status());
  return book_.NoteChange(change, answer);
}

absl::StatusOr<uint64_t> Election::Campaign(const OfficeView& before,
                                            const Holding& holding) {
  ASSIGN_OR_RETURN(const int64_t lease, GrantLease());
  OfficeBook::Change claim;
  {
    absl::MutexLock lock(&mu_);
    alive_at_ = absl::InfiniteFuture();
    claim = book_.Claim(before, holding, lease);
  }
  const absl::Status won = Write(claim);
  if (absl::IsAborted(won)) etcd_.Revoke(lease).IgnoreError();
  Refresh();
  RETURN_IF_ERROR(won);
  return claim.office.epoch();
}

absl::Status Election::Change(const v1::Office& office) {
  OfficeBook::Change change;
  {
    absl::MutexLock lock(&mu_);
    change = book_.Alter(office);
  }
  return Write(change);
}

void Election::Resign() {
  int64_t lease = 0;
  {
    absl::MutexLock lock(&mu_);
    if (!book_.leads()) return;
    lease = book_.Resign();
  }
  const absl::Status revoked = etcd_.Revoke(lease);
  LOG_IF(WARNING, !revoked.ok())
      << "the office's lease ends by itself: " << revoked;
  Refresh();
}

}  // namespace causeway
