// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The surroundings of the simulated coordinators: the network between them and
// to etcd, and etcd as a service that may be away or answer late.
#ifndef TESTS_SIMULATION_ELECTIONS_SURROUNDINGS_H_
#define TESTS_SIMULATION_ELECTIONS_SURROUNDINGS_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/simulation/elections/etcd_model.h"
#include "tests/simulation/elections/scenario.h"
#include "tests/simulation/virtual_time.h"

namespace causeway::simulation {

// A process that may be stopped and killed at any step.
class ElectionProcess {
 public:
  ElectionProcess(World* world, double clock_rate)
      : world_(world), clock_rate_(clock_rate) {}

  bool is_stalled() const { return is_stalled_; }
  void Die() {
    is_dead_ = true;
    deferred_.clear();
  }
  void Stall() { is_stalled_ = true; }
  void Resume();
  // Runs `action` in the process, once it is not stopped.
  void Deliver(EventLoop::Action action);
  void After(absl::Duration delay, EventLoop::Action action);
  // The time of the process's own clock.
  absl::Time now() const {
    return absl::UnixEpoch() +
           (world_->loop.now() - absl::UnixEpoch()) / clock_rate_;
  }

 private:
  World* const world_;
  const double clock_rate_;
  bool is_dead_ = false;
  bool is_stalled_ = false;
  std::deque<EventLoop::Action> deferred_;
};

// The parties are the coordinators, and then etcd.
class ElectionNetwork {
 public:
  ElectionNetwork(const ElectionScenario* scenario, World* world)
      : scenario_(scenario), world_(world) {}

  uint32_t etcd() const { return scenario_->coordinators; }
  void Cut(uint32_t one, uint32_t other, bool is_cut);
  bool IsCut(uint32_t one, uint32_t other) const {
    return cut_.contains(std::minmax(one, other));
  }
  absl::Duration Delay() {
    return world_->chance.Between(absl::Milliseconds(1),
                                  absl::Milliseconds(60));
  }
  // Sends a message outside of any lane: runs `deliver` if it arrives.
  void Send(uint32_t from, uint32_t to, EventLoop::Action deliver);
  // Sends a message after those that were sent on the lane before; runs `lost`
  // instead if it does not arrive.
  void SendOn(absl::Time& last_arrival, uint32_t from, uint32_t to,
              EventLoop::Action deliver, EventLoop::Action lost);
  void Heal();

 private:
  bool Strikes(ElectionFault fault, uint64_t one_in) {
    return !is_healed_ && scenario_->Has(fault) && world_->chance.OneIn(one_in);
  }

  const ElectionScenario* const scenario_;
  World* const world_;
  std::set<std::pair<uint32_t, uint32_t>> cut_;
  bool is_healed_ = false;
};

class EtcdService {
 public:
  // `after_each` runs after each request that etcd has carried out.
  EtcdService(const ElectionScenario* scenario, World* world,
              ElectionNetwork* network, std::function<void()> after_each);

  const EtcdModel& model() const { return model_; }

  // Each change of the office that is asked for holds a copy.
  std::shared_ptr<const int> change_token() const { return changes_; }
  // Returns whether such a change may still be made.
  bool MayChange() const { return changes_.use_count() > 1; }

  // Lets `process`, of a coordinator, ask for `operation`, and calls `done`
  // once: with the answer, or with an error if none comes in time. The
  // operation may be carried out nevertheless, also much later.
  template <typename Answer>
  void Ask(uint32_t coordinator, ElectionProcess* process,
           std::function<Answer(EtcdModel&)> operation,
           std::function<void(const Answer&)> done) {
    const auto once =
        std::make_shared<std::function<void(const Answer&)>>(std::move(done));
    const auto answer = [once](const Answer& answer) {
      if (*once != nullptr) std::exchange(*once, nullptr)(answer);
    };
    network_->Send(coordinator, network_->etcd(), [=, this] {
      Serve([=, this] {
        const Answer result = operation(model_);
        after_each_();
        network_->Send(network_->etcd(), coordinator,
                       [=] { process->Deliver([=] { answer(result); }); });
      });
    });
    process->After(kTimeout, [answer] {
      answer(absl::DeadlineExceededError("etcd does not answer"));
    });
  }

  // KeepAlive as older etcds have it.
  absl::Status KeepAlive(EtcdModel& model, int64_t lease);
  // Ends a lease before its time.
  void EndOneLease();
  void GoAway(absl::Duration time);
  void Heal();

 private:
  static constexpr absl::Duration kTimeout = absl::Seconds(1);

  void Serve(EventLoop::Action carry_out);
  void ExpireLoop();

  const ElectionScenario* const scenario_;
  World* const world_;
  ElectionNetwork* const network_;
  const std::function<void()> after_each_;
  EtcdModel model_;
  const std::shared_ptr<const int> changes_ = std::make_shared<int>(0);
  absl::Time away_until_ = absl::InfinitePast();
  // Leases that are over end then.
  absl::Time expires_at_ = absl::InfinitePast();
  bool is_healed_ = false;
};

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_ELECTIONS_SURROUNDINGS_H_
