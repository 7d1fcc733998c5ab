// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The network between islands and the coordinator: delays, losses, duplicates,
// reordering and partitions.
//
// A message of a unary call goes by itself. Messages of a stream share a Lane:
// they arrive in order, and a loss breaks the lane permanently, like a
// transport that gives up.
#ifndef TESTS_SIMULATION_NETWORK_H_
#define TESTS_SIMULATION_NETWORK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/virtual_time.h"

namespace causeway::simulation {

// One direction of a stream.
struct Lane {
  absl::Time last_arrival = absl::InfinitePast();
  bool broken = false;
};

class Network {
 public:
  // `scenario` and `world` outlive the network.
  Network(const Scenario* scenario, World* world)
      : scenario_(scenario),
        world_(world),
        partitioned_(scenario->islands, false) {}

  // Sends a message between `island` and the coordinator, in either direction:
  // runs `deliver` where it arrives, if it does. It may arrive twice if
  // `may_duplicate`.
  void Send(uint32_t island, bool may_duplicate, EventLoop::Action deliver);
  // Sends a message of a stream.
  void SendOn(uint32_t island, const std::shared_ptr<Lane>& lane,
              EventLoop::Action deliver);

  void Partition(uint32_t island, bool cut) { partitioned_[island] = cut; }
  bool partitioned(uint32_t island) const { return partitioned_[island]; }
  // Ends all delays, losses, duplicates and partitions.
  void Heal();

 private:
  absl::Duration Delay();
  bool Loses(uint32_t island);

  const Scenario* const scenario_;
  World* const world_;
  std::vector<bool> partitioned_;
  bool healed_ = false;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_NETWORK_H_
