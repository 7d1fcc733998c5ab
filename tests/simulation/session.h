// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// How a simulated island stays a member: worker/sync/island_session.h in
// virtual time. Joins, sends heartbeats, holds the newest view, reconnects, and
// joins again when it was fenced off.
#ifndef TESTS_SIMULATION_SESSION_H_
#define TESTS_SIMULATION_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/backoff.h"
#include "proto/coordinator.pb.h"
#include "tests/simulation/network.h"
#include "tests/simulation/process.h"

namespace causeway::simulation {

class Session {
 public:
  struct Callbacks {
    // Something below has changed.
    std::function<void()> wake;
    // The island cannot be part of the run any more.
    std::function<void(const absl::Status&)> fail;
    std::function<v1::IslandProgress()> progress;
  };

  // `process` outlives the session. It takes the place of the process of
  // instance `replaces`, which is known to be dead; 0 is none.
  Session(Process* process, uint64_t instance, uint64_t replaces,
          Callbacks callbacks);

  // Joins, trying for as long as it makes sense.
  void Join(std::function<void(const v1::JoinResponse&)> done);
  // Starts heartbeats; after Join.
  void Start() { OpenStream(); }

  const v1::IslandIdentity& identity() const { return identity_; }
  const v1::SessionResponse& state() const { return state_; }
  // Rises with each new stream.
  uint64_t connection() const { return connection_; }
  bool connected() const { return connected_; }

 private:
  void OpenStream();
  void Beat(uint64_t stream, const std::shared_ptr<Lane>& up,
            const std::shared_ptr<uint64_t>& id);
  void Watch(uint64_t stream);
  void Hear(uint64_t stream, const absl::StatusOr<v1::SessionResponse>& view);
  void End(const absl::Status& status);

  Process* const process_;
  const uint64_t instance_;
  const uint64_t replaces_;
  const Callbacks callbacks_;
  const absl::Duration heartbeat_;
  Backoff join_backoff_;
  Backoff stream_backoff_;

  v1::IslandIdentity identity_;
  v1::SessionResponse state_;
  uint64_t connection_ = 0;
  bool connected_ = false;
  // The stream that is listened to, and when it was last heard.
  uint64_t stream_ = 0;
  absl::Time heard_;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_SESSION_H_
