// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/takeover/trial.h"

#include <signal.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/substitute.h"
#include "absl/time/clock.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "server/election/testing/etcd_process.h"
#include "tests/chaos/evaluation.h"
#include "tests/end_to_end/free_port.h"
#include "tests/end_to_end/process.h"
#include "tests/takeover/relay.h"

namespace causeway {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(20);
constexpr absl::Duration kPatience = absl::Seconds(90);
constexpr absl::Duration kRestartDelay = absl::Milliseconds(500);
constexpr double kStepSeconds = 0.05;

constexpr char kConfig[] = R"(
  name: "takeover"
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
    inner_steps_per_round: 20
    fragments: 2
    overlap_steps: 5
    max_overlap_steps: 14
  }
  membership { min_islands: $0 lease_seconds: 60 heartbeat_seconds: 0.25 }
  storage {
    update_history: 64
    record_contributions: true
    sync_replicas: $1
  }
)";

// A program, with its lives.
struct Program {
  std::string name;
  std::vector<std::string> arguments;
  std::unique_ptr<Process> process = nullptr;
  // The log files, one for each life, oldest first.
  std::vector<std::string> logs = {};
  // The commits in the newest log.
  size_t commits = 0;
  // The relays by which a coordinator reaches etcd, and by which followers and
  // islands reach it.
  std::unique_ptr<Relay> to_etcd = nullptr;
  std::unique_ptr<Relay> from_followers = nullptr;
  std::unique_ptr<Relay> from_islands = nullptr;
};

class Trial {
 public:
  explicit Trial(const TakeoverOptions& options)
      : options_(options), random_(options.seed) {}

  absl::StatusOr<TakeoverResult> Run() {
    RETURN_IF_ERROR(StartAll());
    RETURN_IF_ERROR(AwaitCommits(4));
    record_.begin = options_.now();
    for (const Disturbance disturbance : options_.disturbances) {
      RETURN_IF_ERROR(
          Pass(options_.longest_pause *
               std::uniform_real_distribution<double>(1. / 3, 1)(random_)));
      RETURN_IF_ERROR(Disturb(disturbance));
    }
    RETURN_IF_ERROR(AwaitCommits(4));
    record_.end = options_.now();
    return End();
  }

 private:
  std::string Path(absl::string_view name) const {
    return absl::StrCat(options_.directory, "/", name);
  }

  absl::Status StartAll() {
    const std::string text =
        absl::Substitute(kConfig, options_.islands, options_.coordinators - 1);
    RETURN_IF_ERROR(WriteFileAtomically(Path("run.textproto"), {text}));
    ASSIGN_OR_RETURN(etcd_, EtcdProcess::Make());
    std::vector<std::string> addresses;
    for (int i = 0; i < options_.coordinators; ++i) {
      AddCoordinator(absl::StrCat("replica-", i));
      addresses.push_back(AddressOf(coordinators_.back().from_islands->port()));
    }
    for (int i = 0; i < options_.islands; ++i) {
      const std::string name = absl::StrCat("island-", i);
      islands_.push_back(
          {.name = name,
           .arguments = {
               absl::StrCat(options_.programs, "/worker/causeway-worker"),
               absl::StrCat("--coordinator=", absl::StrJoin(addresses, ",")),
               absl::StrCat("--island=", name),
               absl::StrCat("--data=", options_.data), "--threads=1",
               "--log_seconds=0",
               absl::StrCat("--simulated_step_seconds=", kStepSeconds)}});
      Start(islands_.back());
    }
    return absl::OkStatus();
  }

  static std::string AddressOf(int port) {
    return absl::StrCat("127.0.0.1:", port);
  }

  void AddCoordinator(const std::string& name) {
    const int port = FreePort();
    Program& coordinator = coordinators_.emplace_back();
    coordinator.name = name;
    coordinator.to_etcd = std::make_unique<Relay>(etcd_->port());
    coordinator.from_followers = std::make_unique<Relay>(port);
    coordinator.from_islands = std::make_unique<Relay>(port);
    coordinator.arguments = {
        absl::StrCat(options_.programs, "/server/causeway-coordinator"),
        absl::StrCat("--config=", Path("run.textproto")),
        absl::StrCat("--state_dir=", Path(name)),
        absl::StrCat("--etcd=", AddressOf(coordinator.to_etcd->port())),
        absl::StrCat("--etcd_lease=", absl::FormatDuration(options_.lease)),
        absl::StrCat("--name=", name),
        absl::StrCat("--listen=", AddressOf(port)),
        absl::StrCat("--advertise=",
                     AddressOf(coordinator.from_followers->port())),
        "--merge_threads=1"};
    Start(coordinator);
  }

  void Start(Program& program) {
    program.logs.push_back(
        Path(absl::StrCat(program.name, "-", program.logs.size(), ".log")));
    program.commits = 0;
    program.process = std::make_unique<Process>(
        DyingWithParent(program.arguments), program.logs.back());
  }

  // Reads new commits. Fails if a program has ended by itself.
  absl::Status Look() {
    absl::SleepFor(kPoll);
    for (Program& coordinator : coordinators_) {
      size_t number = 0;
      for (const absl::string_view line :
           absl::StrSplit(FileText(coordinator.logs.back()), '\n')) {
        if (!absl::StrContains(line, ": merged ")) continue;
        if (++number <= coordinator.commits) continue;
        ++coordinator.commits;
        record_.commits.push_back({std::string(line), options_.now()});
      }
    }
    for (auto* const programs : {&coordinators_, &islands_}) {
      for (Program& program : *programs) {
        if (program.process != nullptr && !program.process->running()) {
          return absl::InternalError(absl::StrCat(
              program.name, " has ended; see ", program.logs.back()));
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status Pass(absl::Duration time) {
    const absl::Time until = options_.now() + time;
    while (options_.now() < until) RETURN_IF_ERROR(Look());
    return absl::OkStatus();
  }

  absl::Status AwaitCommits(size_t more) {
    const size_t wanted = record_.commits.size() + more;
    return Await(absl::Substitute("$0 commits", more),
                 [&] { return record_.commits.size() >= wanted; });
  }

  absl::Status Await(const std::string& what,
                     const std::function<bool()>& is_so) {
    const absl::Time deadline = options_.now() + kPatience;
    while (!is_so()) {
      if (options_.now() > deadline) {
        return absl::DeadlineExceededError(absl::Substitute(
            "no $0 in $1; logs are in $2", what,
            absl::FormatDuration(kPatience), options_.directory));
      }
      RETURN_IF_ERROR(Look());
    }
    return absl::OkStatus();
  }

  // Returns the coordinator that was elected last.
  Program& Leader() {
    Program* leader = &coordinators_.front();
    int highest = 0;
    for (Program& coordinator : coordinators_) {
      for (const absl::string_view line :
           absl::StrSplit(FileText(coordinator.logs.back()), '\n')) {
        const auto at = line.find("elected, epoch ");
        int epoch = 0;
        if (at != line.npos && absl::SimpleAtoi(line.substr(at + 15), &epoch) &&
            epoch > highest) {
          highest = epoch;
          leader = &coordinator;
        }
      }
    }
    return *leader;
  }

  absl::Status Disturb(Disturbance disturbance) {
    LOG(INFO) << "disturbance " << static_cast<int>(disturbance) << " after "
              << record_.commits.size() << " commits; " << Leader().name
              << " leads";
    switch (disturbance) {
      case Disturbance::kKillLeader:
        return KillLeader();
      case Disturbance::kStopLeader:
        return StopLeader();
      case Disturbance::kStopEtcd:
        return StopEtcd();
      case Disturbance::kWipeFollower:
        return WipeFollower();
      case Disturbance::kCutLeaderFromEtcd:
        return CutFromEtcd();
      case Disturbance::kCutLeaderFromFollowers:
        return CutFromFollowers();
      case Disturbance::kCutLeaderFromIslands:
        return CutFromIslands();
    }
    return absl::InternalError("no such disturbance");
  }

  absl::Status Kill(Program& program) {
    const std::unique_ptr<Process> killed = std::move(program.process);
    killed->End(SIGKILL);
    return Look();
  }

  absl::Status KillLeader() {
    Program& leader = Leader();
    const absl::Time at = options_.now();
    RETURN_IF_ERROR(Kill(leader));
    RETURN_IF_ERROR(Pass(kRestartDelay));
    Start(leader);
    return NoteGap(at);
  }

  absl::Status StopLeader() {
    Program& leader = Leader();
    leader.process->Signal(SIGSTOP);
    // Commits from before the signal do not count.
    RETURN_IF_ERROR(Look());
    const absl::Time at = options_.now();
    const size_t announced = leader.commits;
    RETURN_IF_ERROR(NoteGap(at));
    RETURN_IF_ERROR(Pass(at + 2 * options_.lease - options_.now()));
    leader.process->Signal(SIGCONT);
    RETURN_IF_ERROR(Await("end of the stopped leader's office", [&] {
      return absl::StrContains(FileText(leader.logs.back()),
                               "another coordinator leads the run");
    }));
    // One commit may have been durable everywhere before the signal.
    if (leader.commits > announced + 1) {
      return absl::InternalError(
          absl::StrCat(leader.name, " has committed without the office; see ",
                       leader.logs.back()));
    }
    return absl::OkStatus();
  }

  absl::Status StopEtcd() {
    const Program& leader = Leader();
    etcd_->process().Signal(SIGSTOP);
    RETURN_IF_ERROR(Pass(3 * options_.lease));
    const absl::Status went_on = AwaitCommits(1);
    etcd_->process().Signal(SIGCONT);
    RETURN_IF_ERROR(went_on);
    RETURN_IF_ERROR(AwaitCommits(2));
    return ExpectLeader(leader, "etcd was away");
  }

  absl::Status WipeFollower() {
    Program& follower =
        coordinators_[&Leader() == &coordinators_.front() ? 1 : 0];
    RETURN_IF_ERROR(Kill(follower));
    std::error_code ignored;
    std::filesystem::remove_all(Path(follower.name), ignored);
    Start(follower);
    RETURN_IF_ERROR(Await("complete copy", [&] {
      return absl::StrContains(FileText(follower.logs.back()), "is complete");
    }));
    return AwaitCommits(2);
  }

  absl::Status CutFromEtcd() {
    Program& leader = Leader();
    const absl::Time at = options_.now();
    leader.to_etcd->Cut();
    // Commits shortly before the takeover do not count.
    RETURN_IF_ERROR(Await("takeover", [&] { return &Leader() != &leader; }));
    RETURN_IF_ERROR(AwaitCommits(1));
    gaps_.push_back(options_.now() - at);
    RETURN_IF_ERROR(Pass(2 * options_.lease));
    leader.to_etcd->Heal();
    return AwaitCommits(2);
  }

  absl::Status CutFromFollowers() {
    Program& leader = Leader();
    const absl::Time at = options_.now();
    leader.from_followers->Cut();
    RETURN_IF_ERROR(AwaitCommits(4));
    RETURN_IF_ERROR(NoteGap(at));
    leader.from_followers->Heal();
    return ExpectLeader(leader, "its followers were away");
  }

  absl::Status CutFromIslands() {
    Program& leader = Leader();
    const absl::Time at = options_.now();
    leader.from_islands->Cut();
    RETURN_IF_ERROR(Pass(3 * options_.lease));
    leader.from_islands->Heal();
    RETURN_IF_ERROR(AwaitCommits(2));
    RETURN_IF_ERROR(NoteGap(at));
    return ExpectLeader(leader, "islands were away");
  }

  absl::Status ExpectLeader(const Program& leader, absl::string_view while_) {
    if (&Leader() == &leader) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("the leader changed while ", while_));
  }

  // Waits for the next commit after `since`, and notes how long it took.
  absl::Status NoteGap(absl::Time since) {
    RETURN_IF_ERROR(Await("commit after a takeover", [&] {
      return !record_.commits.empty() && record_.commits.back().seen > since;
    }));
    for (const ChaosRecord::Commit& commit : record_.commits) {
      if (commit.seen <= since) continue;
      gaps_.push_back(commit.seen - since);
      break;
    }
    LOG(INFO) << "the next commit came after " << gaps_.back();
    return absl::OkStatus();
  }

  absl::StatusOr<TakeoverResult> End() {
    record_.state_directory = Path(Leader().name);
    for (auto* const programs : {&islands_, &coordinators_}) {
      for (Program& program : *programs) {
        program.process->Signal(SIGTERM);
        const int code = program.process->Wait(kPatience);
        if (code != 0) {
          return absl::InternalError(
              absl::Substitute("$0 ended with code $1; its log is $2",
                               program.name, code, program.logs.back()));
        }
      }
    }
    for (const Program& coordinator : coordinators_) {
      for (const std::string& log : coordinator.logs) {
        absl::StrAppend(&record_.coordinator_log, FileText(log));
      }
    }
    for (const Program& island : islands_) {
      record_.islands.push_back(
          {.island = island.name, .texts = {FileText(island.logs.back())}});
    }
    record_.step_time = absl::Seconds(kStepSeconds);
    ASSIGN_OR_RETURN(const ChaosResult result, Evaluate(record_));
    return TakeoverResult{
        .accounts = result.accounts, .rounds = result.rounds, .gaps = gaps_};
  }

  const TakeoverOptions& options_;
  std::mt19937_64 random_;
  std::unique_ptr<EtcdProcess> etcd_;
  std::vector<Program> coordinators_;
  std::vector<Program> islands_;
  ChaosRecord record_;
  std::vector<absl::Duration> gaps_;
};

}  // namespace

absl::StatusOr<TakeoverResult> RunTakeover(const TakeoverOptions& options) {
  return Trial(options).Run();
}

}  // namespace causeway
