// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Keeps what a coordinator has read and written of its run's office. Makes the
// transactions for etcd, and interprets answers and their absence.
//
//   answer = etcd.Transact(book.Reading());
//   book.NoteRead(answer);
//   ...
//   change = book.Claim(view, holding, lease);
//   answer = etcd.Transact(change.request);
//   RETURN_IF_ERROR(book.NoteChange(change, answer));
//
// Pure rules: no clock, no I/O, not thread-safe.
#ifndef SERVER_ELECTION_OFFICE_BOOK_H_
#define SERVER_ELECTION_OFFICE_BOOK_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/election.pb.h"
#include "proto/etcd.pb.h"
#include "server/election/office.h"

namespace causeway {

class OfficeBook {
 public:
  struct Change {
    etcdserverpb::TxnRequest request;
    // The office after the change.
    v1::Office office;
    // The lease that the leader's key gets; 0 leaves it unchanged.
    int64_t lease = 0;
  };
  enum class LeaseStep {
    kNone,
    // Keep lease() alive; if it has ended, replace it.
    kKeepAlive,
    // Get another lease, and Renew() with it.
    kReplace,
    // Restore(), because etcd has an older office.
    kRestore,
  };

  // The run's keys begin with `prefix`; `self` is this coordinator.
  OfficeBook(std::string prefix, v1::Replica self)
      : prefix_(std::move(prefix)), self_(std::move(self)) {}

  // Returns etcd's last answer, or why etcd does not answer.
  const absl::StatusOr<OfficeView>& view() const { return view_; }

  etcdserverpb::TxnRequest Reading() const;
  void NoteRead(const absl::StatusOr<etcdserverpb::TxnResponse>& answer);

  // Asks for the office if it is still as in `before`.
  Change Claim(const OfficeView& before, const Holding& holding,
               int64_t lease) const;

  // --- For a leader. ---

  bool leads() const { return !written_.empty(); }
  // Returns the office as the leader last wrote it.
  const v1::Office& office() const { return office_; }
  int64_t lease() const { return lease_; }
  // Returns the epoch of the coordinator that has replaced this one, or 0 if
  // none is known to have.
  uint64_t ReplacedBy() const;
  LeaseStep lease_step() const;
  // Asks for the leader's key again, and for the office if etcd has lost it.
  Change Renew(int64_t lease) const;
  // Asks for the office that this leader wrote, in place of the older one that
  // view() has. Call it if that is the lease_step().
  Change Restore() const { return Write(view_->written, office_, 0); }
  Change Alter(const v1::Office& office) const {
    return Write(written_, office, 0);
  }
  // Stops leading. Returns the lease, which the caller revokes.
  int64_t Resign();

  // --- For both. ---

  // Notes the outcome of a change.
  //   ABORTED  It was not made, and never will be.
  // After another error the outcome is unknown.
  absl::Status NoteChange(
      const Change& change,
      const absl::StatusOr<etcdserverpb::TxnResponse>& answer);
  // Notes how etcd answered a request that writes.
  void NoteWrite(const absl::Status& answered);
  // Tells an operator what is wrong with etcd; empty if nothing is known to be.
  std::string Problem() const;
  // Says why etcd could not be read; call it if view() is an error.
  std::string Unread() const;

 private:
  std::string LeaderKey() const { return prefix_ + "leader"; }
  std::string OfficeKey() const { return prefix_ + "office"; }
  // Returns whether `found` is older than this leader's office, because etcd
  // was restored from a snapshot. If it was read just before the last change,
  // it is older, too, and etcd then refuses Restore().
  bool IsOlder(const v1::Office& found) const {
    return std::pair(found.epoch(), found.changes()) <
           std::pair(office_.epoch(), office_.changes());
  }
  absl::StatusOr<OfficeView> Parse(
      const absl::StatusOr<etcdserverpb::TxnResponse>& answer) const;
  // Writes both keys, or only the office if `lease` is 0. The change is not
  // made if the office is no longer `before`, or if the leader's key would be
  // written but exists.
  Change Write(const std::string& before, const v1::Office& after,
               int64_t lease) const;

  const std::string prefix_;
  const v1::Replica self_;
  absl::StatusOr<OfficeView> view_ =
      absl::UnavailableError("etcd has not been asked yet");
  // Says why etcd refused the last write; OK if it did not, or if another
  // coordinator has written since.
  absl::Status refused_;
  // The leader's office as written; empty if this coordinator does not lead.
  std::string written_;
  v1::Office office_;
  int64_t lease_ = 0;
};

}  // namespace causeway

#endif  // SERVER_ELECTION_OFFICE_BOOK_H_
