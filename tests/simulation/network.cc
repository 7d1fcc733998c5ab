// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/network.h"

#include <algorithm>
#include <utility>

namespace causeway::simulation {

absl::Duration Network::Delay() {
  Chance& chance = world_->chance;
  const bool slow = !healed_ && scenario_->Has(kDelay) && chance.OneIn(10);
  return slow ? chance.Between(absl::Seconds(1), absl::Seconds(12))
              : chance.Between(absl::Milliseconds(10), absl::Milliseconds(80));
}

bool Network::Loses(uint32_t island) {
  if (partitioned_[island]) return true;
  return !healed_ && scenario_->Has(kLoss) && world_->chance.OneIn(20);
}

void Network::Send(uint32_t island, bool may_duplicate,
                   EventLoop::Action deliver) {
  const auto arrive = [this, island, deliver = std::move(deliver)] {
    if (!partitioned_[island]) deliver();
  };
  if (may_duplicate && !healed_ && scenario_->Has(kDuplicate) &&
      world_->chance.OneIn(10)) {
    world_->loop.After(Delay() + absl::Seconds(world_->chance.Pick(8)), arrive);
  }
  if (!Loses(island)) world_->loop.After(Delay(), arrive);
}

void Network::SendOn(uint32_t island, const std::shared_ptr<Lane>& lane,
                     EventLoop::Action deliver) {
  lane->broken |= Loses(island);
  if (lane->broken) return;
  lane->last_arrival =
      std::max(lane->last_arrival, world_->loop.now() + Delay());
  world_->loop.At(lane->last_arrival,
                  [this, island, lane, deliver = std::move(deliver)] {
                    lane->broken |= partitioned_[island];
                    if (!lane->broken) deliver();
                  });
}

void Network::Heal() {
  healed_ = true;
  std::fill(partitioned_.begin(), partitioned_.end(), false);
}

}  // namespace causeway::simulation
