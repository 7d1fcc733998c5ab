// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/wan/trial.h"

#include <signal.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/coordinator_client.h"
#include "common/os/daemon.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/time_util.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/process.h"
#include "tests/wan/network.h"
#include "tests/wan/network_namespace.h"
#include "tests/wan/scenario.h"

namespace causeway {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(100);
// The time that programs have to start and to end.
constexpr absl::Duration kPatience = absl::Seconds(30);
// A lease ends at a tick of the coordinator after the island's last heartbeat,
// which came up to a heartbeat's interval before the island was cut off.
constexpr absl::Duration kEvictionSlack = absl::Seconds(3);

class Trial {
 public:
  explicit Trial(const TrialOptions& options)
      : options_(options), run_(RunOf(options.scenario, options.setting)) {
    run_.set_seed(run_.seed() + options.repeat);
  }

  absl::StatusOr<TrialResult> Run() {
    ASSIGN_OR_RETURN(Network network,
                     Network::Create(options_.scenario, options_.network,
                                     run_.seed(), options_.now));
    ASSIGN_OR_RETURN(const std::vector<LinkMeasurement> measured,
                     network.Check());
    RETURN_IF_ERROR(StartCoordinator());
    network.ResetCounters();
    RETURN_IF_ERROR(StartIslands(network));
    RETURN_IF_ERROR(Follow(network));
    TrialResult result;
    ASSIGN_OR_RETURN(result.congestion_control, CongestionControl());
    RETURN_IF_ERROR(AddIslands(network, measured, result));
    RETURN_IF_ERROR(AddCoordinatorsView(result));
    coordinator_->Signal(SIGTERM);
    if (coordinator_->Wait(kPatience) != 0) {
      return Failed(*coordinator_, "the coordinator", "did not end well");
    }
    ASSIGN_OR_RETURN(result.validation_loss, ValidationLoss());
    return result;
  }

 private:
  std::string Path(absl::string_view name) const {
    return absl::StrCat(options_.directory, "/", name);
  }

  std::string Program(absl::string_view name) const {
    return absl::StrCat(options_.programs, "/", name);
  }

  // Starts a program in the calling thread's namespace. It is killed when this
  // process ends, even if that is killed itself.
  std::unique_ptr<Process> Start(std::vector<std::string> arguments,
                                 absl::string_view log) const {
    return std::make_unique<Process>(DyingWithParent(std::move(arguments)),
                                     Path(absl::StrCat(log, ".log")));
  }

  static absl::Status Failed(const Process& process, absl::string_view name,
                             absl::string_view what) {
    constexpr size_t kShown = 1000;
    const std::string output = process.Output();
    absl::string_view end = output;
    if (end.size() > kShown) end.remove_prefix(end.size() - kShown);
    return absl::InternalError(
        absl::StrCat(name, " ", what, "; its log ends with\n", end));
  }

  absl::Status StartCoordinator() {
    std::string text;
    google::protobuf::TextFormat::PrintToString(run_, &text);
    RETURN_IF_ERROR(WriteFileAtomically(Path("run.textproto"), {text}));
    coordinator_ =
        Start({Program("server/causeway-coordinator"), "--config",
               Path("run.textproto"), "--state_dir", Path("state"), "--listen",
               "0.0.0.0:0", "--insecure", "--port_file", Path("port")},
              "coordinator");
    if (!coordinator_->AwaitOutput("waiting for islands", kPatience)) {
      return Failed(*coordinator_, "the coordinator", "did not start");
    }
    ASSIGN_OR_RETURN(const std::string port, ReadFile(Path("port")));
    port_ = std::string(absl::StripAsciiWhitespace(port));
    status_.emplace(absl::StrCat("127.0.0.1:", port_));
    return absl::OkStatus();
  }

  absl::Status StartIslands(const Network& network) {
    for (int i = 0; i < options_.scenario.islands_size(); ++i) {
      const Network::Island& island = network.islands()[i];
      ASSIGN_OR_RETURN(const NetworkNamespace::Scope scope,
                       island.inside.Enter());
      std::vector<std::string> arguments = {
          options_.worker,
          "--coordinator",
          absl::StrCat(island.coordinator_address, ":", port_),
          "--island",
          island.name,
          "--data",
          options_.data,
          "--threads",
          absl::StrCat(options_.scenario.islands(i).threads()),
          "--log_seconds",
          "0"};
      for (const auto* flags : {&options_.scenario.worker_flags(),
                                &options_.setting.worker_flags()}) {
        arguments.insert(arguments.end(), flags->begin(), flags->end());
      }
      islands_.push_back(Start(std::move(arguments), island.name));
    }
    return absl::OkStatus();
  }

  // Follows the run until the islands have ended, which they do when the run is
  // finished.
  absl::Status Follow(Network& network) {
    const absl::Time deadline =
        options_.now() + absl::Seconds(options_.scenario.limit_seconds());
    while (true) {
      if (AwaitTerminationSignal(kPoll) != 0) {
        return absl::CancelledError("ended by a signal");
      }
      if (!coordinator_->running()) {
        return Failed(*coordinator_, "the coordinator", "ended");
      }
      const absl::Time now = options_.now();
      if (started_ == absl::InfiniteFuture()) {
        RETURN_IF_ERROR(LookForStart(network, now));
      } else {
        network.Advance(now - started_);
      }
      ASSIGN_OR_RETURN(const bool ended, IslandsHaveEnded());
      if (ended) {
        ended_ = now;
        return absl::OkStatus();
      }
      if (now > deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("the run with setting \"", options_.setting.name(),
                         "\" on network \"", options_.network.name(),
                         "\" was not finished within limit_seconds; logs are "
                         "in ",
                         options_.directory));
      }
    }
  }

  absl::Status LookForStart(const Network& network, absl::Time now) {
    ASSIGN_OR_RETURN(const StatusSnapshot snapshot, status_->Fetch(false));
    if (snapshot.run.state() == v1::WAITING_FOR_ISLANDS) {
      return absl::OkStatus();
    }
    started_ = now;
    emulator_before_ = EmulatorTime(network);
    return absl::OkStatus();
  }

  absl::StatusOr<bool> IslandsHaveEnded() {
    bool ended = true;
    for (int i = 0; i < options_.scenario.islands_size(); ++i) {
      Process& island = *islands_[i];
      if (island.running()) {
        ended = false;
      } else if (island.Wait() != 0) {
        return Failed(
            island,
            absl::StrCat("island ", options_.scenario.islands(i).name()),
            "failed");
      }
    }
    return ended;
  }

  static absl::Duration EmulatorTime(const Network& network) {
    absl::Duration sum;
    for (const Network::Island& island : network.islands()) {
      sum += island.link->processor_time();
    }
    return sum;
  }

  absl::Status AddIslands(const Network& network,
                          const std::vector<LinkMeasurement>& measured,
                          TrialResult& result) const {
    // The baseline has one round, but is measured over as many steps.
    const uint64_t round_steps = std::min(
        run_.synchronization().inner_steps_per_round(),
        options_.scenario.run().synchronization().inner_steps_per_round());
    for (size_t i = 0; i < network.islands().size(); ++i) {
      const Network::Island& island = network.islands()[i];
      ASSIGN_OR_RETURN(
          const IslandSpeed speed,
          MeasureSpeed(ParseProgressLog(islands_[i]->Output()), round_steps));
      result.islands.push_back(
          {.name = island.name,
           .settings = LinkAt(options_.scenario, options_.network, island.name,
                              kBeforeTheRun),
           .measured = measured[i],
           .counters = island.link->counters(),
           .speed = speed});
    }
    result.duration = ended_ - started_;
    result.emulator_processor_time = EmulatorTime(network) - emulator_before_;
    return absl::OkStatus();
  }

  absl::Status AddCoordinatorsView(TrialResult& result) {
    ASSIGN_OR_RETURN(const StatusSnapshot snapshot, status_->Fetch(true));
    if (snapshot.run.state() != v1::FINISHED) {
      return absl::InternalError(
          "all islands have ended, but the run is not finished");
    }
    for (const v1::IslandStatus& status : snapshot.islands.islands()) {
      for (IslandResult& island : result.islands) {
        if (island.name != status.island_id()) continue;
        island.achieved_up = status.progress().uplink().bytes_per_second();
        island.achieved_down = status.progress().downlink().bytes_per_second();
      }
    }
    result.bytes_up = snapshot.run.bytes_received();
    result.bytes_down = snapshot.run.bytes_sent();
    result.bytes_data_parallel = snapshot.run.bytes_data_parallel();
    v1::WatchEventsRequest evictions;
    evictions.set_recorded_only(true);
    evictions.add_kinds("island_evicted");
    return status_->WatchEvents(evictions, [&](const v1::Event& event) {
      ++result.evictions;
      const absl::Duration at =
          absl::FromUnixNanos(
              google::protobuf::util::TimeUtil::TimestampToNanoseconds(
                  event.time())) -
          started_;
      const absl::Duration lease =
          absl::Seconds(run_.membership().lease_seconds());
      if (!PartitionedBetween(options_.scenario, options_.network,
                              event.island_id(), at - lease - kEvictionSlack,
                              at)) {
        ++result.false_evictions;
      }
      return true;
    });
  }

  absl::StatusOr<double> ValidationLoss() const {
    const std::unique_ptr<Process> evaluate =
        Start({Program("cli/causeway"), "evaluate", Path("state"), "--data",
               options_.data, "--json"},
              "evaluate");
    if (evaluate->Wait(absl::Seconds(options_.scenario.limit_seconds())) != 0) {
      return Failed(*evaluate, "causeway evaluate", "failed");
    }
    const std::string output = evaluate->Output();
    const size_t begin = output.find('{');
    const nlohmann::json report = nlohmann::json::parse(
        begin == std::string::npos ? "" : output.substr(begin), nullptr,
        /*allow_exceptions=*/false);
    const auto loss = report.find("loss");
    if (loss == report.end() || !loss->is_number()) {
      return Failed(*evaluate, "causeway evaluate", "printed no loss");
    }
    return loss->get<double>();
  }

  const TrialOptions& options_;
  v1::RunConfig run_;
  std::unique_ptr<Process> coordinator_;
  std::string port_;
  std::optional<CoordinatorClient> status_;
  // The islands in the scenario's order.
  std::vector<std::unique_ptr<Process>> islands_;
  absl::Time started_ = absl::InfiniteFuture();
  absl::Time ended_;
  absl::Duration emulator_before_;
};

}  // namespace

absl::StatusOr<TrialResult> RunTrial(const TrialOptions& options) {
  return Trial(options).Run();
}

}  // namespace causeway
