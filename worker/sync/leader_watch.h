// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Notices that another coordinator leads the run while the one before has
// fallen silent. Connections to a process that hangs, or to a machine that is
// lost without a word, count as alive until keepalives have waited long enough
// for slow links. The other coordinator says at once that it leads.
#ifndef WORKER_SYNC_LEADER_WATCH_H_
#define WORKER_SYNC_LEADER_WATCH_H_

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/transport/coordinator_target.h"
#include "grpcpp/grpcpp.h"

namespace causeway {

class LeaderWatch {
 public:
  using Address = CoordinatorTarget::OneAddress;

  // Connects to `addresses`, whose channels end with this object. When a
  // coordinator begins to lead while the connection to another one that leads
  // seems alive, calls `moved` on a thread of its own, with the address. If
  // there is no such connection, nobody needs to be told: calls to the other
  // have failed.
  LeaderWatch(std::vector<Address> addresses,
              std::function<void(const std::string& address)> moved);
  ~LeaderWatch();

 private:
  void Loop();
  // Asks for the next change of a channel's state.
  void Await(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes a change of a channel's state. Returns whether the coordinator there
  // has begun to lead while another one seems to lead.
  bool Note(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::function<void(const std::string& address)> moved_;

  absl::Mutex mu_;
  // Empty once the object is to be destroyed.
  std::vector<Address> addresses_ ABSL_GUARDED_BY(mu_);
  // The states that were noted last.
  std::vector<grpc_connectivity_state> states_ ABSL_GUARDED_BY(mu_);

  grpc::CompletionQueue changes_;
  std::thread thread_;
};

}  // namespace causeway

#endif  // WORKER_SYNC_LEADER_WATCH_H_
