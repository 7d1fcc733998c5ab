// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The session of a simulated island: worker/sync/session_actor.h in virtual
// time.
#ifndef TESTS_SIMULATION_SESSION_H_
#define TESTS_SIMULATION_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "tests/simulation/actor_loop.h"
#include "tests/simulation/network.h"

namespace causeway::simulation {

class Session {
 public:
  // `loop` outlives the session.
  Session(ActorLoop* loop, std::function<v1::IslandProgress()> progress);

 private:
  absl::Time Step();
  void Join(const v1::JoinRequest& request);
  void OpenStream();
  void SendHeartbeat(const action::Heartbeat& heartbeat);
  void Hear(uint64_t stream, const absl::StatusOr<v1::SessionResponse>& view);

  ActorLoop* const loop_;
  Process* const process_;
  const std::function<v1::IslandProgress()> progress_;
  bool joining_ = false;
  // The open stream: its number, its way up, the coordinator's number for it,
  // and how it ended.
  uint64_t stream_ = 0;
  std::shared_ptr<Lane> up_;
  std::shared_ptr<uint64_t> id_;
  absl::Status ended_;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_SESSION_H_
