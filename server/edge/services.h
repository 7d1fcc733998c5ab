// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The methods of the coordinator's services: Coordinator
// (proto/coordinator.proto), Status (proto/status.proto), Control
// (proto/control.proto), Replication (proto/replication.proto) and Trust
// (proto/trust.proto).
#ifndef SERVER_EDGE_SERVICES_H_
#define SERVER_EDGE_SERVICES_H_

#include <string>
#include <vector>

#include "common/transport/certificate_expiry.h"
#include "common/transport/credentials.h"
#include "proto/status.pb.h"
#include "server/edge/call.h"
#include "server/edge/connections.h"
#include "server/edge/copy_source.h"
#include "server/edge/disk_threads.h"
#include "server/edge/island_links.h"
#include "server/engine.h"
#include "server/replication/follower.h"
#include "server/trust/trust.h"

namespace causeway {

// Answers as the Status service does, within the process. Thread-safe. Its
// pointers must outlive it.
struct StatusSource {
  Engine* engine = nullptr;
  const IslandLinks* links = nullptr;
  const Connections* connections = nullptr;
  // RunStatus.warning.
  std::string warning;
  // The expiry of the certificate that the server shows; may be null.
  CertificateExpiry* certificate = nullptr;

  v1::RunStatus GetRun() const;
  // Calls Engine::ListIslands, and adds what the links know.
  v1::ListIslandsResponse ListIslands(const auto& which) const {
    v1::ListIslandsResponse islands = engine->ListIslands(which);
    links->Describe(islands);
    return islands;
  }
};

// The threads for what calls wait for. They are separate so that no island
// waits for a watcher's search, and no version for a copy of the log.
struct CallThreads {
  // Open what islands fetch: read an update, and verify it.
  DiskThreads openers{4};
  // Verify contributions, and write what is kept: those in quarantine, and
  // certificates.
  DiskThreads writers{4};
  // Copy the log for new followers, and read it for those who watch the run.
  DiskThreads log_readers{4};
  // Make the messages for followers that have a copy.
  DiskThreads feeders{2};
};

// Pointers must outlive the methods. Islands of `own_region` fetch from the
// coordinator itself.
Methods CoordinatorMethods(Engine* engine, IslandLinks* links,
                           CallThreads* threads, const std::string& own_region);
Methods StatusMethods(const StatusSource* source, CallThreads* threads);
Methods ControlMethods(Engine* engine, const Connections* connections,
                       CallThreads* threads);
Methods ReplicationMethods(Engine* engine, CallThreads* threads);
Methods TrustMethods(Trust* trust, CallThreads* threads);
std::vector<Methods> FollowerMethods(Follower* follower, CopySource* source,
                                     IslandLinks* links, CallThreads* threads);

}  // namespace causeway

#endif  // SERVER_EDGE_SERVICES_H_
