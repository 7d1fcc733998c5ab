// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// causeway-worker: one island of a run, or one rank of it.
//
// SIGTERM, SIGINT, SIGUSR1 (which schedulers send ahead of time) and a
// pre-emption notice make the island hand in what it has trained and leave; a
// second signal makes it leave at once.
//
// Exit codes: 0 the run is finished, or the island has left; 1 failure; 2
// usage.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/daemon.h"
#include "common/process_memory.h"
#include "common/run_config.h"
#include "common/status_macros.h"
#include "common/transport/credentials.h"
#include "common/transport/enrolment.h"
#include "common/transport/field_limits.h"
#include "common/transport/identity.h"
#include "common/transport/socket_address.h"
#include "glog/logging.h"
#include "worker/collective/culprit.h"
#include "worker/collective/rank_secret.h"
#include "worker/collective/tcp_rendezvous.h"
#include "worker/data/mixture.h"
#include "worker/inner_trainer.h"
#include "worker/island.h"
#include "worker/island_checkpoint.h"
#include "worker/island_runner.h"
#include "worker/model/device.h"
#include "worker/paced_trainer.h"
#include "worker/sync/grpc_coordinator_client.h"
#include "worker/sync/link_rate.h"
#include "worker/training/island_trainer.h"

ABSL_FLAG(std::string, coordinator, "",
          "Address of the run's coordinator, host:port.");
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
ABSL_FLAG(bool, anchors_on_device, false,
          "On GPUs: keeps the outer loop's anchors there instead of in pinned "
          "host memory. Takes 4 bytes per parameter.");
ABSL_FLAG(bool, stochastic_rounding, false,
          "On GPUs: rounds the bf16 copy of the parameters, with which a "
          "micro-batch is computed, at random instead of to nearest. Must be "
          "the same for all processes of an island.");
ABSL_FLAG(bool, bf16_gradients, false,
          "On GPUs: sums the gradients of micro-batches in bf16 instead of "
          "fp32.");
ABSL_FLAG(int, threads, 0,
          "Computing threads of all ranks in this process together. 0 takes "
          "one for each processor.");
ABSL_FLAG(int, ranks, 0,
          "Ranks of the island in this process, as its threads. They are "
          "assigned to its devices in turn; each has a model and, on the CPU, "
          "an equal share of --threads. 0 takes one for each device.");
ABSL_FLAG(int, island_size, 1,
          "Processes of the island, all with equally many ranks. More than 1 "
          "needs --island_leader.");
ABSL_FLAG(int, island_rank, 0,
          "Number of this process in the island, from 0. Only process 0 has a "
          "--coordinator and an --island.");
ABSL_FLAG(std::string, island_leader, "",
          "Address on which the island's process 0 listens, host:port.");
ABSL_FLAG(std::string, rank_host, "",
          "Name or address of this host for the island's other ranks. Empty "
          "takes the host's name, or the leader's if that is on loopback.");
ABSL_FLAG(std::string, rank_secret_file, "",
          "File with the island's secret, 32 bytes or more, the same for all "
          "its processes: only who has it can be one of them. Needed unless "
          "--island_leader is on loopback.");
ABSL_FLAG(bool, insecure_ranks, false,
          "Goes without --rank_secret_file: whoever reaches --island_leader "
          "can take part in the island, and read and change what it trains.");
ABSL_FLAG(bool, rank_encryption, false,
          "Encrypts what processes of the island send to one another. Process "
          "0 decides for all. NCCL cannot encrypt what it sends.");
ABSL_FLAG(std::string, rank_format, "fp32",
          "Format of gradients and parameters between ranks on CPUs: fp32, or "
          "bf16, which is half the bytes. Sums, and the parameters that ranks "
          "keep, are always fp32. Must be the same for all processes of an "
          "island.");
ABSL_FLAG(double, rank_timeout, 60,
          "Seconds after which ranks give up waiting for another. Must be "
          "longer than ranks are apart in their computations and than the "
          "longest transfer.");
ABSL_FLAG(std::string, tls, "",
          "Folder with this island's certificate, which is renewed in time: "
          "ca.crt, tls.crt and tls.key. Turns TLS on.");
ABSL_FLAG(std::string, join, "",
          "Join token, with which the folder --tls is made (see `causeway "
          "token create`). Not used where the folder has a certificate "
          "already.");
ABSL_FLAG(std::string, tls_ca, "",
          "PEM file: authorities of the coordinator's certificate. Turns TLS "
          "on; without it everything is plain text.");
ABSL_FLAG(std::string, tls_cert, "",
          "PEM file: this island's certificate, if the coordinator wants one.");
ABSL_FLAG(std::string, tls_key, "", "PEM file: the key of --tls_cert.");
ABSL_FLAG(int, bulk_connections, 1,
          "Connections to the coordinator that share bulk data, beside the one "
          "for control: 1 to 64. Several help on links that lose packets.");
ABSL_FLAG(causeway::LinkRate, uplink_mbit_s, {},
          "Rate, in 1e6 bits per second, to which contributions are paced. 0 "
          "does not pace. \"auto\" takes 90 % of the rate that unpaced "
          "contributions reach: the first three, and every sixteenth.");
ABSL_FLAG(causeway::LinkRate, downlink_mbit_s, {},
          "Like --uplink_mbit_s, for what the coordinator sends to this "
          "island.");
ABSL_FLAG(double, simulated_step_seconds, 0,
          "Shortest time of an inner step, for experiments in which this "
          "machine's small model stands for a large one.");
ABSL_FLAG(std::optional<uint32_t>, overlap_steps, std::nullopt,
          "tau of this island: inner steps from the send of a contribution to "
          "the use of its update, less than the run's inner_steps_per_round. "
          "Slower links need more. Default: the run's overlap_steps.");
ABSL_FLAG(double, leave_timeout, 20,
          "Seconds that a leaving island may take to hand in its training.");
ABSL_FLAG(std::string, preemption_notice_file, "",
          "Leave when this file appears, as on SIGTERM.");
ABSL_FLAG(std::string, checkpoint_dir, "",
          "Directory for checkpoints of this island, made if missing. An "
          "island started again with it continues where it was. Empty keeps "
          "none.");
ABSL_FLAG(std::string, initial_parameters, "",
          "A copy of the checkpoint that the run began with, so that the "
          "island need not download it. What differs is downloaded.");
ABSL_FLAG(uint64_t, checkpoint_steps, 100,
          "Inner steps between two checkpoints.");
ABSL_FLAG(double, log_seconds, 5, "Seconds between lines of progress.");

namespace causeway {
namespace {

// The devices of this process and its ranks on them.
struct LocalRanks {
  std::vector<Device> devices;
  int count = 1;
  // The computing threads of each rank.
  int threads = 1;
};

// Fails if a device cannot be used.
absl::StatusOr<LocalRanks> FindLocalRanks() {
  ASSIGN_OR_RETURN(const DeviceChoice choice,
                   ParseDevices(absl::GetFlag(FLAGS_device)));
  LocalRanks ranks;
  ASSIGN_OR_RETURN(ranks.devices, FindDevices(choice));
  ranks.count = absl::GetFlag(FLAGS_ranks);
  const int devices = static_cast<int>(ranks.devices.size());
  if (ranks.count == 0) ranks.count = devices;
  // Devices without a rank stay free.
  ranks.devices.resize(std::min(ranks.count, devices));
  int threads = absl::GetFlag(FLAGS_threads);
  if (threads == 0) {
    threads =
        std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  ranks.threads = std::max(1, threads / ranks.count);
  return ranks;
}

// Returns a description of the island for people.
absl::StatusOr<std::string> Description(const LocalRanks& local) {
  ASSIGN_OR_RETURN(const std::string devices, DescribeDevices(local.devices));
  char host[256] = "unknown host";
  gethostname(host, sizeof(host) - 1);
  std::string text = absl::StrCat(host, ", ", devices);
  const int ranks = local.count * absl::GetFlag(FLAGS_island_size);
  if (ranks > 1) absl::StrAppend(&text, ", ", ranks, " ranks");
  if (!local.devices[0].is_host()) return text;
  return absl::StrCat(text, ranks > 1 ? " of " : ", ", local.threads,
                      local.threads == 1 ? " thread" : " threads");
}

// A text that is no number is 0, which no weight may be.
std::vector<double> DataWeights() {
  std::vector<double> weights;
  for (const std::string& text : absl::GetFlag(FLAGS_data_weights)) {
    if (!absl::SimpleAtod(text, &weights.emplace_back())) weights.back() = 0;
  }
  return weights;
}

IslandTrainerOptions TrainerOptions(const LocalRanks& local) {
  return {.data = absl::GetFlag(FLAGS_data),
          .data_weights = DataWeights(),
          .devices = local.devices,
          .threads = local.threads,
          .anchors_on_device = absl::GetFlag(FLAGS_anchors_on_device),
          .stochastic_rounding = absl::GetFlag(FLAGS_stochastic_rounding),
          .bf16_gradients = absl::GetFlag(FLAGS_bf16_gradients),
          .bf16_between_ranks = absl::GetFlag(FLAGS_rank_format) == "bf16",
          .timeout = absl::Seconds(absl::GetFlag(FLAGS_rank_timeout)),
          .now = SteadyWallClock()};
}

bool LeaderIsOnLoopback() {
  return IsLoopback(absl::GetFlag(FLAGS_island_leader));
}

absl::StatusOr<RendezvousOptions> MakeRendezvousOptions() {
  RendezvousOptions options{.address = absl::GetFlag(FLAGS_island_leader),
                            .now = SteadyWallClock()};
  const std::string path = absl::GetFlag(FLAGS_rank_secret_file);
  if (!path.empty()) {
    ASSIGN_OR_RETURN(options.secret, ReadRankSecret(path));
  } else if (!LeaderIsOnLoopback()) {
    LOG(WARNING) << "--insecure_ranks: whoever reaches " << options.address
                 << " can take part in the island";
  }
  return options;
}

ProcessRankOptions RankOptions(const LocalRanks& local,
                               Rendezvous* rendezvous) {
  std::string host = absl::GetFlag(FLAGS_rank_host);
  if (host.empty() && LeaderIsOnLoopback()) {
    host = std::string(HostOf(absl::GetFlag(FLAGS_island_leader)));
  }
  return {.rank = absl::GetFlag(FLAGS_island_rank),
          .size = absl::GetFlag(FLAGS_island_size),
          .threads = local.count,
          .host = host,
          .encrypt = absl::GetFlag(FLAGS_rank_encryption),
          .rendezvous = rendezvous};
}

// Calls `leave` with the reason at the first termination signal or notice of
// pre-emption, and `stop` at the second signal, until destroyed.
class Terminator {
 public:
  Terminator(std::function<void(const std::string&)> leave,
             std::function<void()> stop)
      : thread_([this, leave = std::move(leave), stop = std::move(stop)] {
          bool leaving = false;
          while (!done_.HasBeenNotified()) {
            const int signal = AwaitTerminationSignal(absl::Milliseconds(100));
            if (signal != 0 && leaving) return stop();
            if (leaving) continue;
            const std::string reason = Reason(signal);
            if (reason.empty()) continue;
            LOG(INFO) << reason << ": leaving the run";
            leaving = true;
            leave(reason);
          }
        }) {}
  ~Terminator() {
    done_.Notify();
    thread_.join();
  }

 private:
  // Why the island is to leave; empty if it is not.
  static std::string Reason(int signal) {
    if (signal != 0) return absl::StrCat("SIG", sigabbrev_np(signal));
    const std::string notice = absl::GetFlag(FLAGS_preemption_notice_file);
    if (notice.empty() || access(notice.c_str(), F_OK) != 0) return "";
    return absl::StrCat("pre-emption notice ", notice);
  }

  absl::Notification done_;
  std::thread thread_;
};

Island::Options IslandOptions(const std::string& description,
                              TrainerFactory make_trainer, Clock now) {
  std::random_device random;
  const uint64_t instance =
      (uint64_t{random()} << 32 | random()) | 1;  // 0 means none.
  Island::Options options{
      .make_trainer = std::move(make_trainer),
      .overlap_steps = absl::GetFlag(FLAGS_overlap_steps),
      .initial_parameters = absl::GetFlag(FLAGS_initial_parameters),
      .seed = instance,
      .now = std::move(now),
      .leave_timeout = absl::Seconds(absl::GetFlag(FLAGS_leave_timeout)),
      .log_interval = absl::Seconds(absl::GetFlag(FLAGS_log_seconds))};
  options.join.set_island_id(absl::GetFlag(FLAGS_island));
  options.join.set_instance_id(instance);
  options.join.set_description(description);
  return options;
}

// Returns how to connect to the coordinator; enrols first if need be. Takes the
// island's name from its certificate, if it has none. CANCELLED if a signal
// comes meanwhile.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> PrepareConnection(
    const Clock& now) {
  const ClientTlsFiles files = {.tls_ca = absl::GetFlag(FLAGS_tls_ca),
                                .tls_cert = absl::GetFlag(FLAGS_tls_cert),
                                .tls_key = absl::GetFlag(FLAGS_tls_key),
                                .tls = absl::GetFlag(FLAGS_tls)};
  const std::string token = absl::GetFlag(FLAGS_join);
  if (!token.empty()) {
    RETURN_IF_ERROR(EnrolOnce(absl::GetFlag(FLAGS_coordinator), token,
                              files.tls, now, [](absl::Duration pause) {
                                return AwaitTerminationSignal(pause) == 0;
                              }));
  }
  if (!files.tls.empty() && absl::GetFlag(FLAGS_island).empty()) {
    ASSIGN_OR_RETURN(const Identity identity, FolderIdentity(files.tls, now()));
    absl::SetFlag(&FLAGS_island, identity.name);
  }
  return MakeChannelCredentials(files, now());
}

// Runs the island from its rank 0.
absl::Status Lead() {
  // The server starts first, so that the other ranks find it.
  std::unique_ptr<RendezvousServer> rendezvous;
  if (absl::GetFlag(FLAGS_island_size) > 1) {
    ASSIGN_OR_RETURN(const RendezvousOptions options, MakeRendezvousOptions());
    ASSIGN_OR_RETURN(rendezvous, RendezvousServer::Start(options));
  }
  // Devices are looked for before the join, so that a missing one is reported
  // at once.
  ASSIGN_OR_RETURN(const LocalRanks local, FindLocalRanks());
  ASSIGN_OR_RETURN(const std::string description, Description(local));
  const auto make_trainer = [&](const v1::JoinResponse& joined,
                                std::vector<float> parameters)
      -> absl::StatusOr<std::unique_ptr<InnerTrainer>> {
    IslandTrainerOptions options = TrainerOptions(local);
    options.shard = joined.shard();
    ASSIGN_OR_RETURN(
        std::unique_ptr<InnerTrainer> trainer,
        rendezvous != nullptr
            ? MakeLeadingRank(joined.config(), options,
                              RankOptions(local, rendezvous->table()),
                              std::move(parameters))
            : MakeThreadedIsland(joined.config(), options, local.count,
                                 std::move(parameters)));
    const absl::Duration step_time =
        absl::Seconds(absl::GetFlag(FLAGS_simulated_step_seconds));
    if (step_time == absl::ZeroDuration()) return trainer;
    return std::make_unique<PacedTrainer>(std::move(trainer), step_time,
                                          options.now, absl::SleepFor);
  };
  const Clock now = SteadyWallClock();
  std::unique_ptr<IslandCheckpointStore> checkpoints;
  std::shared_ptr<IslandState> resume;
  if (!absl::GetFlag(FLAGS_checkpoint_dir).empty()) {
    ASSIGN_OR_RETURN(checkpoints, IslandCheckpointStore::Open(
                                      absl::GetFlag(FLAGS_checkpoint_dir)));
    ASSIGN_OR_RETURN(std::optional<IslandState> state, checkpoints->Load());
    if (state.has_value()) {
      resume = std::make_shared<IslandState>(*std::move(state));
    }
  }
  const auto island_options = [&] {
    Island::Options options = IslandOptions(description, make_trainer, now);
    options.checkpoints = checkpoints.get();
    options.checkpoint_steps = absl::GetFlag(FLAGS_checkpoint_steps);
    // An island that diverged starts again from the run's parameters.
    options.resume = std::exchange(resume, nullptr);
    if (options.resume != nullptr) {
      // The lock on the directory shows that this process is dead.
      options.join.set_replaces_instance_id(
          options.resume->position.instance_id());
    }
    return options;
  };
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials,
                   PrepareConnection(now));
  std::optional<CertificateRenewer> renewer;
  if (!absl::GetFlag(FLAGS_tls).empty()) {
    renewer.emplace(absl::GetFlag(FLAGS_coordinator), absl::GetFlag(FLAGS_tls),
                    now);
  }
  IslandRunner runner(
      {.connect =
           [&] {
             return NewGrpcCoordinatorClient(
                 {.address = absl::GetFlag(FLAGS_coordinator),
                  .credentials = credentials,
                  .bulk_connections = absl::GetFlag(FLAGS_bulk_connections),
                  .uplink_bytes_per_second =
                      absl::GetFlag(FLAGS_uplink_mbit_s).bytes_per_second(),
                  .downlink_bytes_per_second =
                      absl::GetFlag(FLAGS_downlink_mbit_s).bytes_per_second(),
                  .now = now});
           },
       .island = island_options,
       .give_up =
           [&] {
             return checkpoints == nullptr ? absl::OkStatus()
                                           : checkpoints->Remove();
           },
       // Ranks in other processes end with rank 0's trainer; whoever started
       // them all must start them again.
       .restarts = rendezvous == nullptr ? 3 : 0});
  absl::Status status;
  {
    Terminator terminator(
        [&](const std::string& reason) { runner.RequestLeave(reason); },
        [&] { runner.Stop(); });
    status = runner.Run();
  }
  LOG(INFO) << "peak memory " << (PeakResidentBytes() >> 20) << " MiB";
  if (!status.ok() && !absl::IsCancelled(status) && rendezvous != nullptr) {
    absl::SleepFor(kReportsNeeded);
  }
  return status;
}

// Runs a process of the island that does not have rank 0.
absl::Status Follow() {
  ASSIGN_OR_RETURN(const LocalRanks local, FindLocalRanks());
  // The process ends once rank 0 has led the island out of the run: rank 0
  // needs it until then.
  Terminator terminator([](const std::string&) {}, [] { _exit(0); });
  const ProcessRankOptions without_table = RankOptions(local, nullptr);
  ASSIGN_OR_RETURN(const RendezvousOptions options, MakeRendezvousOptions());
  ASSIGN_OR_RETURN(const std::unique_ptr<Rendezvous> rendezvous,
                   ConnectRendezvous(options, without_table.connect_timeout));
  return RunFollowingRank(TrainerOptions(local),
                          RankOptions(local, rendezvous.get()));
}

absl::Status Run() {
  // The configuration, which says more about the files, comes with the join;
  // whether they can be read is known now.
  for (const std::string& path : absl::GetFlag(FLAGS_data)) {
    if (access(path.c_str(), R_OK) != 0) {
      return absl::NotFoundError(
          absl::StrCat("cannot read the data file \"", path, "\" (--data)"));
    }
  }
  if (absl::GetFlag(FLAGS_island_rank) != 0) return Follow();
  const absl::Status status = Lead();
  // A stop on request is not a failure.
  return absl::IsCancelled(status) ? absl::OkStatus() : status;
}

// Returns what is wrong with the command line, or "".
std::string UsageProblem() {
  const int size = absl::GetFlag(FLAGS_island_size);
  const int rank = absl::GetFlag(FLAGS_island_rank);
  const int ranks = absl::GetFlag(FLAGS_ranks);
  const absl::StatusOr<DeviceChoice> devices =
      ParseDevices(absl::GetFlag(FLAGS_device));
  if (!devices.ok()) {
    return absl::StrCat("--device: ", devices.status().message());
  }
  const std::string format = absl::GetFlag(FLAGS_rank_format);
  if (format != "fp32" && format != "bf16") {
    return absl::StrCat("--rank_format is \"", format,
                        "\"; allowed: fp32, bf16");
  }
  if (format != "fp32" && absl::GetFlag(FLAGS_device) != "cpu") {
    return "--rank_format=bf16 is for --device=cpu";
  }
  if (size < 1 || size > kMostRanks || rank < 0 || rank >= size) {
    return absl::StrCat("--island_rank is ", rank, " and --island_size ", size,
                        "; allowed: 0 to size - 1, and 1 to ", kMostRanks);
  }
  if (size > 1 && absl::GetFlag(FLAGS_island_leader).empty()) {
    return "--island_size above 1 needs --island_leader";
  }
  if (size > 1 && !LeaderIsOnLoopback() &&
      absl::GetFlag(FLAGS_rank_secret_file).empty() &&
      !absl::GetFlag(FLAGS_insecure_ranks)) {
    return "--island_leader is not on loopback: give all processes the same "
           "--rank_secret_file, or say --insecure_ranks, with which whoever "
           "reaches the leader can take part in the island";
  }
  if (ranks < 0 || ranks > kMostRanks / size) {
    return absl::StrCat("--ranks is ", ranks, " on ", size,
                        " processes; allowed: at most ", kMostRanks,
                        " on all of them together");
  }
  if (!(absl::GetFlag(FLAGS_rank_timeout) >= 1)) {
    return "--rank_timeout must be 1 or more";
  }
  if (!(absl::GetFlag(FLAGS_leave_timeout) >= 0)) {
    return "--leave_timeout must be 0 or more";
  }
  if (absl::GetFlag(FLAGS_threads) < 0 || absl::GetFlag(FLAGS_threads) > 1024) {
    return "--threads must be 0 to 1024";
  }
  if (absl::GetFlag(FLAGS_checkpoint_steps) < 1) {
    return "--checkpoint_steps must be 1 or more";
  }
  if (absl::GetFlag(FLAGS_data).empty()) return "--data is needed";
  const std::vector<double> weights = DataWeights();
  if (!weights.empty() && !Mixture::Create(weights).ok()) {
    return std::string(Mixture::Create(weights).status().message());
  }
  if (!(absl::GetFlag(FLAGS_simulated_step_seconds) >= 0)) {
    return "--simulated_step_seconds must be 0 or more";
  }
  if (rank > 0) return "";
  const int connections = absl::GetFlag(FLAGS_bulk_connections);
  if (connections < 1 || connections > kMaxBulkConnections) {
    return absl::StrCat("--bulk_connections must be 1 to ",
                        kMaxBulkConnections);
  }
  if (absl::GetFlag(FLAGS_coordinator).empty()) {
    return "--coordinator, --island and --data are needed";
  }
  const bool has_folder = !absl::GetFlag(FLAGS_tls).empty();
  if (!absl::GetFlag(FLAGS_join).empty() && !has_folder) {
    return "--join needs --tls: the folder in which the certificate is kept";
  }
  const bool is_named = !absl::GetFlag(FLAGS_island).empty();
  if ((is_named || !has_folder) && !IsValidName(absl::GetFlag(FLAGS_island))) {
    return absl::StrCat("--island is \"", absl::GetFlag(FLAGS_island),
                        "\"; allowed: 1 to 64 of [a-z0-9-]");
  }
  return "";
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  constexpr char kProgram[] = "causeway-worker";
  const std::vector<std::string> rest = causeway::StartDaemon(
      argc, argv,
      "Trains as one island of a run.\n\n"
      "  causeway-worker --coordinator HOST:PORT --island NAME --data FILE\n"
      "  causeway-worker --coordinator HOST:PORT --join TOKEN --tls DIR --data "
      "FILE",
      "worker/main.cc");
  if (!rest.empty()) {
    return causeway::UsageError(
        kProgram, absl::StrCat("unknown argument \"", rest[0], "\""));
  }
  const std::string problem = causeway::UsageProblem();
  if (!problem.empty()) return causeway::UsageError(kProgram, problem);
  return causeway::ExitCode(kProgram, causeway::Run());
}
