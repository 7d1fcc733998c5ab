// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A relay of TCP connections on the loopback interface that can be cut like a
// network: nothing arrives any more, and neither end is notified.
#ifndef TESTS_TAKEOVER_RELAY_H_
#define TESTS_TAKEOVER_RELAY_H_

#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace causeway {

class Relay {
 public:
  // Relays connections from port() to the port `target`.
  explicit Relay(int target);
  ~Relay();

  int port() const { return port_; }
  void Cut() { SetCut(true); }
  void Heal() { SetCut(false); }
  // Stops carrying the present connections, like a NAT that was restarted. New
  // ones are relayed.
  void Forget();

 private:
  void SetCut(bool cut);
  void AcceptLoop();
  // Copies from one socket of a connection to the other until either is closed.
  void Copy(int connection, int from, int to);
  // Waits while nothing goes through the connection with this number. Returns
  // false once the relay must end.
  bool AwaitWhole(int connection);

  const int target_;
  int listener_ = -1;
  int port_ = 0;
  absl::Mutex mu_;
  bool is_cut_ ABSL_GUARDED_BY(mu_) = false;
  // The number of connections so far, and of those that are forgotten.
  int connections_ ABSL_GUARDED_BY(mu_) = 0;
  int forgotten_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<int> sockets_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> copiers_ ABSL_GUARDED_BY(mu_);
  std::thread acceptor_;
};

}  // namespace causeway

#endif  // TESTS_TAKEOVER_RELAY_H_
