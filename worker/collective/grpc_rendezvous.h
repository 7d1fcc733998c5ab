// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The rendezvous of an island of several processes: rank 0 keeps the table and
// serves it, the other ranks call it (proto/island.proto).
#ifndef WORKER_COLLECTIVE_GRPC_RENDEZVOUS_H_
#define WORKER_COLLECTIVE_GRPC_RENDEZVOUS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/collective/rendezvous.h"

namespace causeway {

// Thread-safe.
class RendezvousServer {
 public:
  // Listens on `address`, host:port; port 0 takes a free one. UNAVAILABLE: the
  // server cannot listen there.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<RendezvousServer>> Start(
      const std::string& address);
  virtual ~RendezvousServer() = default;

  // Returns the table, for this process.
  virtual Rendezvous* table() = 0;
  virtual int port() const = 0;
};

// Connects to the server at `address`, and waits up to `timeout` for it to be
// up. UNAVAILABLE: it was not.
absl::StatusOr<std::unique_ptr<Rendezvous>> ConnectRendezvous(
    const std::string& address, absl::Duration timeout);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_GRPC_RENDEZVOUS_H_
