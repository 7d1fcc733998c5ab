// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/flags.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <thread>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/config/run_config.h"
#include "common/transport/coordinator_target.h"
#include "common/transport/field_limits.h"
#include "common/transport/socket_address.h"
#include "quantization/codec.h"
#include "worker/collective/rank_stamps.h"
#include "worker/data/mixture.h"
#include "worker/model/device.h"
#include "worker/sync/coordinator_channel.h"

ABSL_FLAG(std::string, coordinator, "",
          "Address of the run's coordinator, host:port, and perhaps, after "
          "commas, those of its followers.");
ABSL_FLAG(std::string, island, "",
          "Name of this island, unique in the run: 1 to 64 of [a-z0-9-]. "
          "Default: the name in the certificate of --tls.");
ABSL_FLAG(std::vector<std::string>, data, {},
          "Comma-separated files to train on: text for a run with the byte "
          "tokenizer, else token files (see `causeway prepare`).");
ABSL_FLAG(std::vector<std::string>, data_weights, {},
          "Comma-separated weights, one for each file of --data: how many "
          "sequences of it are read, relative to the other files. Default: "
          "every file in proportion to its size.");
ABSL_FLAG(std::string, device, "cpu",
          "Devices to train on: cpu, cuda (all GPUs), cuda:N, or several as "
          "cuda:0,2.");
ABSL_FLAG(
    std::optional<bool>, anchors_on_device, std::nullopt,
    "Keep the outer loop's anchors in the GPU's memory instead of in pinned "
    "host memory, so that training waits less for updates. Takes 4 bytes per "
    "parameter, and 8 more in fragments whose updates are in flight. Default: "
    "if a quarter of the GPU's free memory then stays free.");
ABSL_FLAG(int, threads, 0,
          "Computing threads of all ranks in this process together. 0: one for "
          "each processor.");
ABSL_FLAG(int, ranks, 0,
          "Ranks of the island in this process, as its threads. They are "
          "assigned to its devices in turn; each has a model and, on the CPU, "
          "an equal share of --threads. 0: one for each device.");
ABSL_FLAG(int, island_size, 1,
          "Processes of the island, each with the same number of ranks. More "
          "than 1 needs --island_leader.");
ABSL_FLAG(
    int, min_island_size, 0,
    "The fewest processes with which the island trains. 0: --island_size.");
ABSL_FLAG(double, shrink_after, 30,
          "Seconds that process 0 waits at a start for --island_size processes "
          "before it continues without the missing ones.");
ABSL_FLAG(int, island_rank, 0,
          "Number of this process in the island, from 0. Only process 0 and "
          "those that --island_leader lists use --coordinator and --island. "
          "Processes from number --island_size on are spares.");
ABSL_FLAG(
    std::string, island_leader, "",
    "Address on which the island's process 0 listens, host:port. Then, after "
    "commas, those of processes that take its place, in this order, if no "
    "address before theirs answers for --shrink_after: of processes 1, 2, ... "
    "or, as 4=host:port, of others. The same for all processes.");
ABSL_FLAG(std::string, rank_host, "",
          "Name or address at which the island's other ranks reach this host. "
          "Empty: the host's name, or the leader's if that is on loopback.");
ABSL_FLAG(std::string, rank_secret_file, "",
          "File with the island's secret, 32 bytes or more, the same for all "
          "its processes: it admits only processes that have it. Needed unless "
          "--island_leader is on loopback.");
ABSL_FLAG(bool, insecure_ranks, false,
          "Allow an --island_leader beyond loopback without "
          "--rank_secret_file: anyone who can reach it can then join the "
          "island, and read and change what it trains.");
ABSL_FLAG(bool, rank_encryption, false,
          "Encrypt what processes of the island send to one another. Process 0 "
          "decides for all. NCCL cannot encrypt what it sends.");
ABSL_FLAG(double, rank_timeout, 60,
          "Seconds that ranks wait for another before they give up. Must "
          "exceed the longest transfer, and the longest time that one rank "
          "computes after another has finished.");
ABSL_FLAG(
    int, supervise, 0,
    "Start and watch this many processes of the island on this host. They get "
    "the same flags, numbers from --island_rank on, and equal shares of "
    "--threads and of the GPUs of --device. Without --island_size they are the "
    "whole island, and need no --island_leader. 0: train in this process.");
ABSL_FLAG(std::string, on_rank_fault, "detect",
          "What --supervise does about a rank that is dead or stuck: detect "
          "reports it; decide also reports what act would do; act kills stuck "
          "ranks and restarts the ranks of this host, if possible without one "
          "that computes wrong numbers. After four starts without progress it "
          "exits with code 3.");
ABSL_FLAG(double, leave_out_slow, 0,
          "With --min_island_size and --on_rank_fault: leave out a process, at "
          "first for 10 times --shrink_after, whose rank or link has been slow "
          "for 15 s or more, if each step is then shorter by this share, such "
          "as 0.1. 0: only report it.");
ABSL_FLAG(
    double, hang_floor, 10,
    "The fewest seconds after which --supervise takes a rank for stuck: its "
    "process has not run for that long, or, after the first 5 rounds, is in "
    "one operation for that long and 5 times longer than any rank was before.");
ABSL_FLAG(double, hang_ceiling, 600,
          "Seconds after which --supervise takes a rank for stuck in any case, "
          "also in its first 5 rounds.");
ABSL_FLAG(std::string, tls, "",
          "Folder of this island's certificate (ca.crt, tls.crt and tls.key), "
          "which is renewed before it expires. Turns TLS on.");
ABSL_FLAG(std::string, join, "",
          "Join token, with which the island gets the certificate in the "
          "folder --tls (see `causeway token create`). Not used if the folder "
          "has one already.");
ABSL_FLAG(std::string, join_file, "",
          "File with the join token, which users of this machine cannot read "
          "in the list of processes as they can --join. Not needed if the "
          "folder --tls has a certificate already.");
ABSL_FLAG(
    std::string, tls_ca, "",
    "PEM file of the authorities that the coordinator's certificate is checked "
    "against. Turns TLS on. Empty: plain text, unless there is --tls.");
ABSL_FLAG(
    std::string, tls_cert, "",
    "PEM file of this island's certificate, if the coordinator wants one.");
ABSL_FLAG(std::string, tls_key, "", "PEM file of the key of --tls_cert.");
ABSL_FLAG(
    std::string, region, "",
    "The region of this island, 1 to 64 of [a-z0-9-]: updates and parameters "
    "come from a follower with the same --region while one keeps up, otherwise "
    "from the coordinator. Empty: always from the coordinator.");
ABSL_FLAG(int, bulk_connections, 1,
          "Connections to the coordinator that share bulk data, besides the "
          "one for control: 1 to 64. Several help on links that lose packets.");
ABSL_FLAG(double, uplink_mbit_s, 0,
          "Rate to which contributions are paced, in 1e6 bits per second: 0.2 "
          "or more. 0: no pacing.");
ABSL_FLAG(double, downlink_mbit_s, 0,
          "Like --uplink_mbit_s, for what the coordinator sends to this "
          "island.");
ABSL_FLAG(
    double, simulated_step_seconds, 0,
    "The fewest seconds that an inner step takes, for experiments in which "
    "this machine's small model stands for a large one. 0: no limit.");
ABSL_FLAG(std::optional<uint32_t>, overlap_steps, std::nullopt,
          "tau of this island: inner steps from sending a contribution to "
          "using its update, less than the run's inner_steps_per_round. Slower "
          "links need more. Default: the run's overlap_steps.");
ABSL_FLAG(std::optional<double>, uplink_bits, std::nullopt,
          "Bits per value of this island's contributions, 0.5 to 8, in a run "
          "whose uplink_format is ECQ. Slower uplinks need fewer. Default: the "
          "run's ecq_bits, or what the coordinator plans.");
ABSL_FLAG(double, leave_timeout, 20,
          "Seconds that a leaving island may take to hand in its training.");
ABSL_FLAG(std::string, preemption_notice_file, "",
          "Leave when this file appears, as on SIGTERM.");
ABSL_FLAG(int, interrupted_exit_code, 0,
          "Exit code, 0 or 4 to 125, if a signal or the pre-emption notice "
          "made the island leave before the run was finished, for schedulers "
          "that restart what did not exit with 0. Only process 0 knows why the "
          "island ended: its other processes exit with this code in any case.");
ABSL_FLAG(
    std::string, checkpoint_dir, "",
    "Directory for checkpoints of this island, made if missing. An island that "
    "is restarted with it continues where it was. Empty: none.");
ABSL_FLAG(
    std::string, initial_parameters, "",
    "A copy of the checkpoint that the run began with, so that the island need "
    "not download it. Fragments that differ are downloaded. Empty: all are.");
ABSL_FLAG(uint64_t, checkpoint_steps, 100,
          "Inner steps between two checkpoints in --checkpoint_dir.");
ABSL_FLAG(std::string, recent_checkpoint_dir, "",
          "Directory in memory, such as /dev/shm/NAME, for a newer checkpoint, "
          "from which the island continues if one of its processes dies but "
          "not the host. Saving it takes 1 % of the time. Empty: none.");
ABSL_FLAG(std::string, keep_checkpoint_copy, "",
          "Address, host:port, on which --supervise receives copies of the "
          "recent checkpoint from the host of process 0. It keeps the newest "
          "in the folder copy of its own --recent_checkpoint_dir. Needs "
          "--rank_secret_file beyond loopback.");
ABSL_FLAG(std::string, copy_checkpoint_to, "",
          "For --supervise with process 0 or one that may succeed it: the "
          "--keep_checkpoint_copy of another host, to which recent checkpoints "
          "are copied. A host without any, because it replaces one that was "
          "lost, begins with the copy.");
ABSL_FLAG(double, copy_mbit_s, 100,
          "Rate limit of --copy_checkpoint_to, in 1e6 bits per second. "
          "Checkpoints that would exceed it are not copied. 0: no limit.");
ABSL_FLAG(double, log_seconds, 5, "Seconds between lines of progress.");
ABSL_FLAG(std::string, metrics_listen, "",
          "Address, host:port, that serves /metrics for Prometheus, /healthz "
          "and /readyz to anyone who can reach it: choose a private one. Port "
          "0: a free port, which the log names. Empty: none.");

namespace causeway {

std::vector<double> DataWeights() {
  std::vector<double> weights;
  for (const std::string& text : absl::GetFlag(FLAGS_data_weights)) {
    if (!absl::SimpleAtod(text, &weights.emplace_back())) weights.back() = 0;
  }
  return weights;
}

int ThreadsOfAll() {
  const int threads = absl::GetFlag(FLAGS_threads);
  if (threads > 0) return threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::optional<RankFaultAction> OnRankFault() {
  const std::string word = absl::GetFlag(FLAGS_on_rank_fault);
  if (word == "detect") return RankFaultAction::kDetect;
  if (word == "decide") return RankFaultAction::kDecide;
  if (word == "act") return RankFaultAction::kAct;
  return std::nullopt;
}

CrewRules IslandCrewRules() {
  const int size = absl::GetFlag(FLAGS_island_size);
  const int least = absl::GetFlag(FLAGS_min_island_size);
  return {.size = size,
          .least = least == 0 ? size : least,
          .leader = absl::GetFlag(FLAGS_island_rank),
          .shrink_after = absl::Seconds(absl::GetFlag(FLAGS_shrink_after))};
}

std::vector<LeaderAddress> IslandLeaders() {
  const std::string leaders = absl::GetFlag(FLAGS_island_leader);
  if (leaders.empty()) return {};
  return ParseLeaders(leaders).value_or(std::vector<LeaderAddress>());
}

std::string CheckpointCopyDirectory() {
  const std::string recent = absl::GetFlag(FLAGS_recent_checkpoint_dir);
  return recent.empty() ? "" : recent + "/copy";
}

bool HasSuccessors() { return IslandLeaders().size() > 1; }

bool MayLead() {
  const int first = absl::GetFlag(FLAGS_island_rank);
  const int count = std::max(1, absl::GetFlag(FLAGS_supervise));
  if (first == 0) return true;
  for (const LeaderAddress& leader : IslandLeaders()) {
    if (leader.process >= first && leader.process < first + count) return true;
  }
  return false;
}

bool LeaderIsOnLoopback() {
  const std::vector<LeaderAddress> leaders = IslandLeaders();
  return !leaders.empty() &&
         std::all_of(leaders.begin(), leaders.end(), [](const auto& leader) {
           return IsLoopback(leader.address);
         });
}

namespace {

// Returns whether this supervisor starts all processes of the island.
bool SupervisesWholeIsland() {
  return absl::GetFlag(FLAGS_island_rank) == 0 &&
         absl::GetFlag(FLAGS_island_size) <= absl::GetFlag(FLAGS_supervise);
}

}  // namespace

void SetSupervisedIsland() {
  const int processes = absl::GetFlag(FLAGS_supervise);
  if (processes == 0) return;
  if (absl::GetFlag(FLAGS_island_size) == 1) {
    absl::SetFlag(&FLAGS_island_size, processes);
  }
  if (absl::GetFlag(FLAGS_island_leader).empty() && SupervisesWholeIsland()) {
    absl::SetFlag(&FLAGS_island_leader, kAnyLoopbackPort);
  }
}

std::string RanksProblem(int ranks) {
  const int size = absl::GetFlag(FLAGS_island_size);
  if (ranks >= 0 && ranks <= kMostRanks / size) return "";
  return absl::StrCat("each of ", size, " processes has ", ranks,
                      " ranks (--ranks, or its GPUs); allowed: at most ",
                      kMostRanks, " in all");
}

namespace {

// Returns the name of a flag that is set but means nothing without --supervise,
// or "". A supervisor's processes inherit all its flags.
std::string SupervisorsFlag() {
  if (std::getenv(kRankStampsVariable) != nullptr) return "";
  for (const char* const name :
       {"on_rank_fault", "leave_out_slow", "hang_floor", "hang_ceiling",
        "keep_checkpoint_copy", "copy_checkpoint_to", "copy_mbit_s"}) {
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    if (flag->CurrentValue() != flag->DefaultValue()) return name;
  }
  return "";
}

std::string LeaderProblem() {
  const std::string text = absl::GetFlag(FLAGS_island_leader);
  if (SupervisesWholeIsland() && text == kAnyLoopbackPort) return "";
  const absl::StatusOr<std::vector<LeaderAddress>> leaders = ParseLeaders(text);
  if (!leaders.ok()) {
    return absl::StrCat("--island_leader: ", leaders.status().message());
  }
  for (const LeaderAddress& leader : *leaders) {
    if (!HasHostAndPort(leader.address)) {
      return absl::StrCat("--island_leader is \"", leader.address,
                          "\"; allowed: host:port");
    }
  }
  return "";
}

std::string DataProblem() {
  if (absl::GetFlag(FLAGS_data).empty()) return "--data is needed";
  const std::vector<double> weights = DataWeights();
  if (weights.empty()) return "";
  const size_t files = absl::GetFlag(FLAGS_data).size();
  if (weights.size() != files) {
    return absl::StrCat("--data_weights has ", weights.size(),
                        weights.size() == 1 ? " weight for " : " weights for ",
                        files, files == 1 ? " file" : " files",
                        " of --data; give one for each");
  }
  const absl::Status status = Mixture::Create(weights).status();
  return status.ok() ? "" : absl::StrCat("--data_weights: ", status.message());
}

std::string IslandSizeProblem() {
  const int size = absl::GetFlag(FLAGS_island_size);
  const int rank = absl::GetFlag(FLAGS_island_rank);
  if (size < 1 || size > kMostRanks || rank < 0 || rank >= kMostRanks) {
    return absl::StrCat("--island_rank is ", rank, " and --island_size ", size,
                        "; allowed: 0 to ", kMostRanks - 1, ", and 1 to ",
                        kMostRanks);
  }
  if (rank > 0 && size == 1) {
    return "--island_rank above 0 needs --island_size above 1";
  }
  const int least = absl::GetFlag(FLAGS_min_island_size);
  if (least < 0 || least > size) {
    return absl::StrCat("--min_island_size is ", least,
                        "; allowed: 0 to --island_size, ", size);
  }
  if (!(absl::GetFlag(FLAGS_shrink_after) >= 0)) {
    return "--shrink_after must be 0 or more";
  }
  if (size > 1 && absl::GetFlag(FLAGS_island_leader).empty()) {
    return "--island_size above 1 needs --island_leader";
  }
  if (size == 1 && HasSuccessors()) {
    return "several addresses in --island_leader need --island_size above 1";
  }
  const std::string leader = LeaderProblem();
  if (size > 1 && !leader.empty()) return leader;
  if (size > 1 && !LeaderIsOnLoopback() &&
      absl::GetFlag(FLAGS_rank_secret_file).empty() &&
      !absl::GetFlag(FLAGS_insecure_ranks)) {
    return "--island_leader is not on loopback: give all processes the same "
           "--rank_secret_file, or --insecure_ranks, with which anyone who can "
           "reach the leader can join the island";
  }
  return RanksProblem(absl::GetFlag(FLAGS_ranks));
}

std::string SupervisorProblem() {
  const int size = absl::GetFlag(FLAGS_island_size);
  const int rank = absl::GetFlag(FLAGS_island_rank);
  const int supervised = absl::GetFlag(FLAGS_supervise);
  if (supervised < 0 || supervised > kMostRanks - rank) {
    return absl::StrCat("--supervise is ", supervised, "; allowed: at most ",
                        kMostRanks - rank, ", with --island_rank=", rank);
  }
  const std::string unused = SupervisorsFlag();
  if (supervised == 0 && !unused.empty()) {
    return absl::StrCat("--", unused, " needs --supervise");
  }
  if (!OnRankFault().has_value()) {
    return absl::StrCat("--on_rank_fault is \"",
                        absl::GetFlag(FLAGS_on_rank_fault),
                        "\"; allowed: detect, decide, act");
  }
  const double saved = absl::GetFlag(FLAGS_leave_out_slow);
  if (saved != 0 && !(saved >= 0.01 && saved < 1)) {
    return "--leave_out_slow must be 0, or at least 0.01 and less than 1";
  }
  if (saved != 0 && (IslandCrewRules().least >= size ||
                     OnRankFault() == RankFaultAction::kDetect)) {
    return "--leave_out_slow needs a --min_island_size below --island_size, "
           "and --on_rank_fault=decide or act";
  }
  if (!(absl::GetFlag(FLAGS_hang_floor) >= 1) ||
      !(absl::GetFlag(FLAGS_hang_ceiling) >= absl::GetFlag(FLAGS_hang_floor))) {
    return "--hang_floor must be 1 or more, and --hang_ceiling at least as "
           "much";
  }
  return "";
}

std::string CheckpointProblem() {
  if (absl::GetFlag(FLAGS_checkpoint_steps) < 1) {
    return "--checkpoint_steps must be 1 or more";
  }
  const std::string recent = absl::GetFlag(FLAGS_recent_checkpoint_dir);
  if (!recent.empty() && recent == absl::GetFlag(FLAGS_checkpoint_dir)) {
    return "--recent_checkpoint_dir must differ from --checkpoint_dir";
  }
  for (const std::string& address : {absl::GetFlag(FLAGS_keep_checkpoint_copy),
                                     absl::GetFlag(FLAGS_copy_checkpoint_to)}) {
    if (address.empty()) continue;
    if (recent.empty()) {
      return "--keep_checkpoint_copy and --copy_checkpoint_to need "
             "--recent_checkpoint_dir";
    }
    if (!IsLoopback(address) && absl::GetFlag(FLAGS_rank_secret_file).empty()) {
      return "--keep_checkpoint_copy and --copy_checkpoint_to need "
             "--rank_secret_file beyond loopback";
    }
  }
  const double copy_rate = absl::GetFlag(FLAGS_copy_mbit_s);
  if (copy_rate != 0 && !(copy_rate >= 0.1)) {
    return "--copy_mbit_s must be 0, or 0.1 or more";
  }
  return "";
}

// Returns the problem with what this process computes and how it ends, or "".
std::string ProcessProblem() {
  const absl::StatusOr<DeviceChoice> devices =
      ParseDevices(absl::GetFlag(FLAGS_device));
  if (!devices.ok()) {
    return absl::StrCat("--device: ", devices.status().message());
  }
  if (!(absl::GetFlag(FLAGS_rank_timeout) >= 1)) {
    return "--rank_timeout must be 1 or more";
  }
  if (!(absl::GetFlag(FLAGS_leave_timeout) >= 0)) {
    return "--leave_timeout must be 0 or more";
  }
  const int exit_code = absl::GetFlag(FLAGS_interrupted_exit_code);
  // Other codes mean failure, wrong usage, an island that must not be
  // restarted, a program that cannot be started, or a signal.
  if (exit_code != 0 && (exit_code <= kGaveUpExitCode || exit_code > 125)) {
    return absl::StrCat("--interrupted_exit_code is ", exit_code,
                        "; allowed: 0, and ", kGaveUpExitCode + 1, " to 125");
  }
  if (absl::GetFlag(FLAGS_threads) < 0 || absl::GetFlag(FLAGS_threads) > 1024) {
    return "--threads must be 0 to 1024";
  }
  const std::string metrics = absl::GetFlag(FLAGS_metrics_listen);
  if (!metrics.empty() && PortOf(metrics) < 0) {
    return absl::StrCat("--metrics_listen is \"", metrics,
                        "\"; allowed: host:port");
  }
  if (!(absl::GetFlag(FLAGS_simulated_step_seconds) >= 0)) {
    return "--simulated_step_seconds must be 0 or more";
  }
  return "";
}

std::string LinkProblem() {
  const int connections = absl::GetFlag(FLAGS_bulk_connections);
  if (connections < 1 || connections > kMaxBulkConnections) {
    return absl::StrCat("--bulk_connections must be 1 to ",
                        kMaxBulkConnections);
  }
  for (const double rate : {absl::GetFlag(FLAGS_uplink_mbit_s),
                            absl::GetFlag(FLAGS_downlink_mbit_s)}) {
    // At lower rates a chunk would take minutes.
    if (rate != 0 && !(rate >= 0.2 && std::isfinite(rate))) {
      return "--uplink_mbit_s and --downlink_mbit_s must be 0, or 0.2 or more";
    }
  }
  const double bits = absl::GetFlag(FLAGS_uplink_bits).value_or(1);
  if (!(bits >= kLeastEcqBits && bits <= kMostEcqBits)) {
    return absl::StrCat("--uplink_bits must be ", kLeastEcqBits, " to ",
                        kMostEcqBits);
  }
  const std::string region = absl::GetFlag(FLAGS_region);
  if (!region.empty() && !IsValidName(region)) {
    return absl::StrCat("--region is \"", region,
                        "\"; allowed: 1 to 64 of [a-z0-9-]");
  }
  return "";
}

std::string CoordinatorProblem() {
  if (absl::GetFlag(FLAGS_coordinator).empty()) {
    return "--coordinator is needed";
  }
  const absl::Status coordinators =
      CheckCoordinators(absl::GetFlag(FLAGS_coordinator));
  if (!coordinators.ok()) {
    return absl::StrCat("--coordinator: ", coordinators.message());
  }
  const bool has_folder = !absl::GetFlag(FLAGS_tls).empty();
  const bool has_token = !absl::GetFlag(FLAGS_join).empty();
  const bool has_token_file = !absl::GetFlag(FLAGS_join_file).empty();
  if (has_token && has_token_file) {
    return "give either --join or --join_file, not both";
  }
  if ((has_token || has_token_file) && !has_folder) {
    return "--join and --join_file need --tls, the folder for the certificate";
  }
  const bool is_named = !absl::GetFlag(FLAGS_island).empty();
  if ((is_named || !has_folder) && !IsValidName(absl::GetFlag(FLAGS_island))) {
    return absl::StrCat("--island is \"", absl::GetFlag(FLAGS_island),
                        "\"; allowed: 1 to 64 of [a-z0-9-]");
  }
  return "";
}

}  // namespace

std::string UsageProblem() {
  for (const auto problem_of :
       {ProcessProblem, IslandSizeProblem, SupervisorProblem, CheckpointProblem,
        DataProblem}) {
    const std::string problem = problem_of();
    if (!problem.empty()) return problem;
  }
  if (!MayLead()) return "";
  const std::string problem = LinkProblem();
  return problem.empty() ? CoordinatorProblem() : problem;
}

}  // namespace causeway
