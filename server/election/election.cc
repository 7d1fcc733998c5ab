// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/election/election.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

using etcdserverpb::Compare;
using etcdserverpb::TxnRequest;

void RequireAbsent(const std::string& key, TxnRequest& request) {
  Compare& compare = *request.add_compare();
  compare.set_target(Compare::VERSION);
  compare.set_key(key);
  compare.set_version(0);
}

void RequireValue(const std::string& key, const std::string& value,
                  TxnRequest& request) {
  if (value.empty()) return RequireAbsent(key, request);
  Compare& compare = *request.add_compare();
  compare.set_target(Compare::VALUE);
  compare.set_key(key);
  compare.set_value(value);
}

void Put(const std::string& key, const std::string& value, int64_t lease,
         TxnRequest& request) {
  etcdserverpb::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(key);
  put.set_value(value);
  put.set_lease(lease);
}

}  // namespace

Election::Election(Options options)
    : options_(std::move(options)),
      etcd_(options_.etcd),
      thread_([this] { Loop(); }) {}

Election::~Election() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
}

absl::StatusOr<OfficeView> Election::view() const {
  absl::MutexLock lock(&mu_);
  return view_;
}

uint64_t Election::ReplacedBy() const {
  absl::MutexLock lock(&mu_);
  if (written_.empty() || !view_.ok()) return 0;
  const uint64_t newest = view_->office.epoch();
  return newest > office_.epoch() ? newest : 0;
}

v1::Office Election::office() const {
  absl::MutexLock lock(&mu_);
  return office_;
}

absl::StatusOr<OfficeView> Election::Read() {
  TxnRequest request;
  for (const std::string& key : {LeaderKey(), OfficeKey()}) {
    request.add_success()->mutable_request_range()->set_key(key);
  }
  ASSIGN_OR_RETURN(const etcdserverpb::TxnResponse response,
                   etcd_.Transact(request));
  OfficeView view;
  for (const etcdserverpb::ResponseOp& operation : response.responses()) {
    for (const etcdserverpb::KeyValue& found :
         operation.response_range().kvs()) {
      if (found.key() == OfficeKey()) {
        view.written = found.value();
        RETURN_IF_ERROR(ReadKey(view.written, view.office));
      } else {
        view.lease = found.lease();
        RETURN_IF_ERROR(ReadKey(found.value(), view.leader.emplace()));
      }
    }
  }
  return view;
}

void Election::Refresh() {
  absl::StatusOr<OfficeView> read = Read();
  absl::MutexLock lock(&mu_);
  if (view_.ok() != read.ok()) {
    LOG(WARNING) << (read.ok() ? "etcd answers" : "etcd does not answer: ")
                 << read.status().message();
  }
  view_ = std::move(read);
  // A change of this leader's may have been made after it was given up.
  if (view_.ok() && !written_.empty() &&
      view_->office.epoch() == office_.epoch()) {
    written_ = view_->written;
    office_ = view_->office;
  }
}

void Election::Loop() {
  const absl::Duration pause =
      std::min(options_.lease / 10, absl::Milliseconds(500));
  while (true) {
    Refresh();
    TendLease();
    absl::MutexLock lock(&mu_);
    if (mu_.AwaitWithTimeout(absl::Condition(&stopping_), pause)) return;
  }
}

void Election::TendLease() {
  std::string written;
  v1::Office office;
  int64_t lease = 0;
  bool is_held = false;
  {
    absl::MutexLock lock(&mu_);
    if (written_.empty() || !view_.ok() || view_->written != written_) return;
    written = written_;
    office = office_;
    lease = lease_;
    is_held = view_->leader.has_value();
  }
  // Older etcds keep a lease alive that they have revoked, so the key counts.
  if (is_held) {
    const absl::Status kept = etcd_.KeepAlive(lease);
    if (!absl::IsNotFound(kept)) return;
  }
  const absl::StatusOr<int64_t> granted = etcd_.GrantLease(options_.lease);
  if (!granted.ok()) return;
  LOG(WARNING) << "the lease of the office was lost; asking for another";
  const absl::StatusOr<bool> wrote = Write(written, office, *granted);
  absl::MutexLock lock(&mu_);
  if (wrote.ok() && *wrote) lease_ = *granted;
}

absl::StatusOr<bool> Election::Write(const std::string& before,
                                     const v1::Office& after, int64_t lease) {
  v1::Office next = after;
  next.set_changes(after.changes() + 1);
  const std::string written = WriteKey(next);
  TxnRequest request;
  RequireValue(OfficeKey(), before, request);
  if (lease != 0) {
    RequireAbsent(LeaderKey(), request);
    Put(LeaderKey(), WriteKey(options_.self), lease, request);
  }
  Put(OfficeKey(), written, 0, request);
  ASSIGN_OR_RETURN(const etcdserverpb::TxnResponse response,
                   etcd_.Transact(request));
  if (!response.succeeded()) return false;
  absl::MutexLock lock(&mu_);
  written_ = written;
  office_ = next;
  return true;
}

absl::StatusOr<uint64_t> Election::Campaign(const OfficeView& before,
                                            const Holding& holding) {
  ASSIGN_OR_RETURN(const int64_t lease, etcd_.GrantLease(options_.lease));
  const v1::Office after = Successor(before.office, options_.self, holding);
  ASSIGN_OR_RETURN(const bool won, Write(before.written, after, lease));
  if (!won) {
    etcd_.Revoke(lease).IgnoreError();
    Refresh();
    return absl::AbortedError("another coordinator was faster");
  }
  Refresh();
  absl::MutexLock lock(&mu_);
  lease_ = lease;
  return after.epoch();
}

absl::Status Election::Change(const v1::Office& office) {
  std::string before;
  {
    absl::MutexLock lock(&mu_);
    before = written_;
  }
  ASSIGN_OR_RETURN(const bool wrote, Write(before, office, 0));
  if (wrote) return absl::OkStatus();
  return absl::AbortedError("etcd has another office than this leader's");
}

void Election::Resign() {
  int64_t lease = 0;
  {
    absl::MutexLock lock(&mu_);
    if (written_.empty()) return;
    written_.clear();
    lease = std::exchange(lease_, 0);
  }
  const absl::Status revoked = etcd_.Revoke(lease);
  LOG_IF(WARNING, !revoked.ok())
      << "the office's lease ends by itself: " << revoked;
  Refresh();
}

}  // namespace causeway
