// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_SYNC_SESSION_ACTOR_H_
#define WORKER_SYNC_SESSION_ACTOR_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "proto/coordinator.pb.h"
#include "worker/sync/coordinator_client.h"
#include "worker/sync/shared_outer_loop.h"

namespace causeway {

// Carries out the outer loop's orders for the session
// (worker/outer_loop/island_membership.h) on two threads of its own.
class SessionActor {
 public:
  // `client` and `loop` outlive the actor. The actor's thread calls `progress`
  // before each heartbeat.
  SessionActor(CoordinatorClient* client, SharedOuterLoop* loop,
               std::function<v1::IslandProgress()> progress);
  // Waits for the threads, which end once the loop was told to stop and the
  // client is shut down.
  ~SessionActor();

 private:
  void Run();
  void OpenStream();
  absl::Status CloseStream(bool cancel);

  CoordinatorClient* const client_;
  SharedOuterLoop* const loop_;
  const std::function<v1::IslandProgress()> progress_;
  // Null while no stream is open.
  std::unique_ptr<ControlStream> stream_;
  // Used by the reader: the coordinator's last message for people.
  std::string message_;
  std::thread reader_;
  std::thread thread_;
};

}  // namespace causeway

#endif  // WORKER_SYNC_SESSION_ACTOR_H_
