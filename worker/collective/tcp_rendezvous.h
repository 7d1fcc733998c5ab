// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The rendezvous of an island of several processes: rank 0 keeps and serves the
// table, the other ranks call it (proto/island.proto). Each call takes an
// encrypted connection of its own (secure_socket.h), so that only processes
// with the island's secret can call, be called, or read along.
#ifndef WORKER_COLLECTIVE_TCP_RENDEZVOUS_H_
#define WORKER_COLLECTIVE_TCP_RENDEZVOUS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "worker/collective/rendezvous.h"

namespace causeway {

struct RendezvousOptions {
  // The host:port at which rank 0 listens. For rank 0, port 0 takes a free one.
  std::string address;
  // All ranks have the same secret. A short one can be guessed; without one,
  // anyone may call.
  std::string secret;
  Clock now;
};

// The questions of other processes for a key.
struct Questions {
  uint64_t count = 0;
  // The time of the last one, by the server's clock.
  absl::Time last;
};

// Thread-safe.
class RendezvousServer {
 public:
  // UNAVAILABLE: the server cannot listen at the address.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<RendezvousServer>> Start(
      const RendezvousOptions& options);
  virtual ~RendezvousServer() = default;

  // Returns the table, for this process.
  virtual Rendezvous* table() = 0;
  // Returns what other processes have asked, for each key that begins with
  // `prefix`.
  virtual std::map<std::string, Questions> Asked(absl::string_view prefix) = 0;
  // Returns the numeric host:port.
  virtual const std::string& address() const = 0;
};

// Returns a table whose every call connects to the server. All calls are for
// the table that answers first: they fail with UNAVAILABLE once another server
// has its address, so that ranks of an ended rank 0 do not disturb those of the
// next.
std::unique_ptr<Rendezvous> RendezvousAt(const RendezvousOptions& options);

// Waits up to `timeout` for the server to be up, and returns RendezvousAt.
//   UNAVAILABLE, DEADLINE_EXCEEDED  It was not up, or did not answer.
//   PERMISSION_DENIED               It has another secret.
absl::StatusOr<std::unique_ptr<Rendezvous>> ConnectRendezvous(
    const RendezvousOptions& options, absl::Duration timeout);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_TCP_RENDEZVOUS_H_
