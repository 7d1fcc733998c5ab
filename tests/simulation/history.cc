// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/history.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/coordinator_host.h"
#include "tests/simulation/disk.h"
#include "tests/simulation/island.h"
#include "tests/simulation/network.h"
#include "tests/simulation/virtual_time.h"

namespace causeway::simulation {
namespace {

// Far more events than a history has, unless it loops.
constexpr uint64_t kMostEvents = 200'000;

class History {
 public:
  History(uint64_t seed, const Limits& limits, bool trace)
      : scenario_(DrawScenario(seed, limits)),
        world_(seed ^ 0x9e3779b97f4a7c15, trace),
        checker_(&scenario_, &world_),
        disk_(&scenario_, &world_,
              [this](const v1::FragmentHead& head, const MergeRecord* record) {
                ++result_.commits;
                checker_.commits().Add(head, record);
              }),
        network_(&scenario_, &world_),
        host_(&scenario_, &world_, &disk_, &checker_),
        processes_(scenario_.islands) {}

  HistoryResult Run() {
    if (world_.tracing) std::cout << scenario_.Describe() << "\n";
    host_.Start();
    Supervise();
    for (uint32_t island = 0; island < scenario_.islands; ++island) {
      const bool late =
          scenario_.Has(kLateIsland) && island > 0 && Chances().OneIn(2);
      world_.loop.After(
          Chances().Between(absl::ZeroDuration(),
                            late ? scenario_.faulty_time : absl::Seconds(3)),
          [this, island] { StartIsland(island); });
    }
    world_.loop.After(scenario_.faulty_time, [this] { Heal(); });
    if (scenario_.faults != 0) Strike();
    while (checker_.violation().empty() && !Over()) {
      world_.loop.RunNext();
      if (++result_.events > kMostEvents) checker_.Fail("events without end");
      if (world_.loop.now() > deadline_) {
        checker_.Fail("the run hangs: faults have stopped, but ", Unfinished());
      }
    }
    // The last calls come in.
    const absl::Time end = world_.loop.now() + absl::Seconds(5);
    while (checker_.violation().empty() && world_.loop.now() < end) {
      world_.loop.RunNext();
    }
    result_.violation = checker_.violation();
    const std::optional<v1::ValidationPoint> last = disk_.History().validation;
    if (last.has_value()) {
      result_.validated_version = last->validation().version();
    }
    result_.virtual_time = world_.loop.now() - absl::UnixEpoch();
    return result_;
  }

 private:
  Chance& Chances() { return world_.chance; }

  // The processes of an island's name: earlier ones stay, because their events
  // may still be on the loop.
  struct Slot {
    std::vector<std::unique_ptr<Island>> processes;
    // The checkpoint on the island's disk.
    std::optional<Checkpoint> checkpoint;
    // If true, a process is about to start.
    bool starting = true;

    Island* last() const {
      return processes.empty() ? nullptr : processes.back().get();
    }
    bool dead() const { return last() != nullptr && last()->process().dead(); }
    bool finished() const { return dead() && last()->finished(); }
  };

  void StartIsland(uint32_t island) {
    Slot& slot = processes_[island];
    slot.starting = false;
    if (slot.last() != nullptr && !slot.dead()) return;
    slot.processes.push_back(std::make_unique<Island>(
        Parts{.scenario = &scenario_,
              .world = &world_,
              .network = &network_,
              .host = &host_,
              .checker = &checker_},
        island, scenario_.Has(kCheckpoint) ? &slot.checkpoint : nullptr));
  }

  // Restarts everything that has died, every second.
  void Supervise() {
    world_.loop.After(absl::Seconds(1), [this] { Supervise(); });
    for (uint32_t island = 0; island < scenario_.islands; ++island) {
      Slot& slot = processes_[island];
      if (slot.starting || !slot.dead() || slot.finished()) continue;
      slot.starting = true;
      world_.loop.After(
          Chances().Between(absl::ZeroDuration(),
                            healed_ ? absl::Seconds(3) : absl::Seconds(25)),
          [this, island] { StartIsland(island); });
    }
    // A log whose state is unknown accepts nothing until the next start.
    if (healed_ && host_.up() && host_.core()->run_state() == v1::PAUSED) {
      host_.Pause(false);
    }
    if (host_.up() && disk_.poisoned() && Chances().OneIn(healed_ ? 2 : 10)) {
      StopCoordinator();
    }
  }

  void StopCoordinator() {
    host_.Kill();
    world_.loop.After(
        Chances().Between(absl::Milliseconds(200),
                          healed_ ? absl::Seconds(2) : absl::Seconds(20)),
        [this] { host_.Start(); });
  }

  // Causes one fault, and schedules the next.
  void Strike() {
    world_.loop.After(
        Chances().Between(absl::Milliseconds(300), absl::Seconds(8)), [this] {
          if (healed_) return;
          StrikeOne();
          Strike();
        });
  }

  void StrikeOne() {
    // Network, disk and clocks draw their faults themselves.
    std::vector<Fault> kinds;
    for (const Fault fault :
         {kPartition, kIslandKill, kIslandStall, kIslandLeave, kCoordinatorKill,
          kPause, kEvict, kDrain, kOutlier}) {
      if (scenario_.Has(fault)) kinds.push_back(fault);
    }
    if (kinds.empty()) return;
    const Fault fault = kinds[Chances().Pick(kinds.size())];
    const uint32_t island =
        static_cast<uint32_t>(Chances().Pick(scenario_.islands));
    const absl::Duration time =
        Chances().Between(absl::Seconds(1), absl::Seconds(30));
    Island* const running =
        processes_[island].dead() ? nullptr : processes_[island].last();
    const std::string name = absl::StrCat("island ", IslandName(island));
    switch (fault) {
      case kPartition:
        world_.Trace(name, "   is cut off");
        network_.Partition(island, true);
        world_.loop.After(time, [this, island] {
          world_.Trace("island ", IslandName(island), "   is reachable again");
          network_.Partition(island, false);
        });
        break;
      case kIslandKill:
        if (running == nullptr) return;
        world_.Trace(name, "   is killed");
        running->process().Die();
        break;
      case kIslandStall:
        if (running == nullptr) return;
        world_.Trace(name, "   is stopped");
        running->process().Stall();
        world_.loop.After(time, [this, name, running] {
          world_.Trace(name, "   goes on");
          running->process().Resume();
        });
        break;
      case kIslandLeave:
        if (running == nullptr) return;
        running->RequestLeave();
        break;
      case kCoordinatorKill:
        if (host_.up()) StopCoordinator();
        break;
      case kPause:
        world_.Trace("operator   pauses the run");
        host_.Pause(true);
        world_.loop.After(time, [this] { host_.Pause(false); });
        break;
      case kEvict:
        world_.Trace("operator   evicts ", name);
        host_.Evict(island);
        break;
      case kDrain:
        world_.Trace("operator   drains ", name);
        host_.Drain(island);
        break;
      case kOutlier:
        if (Chances().OneIn(2)) {
          host_.Admit();
        } else {
          host_.Drop();
        }
        break;
      default:
        return;
    }
    ++result_.faults;
  }

  void Heal() {
    world_.Trace("from now on nothing fails");
    healed_ = true;
    checker_.Healed();
    network_.Heal();
    disk_.Heal();
    host_.Heal();
    for (Slot& slot : processes_) {
      if (slot.last() != nullptr) slot.last()->process().Resume();
    }
    // Every round may have to wait for a window that has just begun, for an
    // island whose lease must end first, and for the grace window, twice if an
    // island that never contributes holds it up.
    const v1::RunConfig& config = scenario_.config;
    const absl::Duration window =
        absl::Seconds(2.2) *
        (2 * config.synchronization().inner_steps_per_round() + 10);
    const absl::Duration waits =
        absl::Seconds(2 * config.membership().lease_seconds() +
                      2 * config.membership().grace_seconds() + 60);
    const double rounds = static_cast<double>(
        config.training().total_steps() /
            config.synchronization().inner_steps_per_round() +
        2);
    deadline_ = world_.loop.now() + (window + waits) * rounds;
  }

  // Returns whether the run is finished and all islands have seen it.
  bool Over() const {
    return host_.up() && host_.core()->run_state() == v1::FINISHED &&
           std::all_of(processes_.begin(), processes_.end(),
                       [](const Slot& slot) { return slot.finished(); });
  }

  std::string Unfinished() const {
    if (!host_.up()) return "the coordinator is down";
    std::vector<std::string> what;
    for (const Coordinator::CommittedFragment& state : host_.core()->heads()) {
      what.push_back(absl::StrCat("fragment ", state.head.fragment(),
                                  " is at version ", state.head.version()));
    }
    for (uint32_t island = 0; island < scenario_.islands; ++island) {
      if (processes_[island].finished()) continue;
      const Island* const last = processes_[island].last();
      what.push_back(absl::StrCat(
          "island ", IslandName(island), " is not finished",
          last == nullptr ? "" : absl::StrCat(" (", last->Describe(), ")")));
    }
    return absl::StrCat(v1::RunState_Name(host_.core()->run_state()), ", ",
                        absl::StrJoin(what, ", "));
  }

  const Scenario scenario_;
  World world_;
  HistoryResult result_;
  Checker checker_;
  Disk disk_;
  Network network_;
  CoordinatorHost host_;
  std::vector<Slot> processes_;
  bool healed_ = false;
  absl::Time deadline_ = absl::InfiniteFuture();
};

}  // namespace

HistoryResult RunHistory(uint64_t seed, const Limits& limits, bool trace) {
  return History(seed, limits, trace).Run();
}

Limits Shrink(uint64_t seed, Limits limits) {
  const auto try_instead = [&](const Limits& smaller) {
    if (RunHistory(seed, smaller, /*trace=*/false).violation.empty()) return;
    limits = smaller;
  };
  for (uint32_t fault = 0; fault < kFaults; ++fault) {
    Limits smaller = limits;
    smaller.without |= 1u << fault;
    try_instead(smaller);
  }
  for (uint32_t islands = limits.max_islands; islands-- > 1;) {
    Limits smaller = limits;
    smaller.max_islands = islands;
    try_instead(smaller);
  }
  for (uint32_t fragments = limits.max_fragments; fragments-- > 1;) {
    Limits smaller = limits;
    smaller.max_fragments = fragments;
    try_instead(smaller);
  }
  for (uint64_t rounds = limits.max_rounds; rounds-- > 1;) {
    Limits smaller = limits;
    smaller.max_rounds = rounds;
    try_instead(smaller);
  }
  return limits;
}

std::string FlagsOf(const Limits& limits) {
  std::vector<absl::string_view> without;
  for (uint32_t fault = 0; fault < kFaults; ++fault) {
    if ((limits.without >> fault & 1) != 0) {
      without.push_back(FaultName(static_cast<Fault>(fault)));
    }
  }
  return absl::StrCat("--islands ", limits.max_islands, " --fragments ",
                      limits.max_fragments, " --rounds ", limits.max_rounds,
                      " --without ", absl::StrJoin(without, ","));
}

}  // namespace causeway::simulation
