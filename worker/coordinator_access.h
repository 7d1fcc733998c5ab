// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Connects the process that leads an island to the coordinator, as the flags of
// causeway-worker say.
#ifndef WORKER_COORDINATOR_ACCESS_H_
#define WORKER_COORDINATOR_ACCESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "common/clock.h"
#include "common/transport/credentials.h"
#include "worker/sync/coordinator_client.h"

namespace causeway {

ClientTlsFiles IslandTlsFiles();

// Returns the credentials for the coordinator; enrols first if necessary. Takes
// a missing island name from the certificate.
//   CANCELLED  A signal has come.
//   NOT_FOUND  --tls has no valid certificate, and --join_file is missing.
//   EnrolOnce's and MakeChannelCredentials' errors.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> PrepareAccess(
    const Clock& wall_clock, const std::function<uint64_t()>& random_seed);

// Keeps a process ready to lead the island one day: enrols it if necessary, and
// renews its certificate, on a thread. Does nothing without --tls. Failures are
// logged. Not for a process that leads.
class AccessKeeper {
 public:
  AccessKeeper(Clock wall_clock, uint64_t seed);
  ~AccessKeeper();

 private:
  void Run(const Clock& wall_clock, uint64_t seed);

  absl::Notification stop_;
  std::thread thread_;
};

std::unique_ptr<CoordinatorClient> ConnectToCoordinator(
    std::shared_ptr<grpc::ChannelCredentials> credentials, const Clock& now);

}  // namespace causeway

#endif  // WORKER_COORDINATOR_ACCESS_H_
