// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/elections/election_history.h"

#include <iostream>
#include <memory>
#include <optional>
#include <vector>

#include "tests/simulation/elections/elected_coordinator.h"

namespace causeway::simulation {
namespace {

// The time to recover once faults have stopped: the longest that a message may
// still be under way, some leases, and copies.
constexpr absl::Duration kRecovery = absl::Seconds(90);
// Far more events than a history has, unless it loops.
constexpr uint64_t kMostEvents = 500'000;

ElectionScenario ScenarioOf(uint64_t seed, uint32_t without) {
  ElectionScenario scenario = DrawElectionScenario(seed);
  scenario.faults &= ~without;
  return scenario;
}

class History {
 public:
  History(uint64_t seed, uint32_t without, bool trace)
      : scenario_(ScenarioOf(seed, without)),
        world_(seed ^ 0x9e3779b97f4a7c15, trace),
        disks_(scenario_.coordinators),
        running_(scenario_.coordinators),
        checker_(&world_, &disks_),
        network_(&scenario_, &world_),
        etcd_(&scenario_, &world_, &network_, [this] {
          checker_.OfficeIs(etcd_.model().Value("/run/office"));
        }) {}

  ElectionResult Run() {
    if (world_.tracing) std::cout << scenario_.Describe() << "\n";
    for (uint32_t machine = 0; machine < scenario_.coordinators; ++machine) {
      Start(machine, Chances().Between(absl::ZeroDuration(), absl::Seconds(2)));
    }
    world_.loop.After(scenario_.faulty_time, [this] { Heal(); });
    Strike();
    while (checker_.violation().empty() && !IsOver()) {
      world_.loop.RunNext();
      if (++result_.events > kMostEvents) checker_.Fail("events without end");
      if (world_.loop.now() > deadline_) {
        checker_.Fail("faults have stopped, but ", checker_.published() < goal_
                                                       ? "nobody publishes"
                                                       : "not all are in sync");
      }
    }
    result_.violation = checker_.violation();
    result_.published = checker_.published();
    result_.epochs = checker_.office().epoch();
    result_.virtual_time = world_.loop.now() - absl::UnixEpoch();
    return result_;
  }

 private:
  Chance& Chances() { return world_.chance; }

  bool IsOver() const {
    return is_healed_ && checker_.published() >= goal_ &&
           checker_.office().in_sync_size() ==
               static_cast<int>(scenario_.coordinators);
  }

  void Start(uint32_t machine, absl::Duration delay) {
    world_.loop.After(delay, [this, machine] {
      processes_.push_back(std::make_unique<ElectedCoordinator>(
          ElectionParts{&scenario_, &world_, &network_, &etcd_, &checker_,
                        &disks_, &running_},
          machine, processes_.size() + 1));
      running_[machine] = processes_.back().get();
    });
  }

  void Strike() {
    world_.loop.After(
        Chances().Between(absl::Milliseconds(100), absl::Seconds(6)), [this] {
          if (is_healed_) return;
          StrikeOne();
          Strike();
        });
  }

  void StrikeOne() {
    // The network, etcd and the disks draw their faults themselves.
    std::vector<ElectionFault> kinds;
    for (const ElectionFault fault :
         {ElectionFault::kKill, ElectionFault::kStall,
          ElectionFault::kPartition, ElectionFault::kWipe,
          ElectionFault::kEtcdAway, ElectionFault::kLeaseEarly}) {
      if (scenario_.Has(fault)) kinds.push_back(fault);
    }
    if (kinds.empty()) return;
    const ElectionFault fault = kinds[Chances().Pick(kinds.size())];
    ++result_.faults;
    const uint32_t machine = DrawMachine();
    const absl::Duration time =
        Chances().OneIn(2)
            ? Chances().Between(absl::Milliseconds(100), absl::Seconds(3))
            : Chances().Between(absl::Seconds(3), absl::Seconds(20));
    switch (fault) {
      case ElectionFault::kKill:
        return Kill(machine, time);
      case ElectionFault::kWipe:
        if (!MayLose(machine)) return;
        Kill(machine, time);
        world_.Trace(CoordinatorName(machine), "          loses its disk");
        disks_[machine] = ElectionDisk();
        return;
      case ElectionFault::kStall:
        return Stall(machine, time);
      case ElectionFault::kPartition:
        return Cut(machine, time);
      case ElectionFault::kEtcdAway:
        return etcd_.GoAway(time);
      case ElectionFault::kLeaseEarly:
        return etcd_.EndOneLease();
      default:
        return;
    }
  }

  // The leader is struck more often.
  uint32_t DrawMachine() {
    if (Chances().OneIn(2)) {
      for (uint32_t machine = 0; machine < running_.size(); ++machine) {
        if (running_[machine] != nullptr && running_[machine]->leads()) {
          return machine;
        }
      }
    }
    return static_cast<uint32_t>(Chances().Pick(scenario_.coordinators));
  }

  // Returns whether another coordinator in sync has everything.
  bool MayLose(uint32_t machine) const {
    // A change under way might leave only this one in sync.
    if (etcd_.MayChange()) return false;
    for (const std::string& name : checker_.office().in_sync()) {
      const uint32_t other = CoordinatorOf(name);
      if (other != machine && disks_[other].is_complete) return true;
    }
    return false;
  }

  void Kill(uint32_t machine, absl::Duration time) {
    ElectedCoordinator* const process = running_[machine];
    if (process == nullptr) return;
    process->Die();
    Start(machine, time);
  }

  void Stall(uint32_t machine, absl::Duration time) {
    ElectedCoordinator* const process = running_[machine];
    if (process == nullptr || process->process().is_stalled()) return;
    world_.Trace(CoordinatorName(machine), "          is stopped");
    process->process().Stall();
    if (time > absl::Seconds(12)) {
      process->BreakStreams(std::nullopt, absl::Seconds(10));
    }
    world_.loop.After(time, [this, process] {
      if (!process->process().is_stalled()) return;
      world_.Trace(process->name(), "          goes on");
      process->process().Resume();
    });
  }

  // Cuts a machine off from one other, or from all.
  void Cut(uint32_t machine, absl::Duration time) {
    const bool from_all = Chances().OneIn(3);
    const auto other =
        static_cast<uint32_t>(Chances().Pick(network_.etcd() + 1));
    for (uint32_t party = 0; party <= network_.etcd(); ++party) {
      if (party == machine || (!from_all && party != other)) continue;
      world_.Trace(CoordinatorName(machine), "          is cut off from ",
                   party == network_.etcd() ? "etcd" : CoordinatorName(party));
      network_.Cut(machine, party, true);
      if (running_[machine] != nullptr && party < network_.etcd()) {
        running_[machine]->BreakStreams(party, absl::Seconds(20));
      }
      world_.loop.After(time, [this, machine, party] {
        network_.Cut(machine, party, false);
      });
    }
  }

  void Heal() {
    world_.Trace("from now on nothing fails");
    is_healed_ = true;
    network_.Heal();
    etcd_.Heal();
    for (ElectedCoordinator* const process : running_) {
      if (process != nullptr) process->process().Resume();
    }
    goal_ = checker_.published() + 3;
    deadline_ = world_.loop.now() + kRecovery;
  }

  const ElectionScenario scenario_;
  World world_;
  ElectionResult result_;
  std::vector<ElectionDisk> disks_;
  std::vector<ElectedCoordinator*> running_;
  ElectionsChecker checker_;
  ElectionNetwork network_;
  EtcdService etcd_;
  // Dead processes stay, because their events may be on the loop.
  std::vector<std::unique_ptr<ElectedCoordinator>> processes_;
  bool is_healed_ = false;
  uint64_t goal_ = 0;
  absl::Time deadline_ = absl::InfiniteFuture();
};

}  // namespace

ElectionResult RunElectionHistory(uint64_t seed, uint32_t without, bool trace) {
  return History(seed, without, trace).Run();
}

}  // namespace causeway::simulation
