// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides which process leads an island whose process 0 may be lost with its
// host. Such an island has several addresses, in order of succession. Each
// belongs to a process, which listens there if it leads.
//
// A process follows the leader that answers at one of the addresses. If none
// does, the owner of the first address leads at once, and each other owner once
// those before it had time to begin.
//
// Two processes that do not reach one another may both begin to lead. That is
// safe, because of three rules:
//
//  1. A leader joins the run before it chooses a crew (crew.h). The coordinator
//     has one live incarnation of an island. It refuses another process until
//     it has not heard of the first for a lease, and then fences that one off.
//     So only one of them trains for the island, and contributes.
//  2. A successor does not claim that the process before it is dead, which
//     would let it in sooner: that process may only be out of its reach.
//  3. A crew meets in the table of its leader, which is new for each crew. A
//     rank that has called one table calls no other at the same address. So no
//     ranks of two leaders connect.
//
// A leader that has not joined gives up for one that has, or whose address is
// earlier (RivalWatch), and then follows it. A leader that has joined continues
// until the coordinator refuses it.
#ifndef WORKER_COLLECTIVE_SUCCESSION_H_
#define WORKER_COLLECTIVE_SUCCESSION_H_

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/tcp_rendezvous.h"

namespace causeway {

struct LeaderAddress {
  int process = 0;
  // host:port.
  std::string address;
};

// Returns the addresses in `text`, in order of succession. They are separated
// by commas; each may follow the number of its process, as in
// "4=10.1.0.2:7100", and otherwise belongs to the process whose number is its
// place in the list.
//   INVALID_ARGUMENT  There is none, the first does not belong to process 0, or
//                     two are alike.
absl::StatusOr<std::vector<LeaderAddress>> ParseLeaders(absl::string_view text);

struct Succession {
  std::vector<LeaderAddress> leaders;
  // This process, which may own none of the addresses.
  int process = 0;
  // The time without an answer after which the next process leads.
  absl::Duration patience;
  // The ranks' secret, and a clock; the address is not used.
  RendezvousOptions rendezvous;
};

// Returns the place of `process` among the leaders, or -1.
int PlaceInSuccession(absl::Span<const LeaderAddress> leaders, int process);

// Returns the time without an answer after which the process leads; nothing if
// it never does. `failed` says that it has tried before, and another one led.
std::optional<absl::Duration> SilenceBeforeLeading(const Succession& succession,
                                                   bool failed);

// Tell processes that look for a leader, in the leader's own table, that
// `process` leads, and that it has joined the run.
absl::Status SayLeads(int process, Rendezvous* table);
absl::Status SayJoined(Rendezvous* table);

// Returns the address at which a leader answers, preferably `last`. Returns
// nothing if this process must lead; `failed` is as above.
//   PERMISSION_DENIED  Only processes with another secret answer.
//   DEADLINE_EXCEEDED  No process has answered for `timeout`.
absl::StatusOr<std::optional<std::string>> FindLeader(
    const Succession& succession, const std::string& last, bool failed,
    absl::Duration timeout);

// Looks, on a thread, for another leader for which this process, which leads
// but has not joined yet, must give up.
class RivalWatch {
 public:
  // Calls `found` once, with a description of the rival. A process that `keeps`
  // the island's newest state gives up only for a leader that has joined.
  RivalWatch(Succession succession, bool keeps,
             std::function<void(const std::string&)> found);
  ~RivalWatch();

  // Ends the watch, because this process has joined. Does not wait for its end.
  void Stop();

 private:
  // Returns the description of a rival, or "".
  std::string Rival() const;
  void Run();

  const Succession succession_;
  const bool keeps_;
  const std::function<void(const std::string&)> found_;
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_SUCCESSION_H_
