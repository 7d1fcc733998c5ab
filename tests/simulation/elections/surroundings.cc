// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/elections/surroundings.h"

#include <algorithm>
#include <iterator>

namespace causeway::simulation {

void ElectionProcess::Resume() {
  is_stalled_ = false;
  while (!is_dead_ && !is_stalled_ && !deferred_.empty()) {
    const EventLoop::Action next = std::move(deferred_.front());
    deferred_.pop_front();
    next();
  }
}

void ElectionProcess::Deliver(EventLoop::Action action) {
  if (is_dead_) return;
  if (is_stalled_) {
    deferred_.push_back(std::move(action));
  } else {
    action();
  }
}

void ElectionProcess::After(absl::Duration delay, EventLoop::Action action) {
  world_->loop.After(delay * clock_rate_,
                     [this, action = std::move(action)] { Deliver(action); });
}

void ElectionNetwork::Cut(uint32_t one, uint32_t other, bool is_cut) {
  if (is_cut) {
    cut_.insert(std::minmax(one, other));
  } else {
    cut_.erase(std::minmax(one, other));
  }
}

void ElectionNetwork::Send(uint32_t from, uint32_t to,
                           EventLoop::Action deliver) {
  const auto arrive = [this, from, to, deliver = std::move(deliver)] {
    if (!IsCut(from, to)) deliver();
  };
  if (Strikes(ElectionFault::kLoss, 12)) return;
  if (Strikes(ElectionFault::kDouble, 12)) {
    world_->loop.After(
        world_->chance.Between(absl::ZeroDuration(), absl::Seconds(8)), arrive);
  }
  world_->loop.After(
      Strikes(ElectionFault::kDelay, 12)
          ? world_->chance.Between(absl::Milliseconds(500), absl::Seconds(12))
          : Delay(),
      arrive);
}

void ElectionNetwork::SendOn(absl::Time& last_arrival, uint32_t from,
                             uint32_t to, EventLoop::Action deliver,
                             EventLoop::Action lost) {
  last_arrival = std::max(last_arrival, world_->loop.now() + Delay());
  world_->loop.At(last_arrival, [this, from, to, deliver = std::move(deliver),
                                 lost = std::move(lost)] {
    IsCut(from, to) ? lost() : deliver();
  });
}

void ElectionNetwork::Heal() {
  is_healed_ = true;
  cut_.clear();
}

EtcdService::EtcdService(const ElectionScenario* scenario, World* world,
                         ElectionNetwork* network,
                         std::function<void()> after_each)
    : scenario_(scenario),
      world_(world),
      network_(network),
      after_each_(std::move(after_each)) {
  ExpireLoop();
}

void EtcdService::Serve(EventLoop::Action carry_out) {
  if (world_->loop.now() >= away_until_) return carry_out();
  // It is lost, or waits in a member's queue.
  if (world_->chance.OneIn(2)) return;
  world_->loop.At(
      away_until_ + network_->Delay(),
      [this, carry_out = std::move(carry_out)] { Serve(carry_out); });
}

void EtcdService::ExpireLoop() {
  world_->loop.After(absl::Milliseconds(200), [this] { ExpireLoop(); });
  const absl::Time now = world_->loop.now();
  // An etcd that was away extends leases.
  if (now < away_until_ || now < expires_at_) return;
  if (!is_healed_ && scenario_->Has(ElectionFault::kLeaseLate) &&
      world_->chance.OneIn(30)) {
    expires_at_ =
        now + world_->chance.Between(absl::Seconds(1), absl::Seconds(10));
    return;
  }
  model_.Expire(now);
}

absl::Status EtcdService::KeepAlive(EtcdModel& model, int64_t lease) {
  const absl::Status kept = model.KeepAlive(lease, world_->loop.now());
  const bool says_yes = !kept.ok() && !is_healed_ &&
                        scenario_->Has(ElectionFault::kStaleKeepAlive) &&
                        world_->chance.OneIn(2);
  return says_yes ? absl::OkStatus() : kept;
}

void EtcdService::EndOneLease() {
  if (model_.leases().empty()) return;
  const auto lease = std::next(
      model_.leases().begin(),
      static_cast<std::ptrdiff_t>(world_->chance.Pick(model_.leases().size())));
  world_->Trace("etcd       ends lease ", lease->first);
  model_.Revoke(lease->first).IgnoreError();
}

void EtcdService::GoAway(absl::Duration time) {
  world_->Trace("etcd       is away for ", absl::FormatDuration(time));
  away_until_ = std::max(away_until_, world_->loop.now() + time);
}

void EtcdService::Heal() {
  is_healed_ = true;
  away_until_ = absl::InfinitePast();
  expires_at_ = absl::InfinitePast();
}

}  // namespace causeway::simulation
