// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Notices when another coordinator begins to lead the run while the previous
// one is silent. A connection to a hung process or a lost machine counts as
// alive until keepalives, which allow for slow links, time out. The new
// coordinator says at once that it leads.
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

  // Receives the address of a coordinator that has begun to lead. If
  // `beside_another`, the connection to another leader seems alive. Otherwise
  // calls to the other have failed already.
  using Began =
      std::function<void(const std::string& address, bool beside_another)>;

  // Connects to `addresses`, whose channels end with this object. Calls `began`
  // on a thread of its own.
  LeaderWatch(std::vector<Address> addresses, Began began);
  ~LeaderWatch();

 private:
  void Loop();
  // Asks for the next change of a channel's state.
  void Await(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes a change of a channel's state. Returns whether the coordinator there
  // has begun to lead.
  bool Note(size_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether the coordinator of a channel was noted to lead and still
  // seems to.
  bool Leads(size_t index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Began began_;

  absl::Mutex mu_;
  // Empty once destruction has begun.
  std::vector<Address> addresses_ ABSL_GUARDED_BY(mu_);
  // The states that were noted last.
  std::vector<grpc_connectivity_state> states_ ABSL_GUARDED_BY(mu_);

  grpc::CompletionQueue changes_;
  std::thread thread_;
};

}  // namespace causeway

#endif  // WORKER_SYNC_LEADER_WATCH_H_
