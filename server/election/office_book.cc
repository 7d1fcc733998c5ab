// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/election/office_book.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

using etcdserverpb::Compare;
using etcdserverpb::TxnRequest;
using etcdserverpb::TxnResponse;

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

// Returns whether etcd has answered that it does not let this coordinator read.
bool IsRefusal(const absl::Status& unread) {
  return absl::IsPermissionDenied(unread) || absl::IsUnauthenticated(unread) ||
         absl::IsInvalidArgument(unread) || absl::IsFailedPrecondition(unread);
}

}  // namespace

TxnRequest OfficeBook::Reading() const {
  TxnRequest request;
  for (const std::string& key : {LeaderKey(), OfficeKey()}) {
    request.add_success()->mutable_request_range()->set_key(key);
  }
  return request;
}

absl::StatusOr<OfficeView> OfficeBook::Parse(
    const absl::StatusOr<TxnResponse>& answer) const {
  RETURN_IF_ERROR(answer.status());
  OfficeView view;
  for (const etcdserverpb::ResponseOp& operation : answer->responses()) {
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

void OfficeBook::NoteRead(const absl::StatusOr<TxnResponse>& answer) {
  const std::string before = view_.ok() ? view_->written : "";
  const bool was_written = !before.empty();
  view_ = Parse(answer);
  if (view_.ok() && view_->written != before) refused_ = absl::OkStatus();
  if (was_written && view_.ok() && view_->written.empty()) {
    // Gives a living leader time to write the office again.
    view_ = absl::DataLossError("it has lost the run's office");
  }
  // A change by this leader may have been made although its call failed.
  if (view_.ok() && leads() && view_->office.epoch() == office_.epoch()) {
    if (!IsOlder(view_->office)) {
      written_ = view_->written;
      office_ = view_->office;
    }
    if (view_->leader.has_value() && view_->leader->name() == self_.name()) {
      lease_ = view_->lease;
    }
  }
}

void OfficeBook::NoteWrite(const absl::Status& answered) {
  // An etcd that is away is noticed when it is read.
  if (absl::IsUnavailable(answered) || absl::IsDeadlineExceeded(answered) ||
      absl::IsCancelled(answered)) {
    return;
  }
  refused_ = answered;
}

std::string OfficeBook::Unread() const {
  const absl::Status& unread = view_.status();
  if (IsRefusal(unread)) {
    return absl::StrCat("etcd refuses this coordinator: ", unread.message(),
                        "; check --etcd_user, --etcd_password_file, and "
                        "whether that user may read and write the keys of "
                        "--etcd_prefix");
  }
  const bool is_tls =
      absl::StrContains(absl::AsciiStrToLower(unread.message()), "certificate");
  return absl::StrCat("etcd does not answer: ", unread.message(),
                      is_tls ? "; check --etcd_tls_ca" : "");
}

std::string OfficeBook::Problem() const {
  if (IsRefusal(view_.status())) return Unread();
  if (!view_.ok()) {
    return "etcd does not answer this coordinator: if etcd is away, none can "
           "take over; if only this machine is cut off, another may lead "
           "already";
  }
  if (refused_.ok()) return "";
  return absl::StrCat("etcd refuses writes: ", refused_.message(),
                      "; until it takes them, no coordinator can take over, "
                      "and no follower can be taken out");
}

uint64_t OfficeBook::ReplacedBy() const {
  if (!leads() || !view_.ok()) return 0;
  const uint64_t newest = view_->office.epoch();
  return newest > office_.epoch() ? newest : 0;
}

OfficeBook::LeaseStep OfficeBook::lease_step() const {
  if (!leads() || !view_.ok()) return LeaseStep::kNone;
  if (view_->written != written_ && !view_->written.empty()) {
    return IsOlder(view_->office) ? LeaseStep::kRestore : LeaseStep::kNone;
  }
  // Check the key, because older etcds answer keep-alives of revoked leases.
  return view_->leader.has_value() ? LeaseStep::kKeepAlive
                                   : LeaseStep::kReplace;
}

int64_t OfficeBook::Resign() {
  written_.clear();
  return std::exchange(lease_, 0);
}

OfficeBook::Change OfficeBook::Renew(int64_t lease) const {
  // An etcd that lost its data has no office.
  const bool is_lost = view_.ok() && view_->written.empty();
  return Write(is_lost ? "" : written_, office_, lease);
}

OfficeBook::Change OfficeBook::Write(const std::string& before,
                                     const v1::Office& after,
                                     int64_t lease) const {
  Change change{.office = after, .lease = lease};
  change.office.set_changes(after.changes() + 1);
  RequireValue(OfficeKey(), before, change.request);
  if (lease != 0) {
    RequireAbsent(LeaderKey(), change.request);
    Put(LeaderKey(), WriteKey(self_), lease, change.request);
  }
  Put(OfficeKey(), WriteKey(change.office), 0, change.request);
  return change;
}

OfficeBook::Change OfficeBook::Claim(const OfficeView& before,
                                     const Holding& holding,
                                     int64_t lease) const {
  return Write(before.written, Successor(before.office, self_, holding), lease);
}

absl::Status OfficeBook::NoteChange(const Change& change,
                                    const absl::StatusOr<TxnResponse>& answer) {
  RETURN_IF_ERROR(answer.status());
  if (!answer->succeeded()) {
    return absl::AbortedError("another coordinator was faster");
  }
  office_ = change.office;
  written_ = WriteKey(office_);
  if (change.lease != 0) lease_ = change.lease;
  return absl::OkStatus();
}

}  // namespace causeway
