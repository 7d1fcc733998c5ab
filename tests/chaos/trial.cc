// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/trial.h"

#include <signal.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/substitute.h"
#include "common/config/run_config.h"
#include "common/os/daemon.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "tests/chaos/evaluation.h"
#include "tests/end_to_end/process.h"
#include "tests/wan/network.h"
#include "tests/wan/network_namespace.h"

namespace causeway {
namespace {

// The interval at which the processes are checked.
constexpr absl::Duration kPoll = absl::Milliseconds(20);
// The longest wait for anything that must happen.
constexpr absl::Duration kPatience = absl::Seconds(120);
// The time that a service manager waits before it restarts a program.
constexpr absl::Duration kRestartDelay = absl::Milliseconds(500);

// The coordinator is alone in its network namespace, so any port is free.
constexpr char kPort[] = "7070";
constexpr char kGuestName[] = "guest";

// Rounds close without an island that is away, and windows are short, so that
// little is lost with a process. The overlap covers a restart of the
// coordinator. $0 and $1 are the least and the most islands. $2 is the grace
// window: longer than the lag of an island that came back, shorter than the
// time for which others can continue.
constexpr char kConfig[] = R"(
  name: "chaos"
  model {
    layers: 2
    hidden_size: 32
    intermediate_size: 64
    heads: 2
    sequence_length: 32
  }
  data { shards: 8 }
  training {
    total_steps: 1000000
    batch_size: 4
    learning_rate: 2e-3
    schedule: CONSTANT
  }
  outer_optimizer { momentum: 0.5 }
  synchronization {
    inner_steps_per_round: 40
    fragments: 2
    overlap_steps: 10
    max_overlap_steps: 29
  }
  membership {
    min_islands: $0
    max_islands: $1
    quorum: 1
    grace_seconds: $2
    lease_seconds: 1.5
    heartbeat_seconds: 0.25
  }
  storage { update_history: 64 record_contributions: true }
)";

// A program that is restarted when it dies.
struct Service {
  std::string name;
  std::vector<std::string> arguments;
  // The namespace it runs in; null is this process's own.
  const NetworkNamespace* inside = nullptr;
  bool wanted = false;
  std::unique_ptr<Process> process;
  // The log files, one for each life, oldest first.
  std::vector<std::string> logs;
  // The program does not start before this time.
  absl::Time start_at = absl::InfinitePast();
};

class Trial {
 public:
  explicit Trial(const ChaosOptions& options) : options_(options) {}

  absl::StatusOr<ChaosResult> Run() {
    RETURN_IF_ERROR(Prepare());
    ASSIGN_OR_RETURN(
        Network network,
        Network::Create(scenario_, wan_, options_.seed, options_.now));
    AddServices(network);
    RETURN_IF_ERROR(AwaitCommits(1));
    record_.begin = options_.now();
    RETURN_IF_ERROR(Follow(network));
    record_.end = options_.now();
    RETURN_IF_ERROR(Settle());
    RETURN_IF_ERROR(End());
    return Evaluate(Record());
  }

 private:
  // A fault that is under way, and the action that ends it.
  struct Ongoing {
    Fault fault;
    absl::Time until;
  };

  std::string Path(absl::string_view name) const {
    return absl::StrCat(options_.directory, "/", name);
  }

  absl::Status Prepare() {
    const std::string text =
        absl::Substitute(kConfig, options_.islands, options_.islands + 2,
                         35 * absl::ToDoubleSeconds(options_.step_time));
    ASSIGN_OR_RETURN(run_, ParseRunConfig(text, "chaos.textproto"));
    RETURN_IF_ERROR(WriteFileAtomically(Path("run.textproto"), {text}));
    for (int i = 0; i < options_.islands; ++i) {
      scenario_.add_islands()->set_name(absl::StrCat("island-", i));
    }
    scenario_.add_islands()->set_name(kGuestName);
    wan::DirectionShape& both = *wan_.mutable_link()->mutable_both();
    both.set_rate_mbit_s(100);
    both.set_delay_ms(5);
    return absl::OkStatus();
  }

  void AddServices(const Network& network) {
    services_.push_back(
        {.name = "coordinator",
         .arguments = {absl::StrCat(options_.programs,
                                    "/server/causeway-coordinator"),
                       "--config", Path("run.textproto"), "--state_dir",
                       Path("state"), "--listen",
                       absl::StrCat("0.0.0.0:", kPort), "--insecure",
                       "--merge_threads", "1"},
         .wanted = true});
    for (const Network::Island& island : network.islands()) {
      services_.push_back(
          {.name = island.name,
           .arguments =
               {absl::StrCat(options_.programs, "/worker/causeway-worker"),
                "--coordinator",
                absl::StrCat(island.coordinator_address, ":", kPort),
                "--island", island.name, "--data", options_.data, "--threads",
                "1", "--log_seconds", "0", "--simulated_step_seconds",
                absl::StrCat(absl::ToDoubleSeconds(options_.step_time))},
           .inside = &island.inside,
           .wanted = island.name != kGuestName});
    }
  }

  Service& coordinator() { return services_.front(); }
  Service& guest() { return services_.back(); }
  Service& Island(int index) { return services_[1 + index]; }

  absl::Status Start(Service& service) {
    service.logs.push_back(
        Path(absl::StrCat(service.name, "-", service.logs.size(), ".log")));
    std::optional<NetworkNamespace::Scope> scope;
    if (service.inside != nullptr) {
      absl::StatusOr<NetworkNamespace::Scope> entered = service.inside->Enter();
      RETURN_IF_ERROR(entered.status());
      scope.emplace(*std::move(entered));
    }
    service.process = std::make_unique<Process>(
        DyingWithParent(service.arguments), service.logs.back());
    return absl::OkStatus();
  }

  // Starts wanted programs that do not run, and reads new commits.
  absl::Status Supervise() {
    if (AwaitTerminationSignal(kPoll) != 0) {
      return absl::CancelledError("ended by a signal");
    }
    const absl::Time now = options_.now();
    for (Service& service : services_) {
      if (service.process != nullptr && !service.process->running()) {
        service.process.reset();
        service.start_at = now + kRestartDelay;
      }
      if (service.wanted && service.process == nullptr &&
          now >= service.start_at) {
        RETURN_IF_ERROR(Start(service));
      }
    }
    ReadCommits();
    return absl::OkStatus();
  }

  void ReadCommits() {
    const std::string log = CoordinatorLog();
    const absl::Time now = options_.now();
    size_t number = 0;
    for (const absl::string_view line : absl::StrSplit(log, '\n')) {
      if (!absl::StrContains(line, ": merged ")) continue;
      if (++number > record_.commits.size()) {
        record_.commits.push_back({std::string(line), now});
      }
    }
  }

  std::string CoordinatorLog() const {
    std::string text;
    for (const std::string& log : services_.front().logs) {
      absl::StrAppend(&text, FileText(log));
    }
    return text;
  }

  absl::Status AwaitCommits(size_t more) {
    const size_t wanted = record_.commits.size() + more;
    const absl::Time deadline = options_.now() + kPatience;
    while (record_.commits.size() < wanted) {
      if (options_.now() > deadline) {
        return absl::DeadlineExceededError(absl::Substitute(
            "no commit came for $0; logs are in $1",
            absl::FormatDuration(kPatience), options_.directory));
      }
      RETURN_IF_ERROR(Supervise());
    }
    return absl::OkStatus();
  }

  absl::Status Follow(Network& network) {
    size_t next = 0;
    while (options_.now() - record_.begin < options_.duration ||
           !ongoing_.empty()) {
      RETURN_IF_ERROR(Supervise());
      for (auto it = ongoing_.begin(); it != ongoing_.end();) {
        if (options_.now() < it->until) {
          ++it;
          continue;
        }
        Heal(it->fault, network);
        it = ongoing_.erase(it);
      }
      if (next < options_.faults.size() &&
          options_.now() - record_.begin >= options_.faults[next].at) {
        RETURN_IF_ERROR(Strike(options_.faults[next], network));
        ++next;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Strike(const Fault& fault, Network& network) {
    LOG(INFO) << FaultKindName(fault.kind) << ", island " << fault.island
              << ", for " << absl::FormatDuration(fault.lasts);
    const absl::Time now = options_.now();
    switch (fault.kind) {
      case FaultKind::kKillIsland:
        Signal(Island(fault.island), SIGKILL);
        record_.island_kills.push_back(now);
        return absl::OkStatus();
      case FaultKind::kKillCoordinator:
        Signal(coordinator(), SIGKILL);
        record_.coordinator_kills.push_back(now);
        return absl::OkStatus();
      case FaultKind::kResetConnections:
        return ResetConnections(network.islands()[fault.island]);
      case FaultKind::kStopIsland:
        Signal(Island(fault.island), SIGSTOP);
        break;
      case FaultKind::kPartition:
      case FaultKind::kLoss:
        SetLink(network.islands()[fault.island], fault.kind);
        break;
      case FaultKind::kGuest:
        guest().wanted = true;
        record_.guest_starts.push_back(now);
        break;
    }
    ongoing_.push_back({fault, now + fault.lasts});
    return absl::OkStatus();
  }

  void Heal(const Fault& fault, Network& network) {
    if (fault.kind == FaultKind::kStopIsland) {
      Signal(Island(fault.island), SIGCONT);
    } else if (fault.kind == FaultKind::kGuest) {
      guest().wanted = false;
      Signal(guest(), SIGTERM);
    } else {
      const Network::Island& island = network.islands()[fault.island];
      island.link->Configure(island.settings);
    }
  }

  static void Signal(Service& service, int signal) {
    if (service.process != nullptr) service.process->Signal(signal);
  }

  static void SetLink(const Network::Island& island, FaultKind kind) {
    LinkSettings settings = island.settings;
    for (ShaperSettings* direction : {&settings.up, &settings.down}) {
      if (kind == FaultKind::kPartition) {
        direction->partitioned = true;
      } else {
        direction->loss = 0.05;
      }
    }
    island.link->Configure(settings);
  }

  // Resets them at the coordinator's end, which tells the island's end by RST.
  absl::Status ResetConnections(const Network::Island& island) {
    Process reset({"/usr/bin/ss", "--kill", "--tcp", "--no-header", "src",
                   island.coordinator_address},
                  Path("resets.log"));
    if (reset.Wait() == 0) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("cannot reset connections: ", reset.Output()));
  }

  // Waits, after the faults, until every island takes part again.
  absl::Status Settle() {
    RETURN_IF_ERROR(AwaitCommits(
        3 * static_cast<size_t>(run_.synchronization().fragments())));
    const absl::Time deadline = options_.now() + kPatience;
    while (true) {
      RETURN_IF_ERROR(AwaitCommits(1));
      bool all = true;
      for (int i = 0; i < options_.islands; ++i) {
        all = all &&
              absl::StrContains(record_.commits.back().line, Island(i).name);
      }
      if (all) return absl::OkStatus();
      if (options_.now() > deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("not every island takes part again: ",
                         record_.commits.back().line));
      }
    }
  }

  // Lets the islands leave in order, and then the coordinator end.
  absl::Status End() {
    for (size_t i = services_.size(); i-- > 0;) {
      Service& service = services_[i];
      service.wanted = false;
      if (service.process == nullptr) continue;
      service.process->Signal(SIGTERM);
      const int code = service.process->Wait(kPatience);
      if (code != 0) {
        return absl::InternalError(
            absl::Substitute("$0 ended with code $1; its log is $2",
                             service.name, code, service.logs.back()));
      }
    }
    return absl::OkStatus();
  }

  ChaosRecord Record() {
    record_.state_directory = Path("state");
    record_.step_time = options_.step_time;
    record_.guest = kGuestName;
    record_.coordinator_log = CoordinatorLog();
    for (size_t i = 1; i < services_.size(); ++i) {
      ChaosRecord::IslandLogs& logs = record_.islands.emplace_back();
      logs.island = services_[i].name;
      for (const std::string& log : services_[i].logs) {
        logs.texts.push_back(FileText(log));
      }
    }
    return std::move(record_);
  }

  const ChaosOptions& options_;
  v1::RunConfig run_;
  wan::Scenario scenario_;
  wan::Network wan_;
  // The coordinator, the islands and the guest, in this order.
  std::vector<Service> services_;
  std::vector<Ongoing> ongoing_;
  ChaosRecord record_;
};

}  // namespace

absl::StatusOr<ChaosResult> RunChaos(const ChaosOptions& options) {
  return Trial(options).Run();
}

}  // namespace causeway
