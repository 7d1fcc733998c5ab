// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Finds a process that has got its place in a crew (crew.h) but is lost before
// its ranks have connected to the others. These would wait for it in vain:
// there is no connection to break, and on a lost host no supervisor starts it
// again.
//
//   the leader                              the others
//   const CrewWatch watch(...);             PlaceHolder holder(place);
//   ... connects                            ... connects
//                                           holder.Connected();
#ifndef WORKER_COLLECTIVE_CREW_WATCH_H_
#define WORKER_COLLECTIVE_CREW_WATCH_H_

#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "worker/collective/crew.h"
#include "worker/collective/tcp_rendezvous.h"

namespace causeway {

// A process that the leader has not heard of for this time is lost.
inline constexpr absl::Duration kLostAfter = absl::Seconds(10);

// Tells the leader, on a thread, that this process lives.
class PlaceHolder {
 public:
  // `place` outlives this.
  explicit PlaceHolder(const CrewPlace& place);
  ~PlaceHolder();
  PlaceHolder(const PlaceHolder&) = delete;
  PlaceHolder& operator=(const PlaceHolder&) = delete;

  // Says that a rank of this process has connected to all others. Does not
  // wait. Thread-safe.
  void Connected() { connected_ = true; }

 private:
  void Run();

  const CrewPlace& place_;
  std::atomic<bool> connected_ = false;
  absl::Notification stop_;
  std::thread thread_;
};

// Looks, on a thread of the leader, for processes that are lost, and reports
// the first rank of one, so that no rank waits any longer
// (CheckWhileConnecting).
class CrewWatch {
 public:
  // `server`, which outlives this, has given places to `processes`, with
  // `ranks` each.
  CrewWatch(int processes, int ranks, RendezvousServer* server, Clock now);
  ~CrewWatch();
  CrewWatch(const CrewWatch&) = delete;
  CrewWatch& operator=(const CrewWatch&) = delete;

 private:
  void Run();

  const int processes_;
  const int ranks_;
  RendezvousServer* const server_;
  const Clock now_;
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_CREW_WATCH_H_
