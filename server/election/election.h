// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A coordinator's part in the elections of its run. Elections are held in etcd
// by the rules of server/election/office.h; OfficeBook makes the requests.
//
//   Election election(options);
//   ... voter.Next(election.view(), holding) ...
//   ASSIGN_OR_RETURN(uint64_t epoch, election.Campaign(view, holding));
//   ... lead, until election.ReplacedBy() says that somebody else does; call
//   election.Alive() meanwhile ...
//   election.Resign();
//
// A thread reads the keys several times within a lease, keeps a leader's lease
// alive, and gets a new one if the lease was lost while no other coordinator
// leads. It does not watch keys, because watches of older etcds lose changes.
//
// While etcd does not answer, a leader keeps leading, because all members in
// sync have what it publishes. If the leader itself stands still, the thread
// lets the lease end. Thread-safe.
#ifndef SERVER_ELECTION_ELECTION_H_
#define SERVER_ELECTION_ELECTION_H_

#include <cstdint>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "proto/election.pb.h"
#include "server/election/etcd_client.h"
#include "server/election/office.h"
#include "server/election/office_book.h"

namespace causeway {

class Election {
 public:
  struct Options {
    EtcdClient::Options etcd;
    // The prefix of the run's keys in etcd.
    std::string prefix;
    v1::Replica self;
    // The time for which a silent leader stays the leader; whole seconds, at
    // least 2.
    absl::Duration lease = absl::Seconds(5);
    // Measures for how long a leader has shown no life.
    Clock now = SteadyWallClock();
  };

  // A leader that has shown no life for longer loses its lease. A disk that is
  // merely slow holds its work up for seconds, and systemd's watchdog
  // (deploy/package) ends a process that hangs after 60 s.
  static constexpr absl::Duration kLongestSilence = absl::Seconds(30);

  explicit Election(Options options);
  // Does not resign.
  ~Election();

  absl::Duration lease() const { return options_.lease; }

  // Returns etcd's last answer, or why etcd does not answer.
  absl::StatusOr<OfficeView> view() const {
    absl::MutexLock lock(&mu_);
    return book_.view();
  }

  // Tells an operator what is wrong with etcd; empty if nothing is known to be.
  std::string Problem() const {
    absl::MutexLock lock(&mu_);
    return book_.Problem();
  }

  // Asks for the office, if it is still as in `before`. Returns the epoch with
  // which this coordinator now leads.
  //   ABORTED  Another coordinator was faster.
  // After another error the outcome is unknown: look at view() later.
  absl::StatusOr<uint64_t> Campaign(const OfficeView& before,
                                    const Holding& holding);

  // --- For a leader. ---

  // Shows that the leader's work goes on. The first call ends the start of its
  // work, which may take as long as it needs.
  void Alive() {
    absl::MutexLock lock(&mu_);
    alive_at_ = options_.now();
  }
  // Returns the epoch of the coordinator that has replaced this one, or 0 if
  // none is known to have.
  uint64_t ReplacedBy() const;
  // Returns the office as the leader last wrote it.
  v1::Office office() const {
    absl::MutexLock lock(&mu_);
    return book_.office();
  }
  // Changes the run's id, or who is in sync. After an error other than ABORTED,
  // the change may have been made, or may still be made.
  absl::Status Change(const v1::Office& office);
  // Revokes the lease, so that another coordinator may lead at once. Does
  // nothing if this one does not lead.
  void Resign();

 private:
  // Reads the keys into book_.
  void Refresh() ABSL_LOCKS_EXCLUDED(mu_);
  void Loop();
  // Keeps a leader's lease alive, or gets another, unless the leader stands
  // still.
  void TendLease() ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<int64_t> GrantLease() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Write(const OfficeBook::Change& change) ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  EtcdClient etcd_;

  mutable absl::Mutex mu_;
  OfficeBook book_ ABSL_GUARDED_BY(mu_);
  // The time at which it was logged last whether etcd answers.
  absl::Time told_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  // The last sign of the leader's life; infinitely late before the first.
  absl::Time alive_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace causeway

#endif  // SERVER_ELECTION_ELECTION_H_
