// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The rules by which the coordinators of a run elect their leader
// (proto/election.proto): pure functions of what a coordinator reads in etcd
// and has on its disk.
//
// No published version is lost, because a version is published only once every
// member of `in_sync` has it, and only such a member may lead next. A member
// stops following before it asks for the office, so that a leader that has not
// heard of its successor publishes nothing. Leases and clocks decide only how
// soon another coordinator tries.
#ifndef SERVER_ELECTION_OFFICE_H_
#define SERVER_ELECTION_OFFICE_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/election.pb.h"

namespace causeway {

// Holds what a coordinator has read at one moment.
struct OfficeView {
  // The holder of the lease; nullopt if there is no lease.
  std::optional<v1::Replica> leader;
  int64_t lease = 0;
  // The key as written; empty if the run is new.
  std::string written;
  v1::Office office;
};

// Says what a coordinator has on its disk.
struct Holding {
  // Empty if it has no run.
  std::string run_id;
  // Is true if a run could continue from it.
  bool is_complete = false;
  uint64_t epoch = 0;
  // If it is a copy, the address of the leader that it was last filled by.
  std::string leader = "";
};

// Returns the office once `candidate`, which may campaign, has won. The
// previous leader is no longer in sync, so versions do not wait for it.
v1::Office Successor(const v1::Office& before, const v1::Replica& candidate,
                     const Holding& holding);

// Tells an operator what coordinator `name`, which neither leads nor hears from
// a leader, waits for.
std::string AwaitedBy(absl::string_view name, const OfficeView& view,
                      const Holding& holding);

std::set<std::string> InSync(const v1::Office& office);
v1::Office WithInSync(v1::Office office, const std::set<std::string>& names);

// The coordinators that a leader's versions wait for: all that may be in
// `in_sync`. While the outcome of a change is unknown, these are more than the
// leader intends.
class SyncSet {
 public:
  explicit SyncSet(std::set<std::string> names) : names_(std::move(names)) {}

  const std::set<std::string>& names() const { return names_; }

  // Returns whether `in_sync` must be changed to `due`. If so, versions wait
  // for `due`, too, even before the change is requested.
  bool Propose(const std::set<std::string>& due) {
    if (is_settled_ && due == names_) return false;
    names_.insert(due.begin(), due.end());
    is_settled_ = false;
    return true;
  }
  // Notes that `in_sync` was changed to `due`, so that no earlier change can be
  // made any more.
  void Settle(const std::set<std::string>& due) {
    names_ = due;
    is_settled_ = true;
  }

 private:
  std::set<std::string> names_;
  bool is_settled_ = true;
};

// Convert a message to its text in etcd and back.
//   DATA_LOSS  The text was not written by this or an older version.
std::string WriteKey(const google::protobuf::Message& message);
absl::Status ReadKey(absl::string_view text,
                     google::protobuf::Message& message);

// Decides what a coordinator that does not lead does next. A host reads the
// office and its disk, does what Next() says, and asks again.
//
// Pure rules: no clock, no I/O, not thread-safe.
class Voter {
 public:
  enum class Step {
    // Ask again later.
    kWait,
    // Follow the leader at its address.
    kFollow,
    // Follow Holding::leader, because etcd has not answered this process yet.
    kFollowLast,
    // Stop following, and ask again at once: changes that arrived meanwhile may
    // have changed the disk.
    kPause,
    // Ask for the office as it was read.
    kCampaign,
  };

  // The lease of a healthy leader may have ended while etcd was away. To give
  // the leader time to get another, a follower waits for this many calls of
  // Next() before it campaigns. A new process waits as long for etcd's first
  // answer before it follows the leader of its copy.
  static constexpr int kPatience = 20;

  // A lease in this coordinator's own name is taken for that of its previous
  // process for `own_waits` calls of Next().
  explicit Voter(std::string name,
                 int own_waits = std::numeric_limits<int>::max())
      : name_(std::move(name)), most_own_waits_(own_waits) {}

  //   FAILED_PRECONDITION  The disk has another run, or another coordinator has
  //                        this one's name.
  absl::StatusOr<Step> Next(const absl::StatusOr<OfficeView>& view,
                            const Holding& holding);

 private:
  const std::string name_;
  const int most_own_waits_;
  // Counts the calls that have found a lease in the own name.
  int own_waits_ = 0;
  // The epoch of the followed leader; 0 if there is none, and more than any
  // office's if it is the leader of the copy.
  uint64_t following_ = 0;
  // Counts the remaining waits.
  int patience_ = 0;
  // Is true once etcd has answered.
  bool has_read_ = false;
  // Counts the calls of Next() before that.
  int unanswered_ = 0;
};

}  // namespace causeway

#endif  // SERVER_ELECTION_OFFICE_H_
