// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// causeway-worker: one island of a run, or one rank of it.
//
// SIGTERM, SIGINT, SIGUSR1 (which schedulers send ahead of time) and a
// pre-emption notice make the island hand in its training and leave; a second
// signal makes it leave at once.
//
// Exit codes: 0 the run is finished, or the island has left; 1 failure; 2
// usage; 3 --supervise has given up, so the island must not be started again;
// --interrupted_exit_code if a signal or a notice made it leave.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/http/http_server.h"
#include "common/metrics/metric_families.h"
#include "common/metrics/metrics_server.h"
#include "common/os/daemon.h"
#include "common/os/file.h"
#include "common/os/machine.h"
#include "common/os/service_manager.h"
#include "common/status_macros.h"
#include "common/transport/credentials.h"
#include "common/transport/enrolment.h"
#include "common/transport/identity.h"
#include "common/transport/socket_address.h"
#include "glog/logging.h"
#include "worker/collective/crew.h"
#include "worker/collective/culprit.h"
#include "worker/collective/rank_secret.h"
#include "worker/collective/rank_stamps.h"
#include "worker/collective/tcp_rendezvous.h"
#include "worker/crew_report.h"
#include "worker/flags.h"
#include "worker/inner_trainer.h"
#include "worker/island.h"
#include "worker/island_checkpoint.h"
#include "worker/island_runner.h"
#include "worker/model/device.h"
#include "worker/supervised_ranks.h"
#include "worker/sync/grpc_coordinator_client.h"
#include "worker/training/island_ranks.h"
#include "worker/worker_metrics.h"

namespace causeway {
namespace {

// A process waits this long for another that starts.
constexpr absl::Duration kAwaitProcess = absl::Minutes(5);
// It waits less for one that has a place, if the island can go on without it.
constexpr absl::Duration kAwaitRank = absl::Minutes(1);
// Process 0 looks this often who has come.
constexpr absl::Duration kLookForProcesses = absl::Milliseconds(50);
// The longest time that the other processes of a crew take to end their ranks.
constexpr absl::Duration kRanksEnd = absl::Seconds(15);

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
  ranks.threads = std::max(1, ThreadsOfAll() / ranks.count);
  return ranks;
}

// Returns a description of the island, of which the processes in `present` are
// there, for people. `devices` describes those of this process.
std::string Description(const std::string& devices, const LocalRanks& local,
                        const CrewRules& rules, const std::set<int>& present) {
  char host[256] = "unknown host";
  gethostname(host, sizeof(host) - 1);
  std::string text = absl::StrCat(host, ", ", devices);
  const std::string missing = WithoutText(rules, present);
  if (!missing.empty()) absl::StrAppend(&text, ", ", missing);
  const int processes =
      missing.empty() ? rules.size : static_cast<int>(present.size());
  const int ranks = local.count * processes;
  if (ranks > 1) absl::StrAppend(&text, ", ", ranks, " ranks");
  if (!local.devices[0].is_host()) return text;
  return absl::StrCat(text, ranks > 1 ? " of " : ", ", local.threads,
                      local.threads == 1 ? " thread" : " threads");
}

IslandRanksOptions TrainerOptions(const LocalRanks& local) {
  return {.data = absl::GetFlag(FLAGS_data),
          .data_weights = DataWeights(),
          .devices = local.devices,
          .threads = local.threads,
          .anchors_on_device = absl::GetFlag(FLAGS_anchors_on_device),
          .bf16_gradients = absl::GetFlag(FLAGS_bf16_gradients),
          .bf16_between_ranks = absl::GetFlag(FLAGS_rank_format) == "bf16",
          .timeout = absl::Seconds(absl::GetFlag(FLAGS_rank_timeout)),
          .now = SteadyWallClock()};
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

ProcessRankOptions RankOptions(const LocalRanks& local, int rank, int size,
                               Rendezvous* rendezvous) {
  std::string host = absl::GetFlag(FLAGS_rank_host);
  if (host.empty() && LeaderIsOnLoopback()) {
    host = std::string(HostOf(absl::GetFlag(FLAGS_island_leader)));
  }
  const CrewRules rules = IslandCrewRules();
  const absl::Duration rank_timeout =
      absl::Seconds(absl::GetFlag(FLAGS_rank_timeout));
  return {.rank = rank,
          .size = size,
          .threads = local.count,
          .host = host,
          .encrypt = absl::GetFlag(FLAGS_rank_encryption),
          .rendezvous = rendezvous,
          .connect_timeout = rules.least < rules.size
                                 ? std::max(kAwaitRank, rank_timeout)
                                 : kAwaitProcess};
}

// Set once a signal or a notice of pre-emption has asked the process to end.
std::atomic<bool> interrupted = false;

// Calls `leave` with the reason at the first termination signal or notice of
// pre-emption, `stop` at the second signal, and `tend` ten times a second,
// until destroyed.
class Terminator {
 public:
  Terminator(std::function<void(const std::string&)> leave,
             std::function<void()> stop, std::function<void()> tend)
      : thread_([this, leave = std::move(leave), stop = std::move(stop),
                 tend = std::move(tend)] {
          bool leaving = false;
          while (!done_.HasBeenNotified()) {
            tend();
            const int signal = AwaitTerminationSignal(absl::Milliseconds(100));
            if (signal != 0 && leaving) return stop();
            if (leaving) continue;
            const std::string reason = Reason(signal);
            if (reason.empty()) continue;
            LOG(INFO) << reason << ": leaving the run";
            leaving = true;
            interrupted = true;
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

uint64_t RandomSeed() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

Island::Options IslandOptions(const std::string& description,
                              TrainerFactory make_trainer, Clock now) {
  const uint64_t instance = RandomSeed() | 1;  // 0 means none.
  Island::Options options{
      .make_trainer = std::move(make_trainer),
      .overlap_steps = absl::GetFlag(FLAGS_overlap_steps),
      .initial_parameters = absl::GetFlag(FLAGS_initial_parameters),
      .seed = instance,
      .now = std::move(now),
      .leave_timeout = absl::Seconds(absl::GetFlag(FLAGS_leave_timeout)),
      .log_interval = absl::Seconds(absl::GetFlag(FLAGS_log_seconds)),
      .step_time = absl::Seconds(absl::GetFlag(FLAGS_simulated_step_seconds))};
  options.join.set_island_id(absl::GetFlag(FLAGS_island));
  options.join.set_instance_id(instance);
  options.join.set_description(description);
  return options;
}

absl::StatusOr<std::string> Token() {
  const std::string path = absl::GetFlag(FLAGS_join_file);
  if (path.empty()) return absl::GetFlag(FLAGS_join);
  ASSIGN_OR_RETURN(std::string token, ReadFile(path));
  absl::StripAsciiWhitespace(&token);
  return token;
}

// Returns the credentials for the coordinator; enrols first if necessary. Takes
// a missing island name from the certificate. CANCELLED if a signal comes
// meanwhile.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> PrepareConnection(
    const Clock& now) {
  const ClientTlsFiles files = {.tls_ca = absl::GetFlag(FLAGS_tls_ca),
                                .tls_cert = absl::GetFlag(FLAGS_tls_cert),
                                .tls_key = absl::GetFlag(FLAGS_tls_key),
                                .tls = absl::GetFlag(FLAGS_tls)};
  ASSIGN_OR_RETURN(const std::string token, Token());
  if (!token.empty()) {
    const absl::Status enrolled =
        EnrolOnce(absl::GetFlag(FLAGS_coordinator), token, files.tls, now,
                  RandomSeed(), [](absl::Duration pause) {
                    interrupted = AwaitTerminationSignal(pause) != 0;
                    return !interrupted;
                  });
    if (interrupted) return absl::CancelledError("stopped before the start");
    RETURN_IF_ERROR(enrolled);
  }
  if (!files.tls.empty() && absl::GetFlag(FLAGS_island).empty()) {
    ASSIGN_OR_RETURN(const Identity identity, FolderIdentity(files.tls, now()));
    absl::SetFlag(&FLAGS_island, identity.name);
  }
  return MakeChannelCredentials(files, now());
}

// Returns the path of the island's certificate, or "".
std::string CertificatePath() {
  const std::string folder = absl::GetFlag(FLAGS_tls);
  return folder.empty() ? absl::GetFlag(FLAGS_tls_cert)
                        : absl::StrCat(folder, "/", kFolderCertificate);
}

// Returns the checkpoints in a directory, or null if there is none.
absl::StatusOr<std::unique_ptr<IslandCheckpointStore>> OpenCheckpoints(
    const std::string& directory) {
  if (directory.empty()) return nullptr;
  return IslandCheckpointStore::Open(directory);
}

// Returns the rank that `status` blames because it is dead or stuck, or because
// the network does not join it with rank 0, so that nobody need wait for it; 0
// if there is none.
int LostRank(const absl::Status& status) {
  const std::optional<v1::RankTrouble> trouble = RankTroubleOf(status);
  if (!trouble.has_value()) return 0;
  switch (trouble->kind()) {
    case v1::RankTrouble::DEAD_RANK:
    case v1::RankTrouble::STUCK_RANK:
      return static_cast<int>(trouble->rank());
    case v1::RankTrouble::SLOW_LINK:
      return std::min(trouble->rank(), trouble->to_rank()) == 0
                 ? static_cast<int>(
                       std::max(trouble->rank(), trouble->to_rank()))
                 : 0;
    default:
      return 0;
  }
}

// Returns the process without which the island is to go on after `status`,
// because the network does not join it with another one; 0 if there is none.
int ProcessToAvoid(const absl::Status& status, const LocalRanks& local,
                   const CrewRules& rules, CrewLeader& crew) {
  const std::optional<v1::RankTrouble> trouble = RankTroubleOf(status);
  if (!trouble.has_value() || trouble->kind() != v1::RankTrouble::SLOW_LINK ||
      rules.least == rules.size) {
    return 0;
  }
  // Process 0 is needed.
  return crew.ProcessWithRank(
      static_cast<int>(std::max(trouble->rank(), trouble->to_rank())),
      local.count);
}

// Runs the island from its rank 0.
absl::Status Lead() {
  const Clock now = SteadyWallClock();
  CrewRules rules = IslandCrewRules();
  RankStampPage* const stamps = OpenedRankStamps();
  if (stamps != nullptr) rules.avoided = stamps->avoided().exchange(0);
  std::unique_ptr<RendezvousServer> rendezvous;
  std::optional<CrewLeader> crew;
  const auto open_rendezvous = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const RendezvousOptions options, MakeRendezvousOptions());
    crew.reset();
    rendezvous.reset();
    ASSIGN_OR_RETURN(rendezvous, RendezvousServer::Start(options));
    crew.emplace(rules, rendezvous.get(), now);
    return absl::OkStatus();
  };
  // The server starts first, so that the other ranks find it.
  if (rules.size > 1) RETURN_IF_ERROR(open_rendezvous());
  const auto pause = [] {
    absl::SleepFor(kLookForProcesses);
    return !interrupted;
  };
  // Who was there before the join.
  std::set<int> present;
  // Find devices before the join, so that a missing one is reported at once.
  ASSIGN_OR_RETURN(const LocalRanks local, FindLocalRanks());
  ASSIGN_OR_RETURN(const std::string devices, DescribeDevices(local.devices));
  const auto make_trainer = [&](const v1::JoinResponse& joined,
                                std::vector<float> parameters)
      -> absl::StatusOr<std::unique_ptr<InnerTrainer>> {
    IslandRanksOptions options = TrainerOptions(local);
    options.shard = joined.shard();
    if (rendezvous == nullptr) {
      return MakeThreadedIsland(joined.config(), options, local.count,
                                std::move(parameters));
    }
    const v1::TrainingConfig& training = joined.config().training();
    const int64_t unit = int64_t{training.micro_batch_size()} * local.count;
    const int64_t batch = training.batch_size();
    ASSIGN_OR_RETURN(
        const int size,
        crew->Choose(
            [=](int processes) { return batch % (unit * processes) == 0; },
            pause));
    return MakeLeadingRank(joined.config(), options,
                           RankOptions(local, 0, size, rendezvous->table()),
                           std::move(parameters));
  };
  ServiceManager manager(now);
  WorkerMetrics metrics;
  ASSIGN_OR_RETURN(const std::unique_ptr<IslandCheckpointStore> checkpoints,
                   OpenCheckpoints(absl::GetFlag(FLAGS_checkpoint_dir)));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<IslandCheckpointStore> recent_checkpoints,
      OpenCheckpoints(absl::GetFlag(FLAGS_recent_checkpoint_dir)));
  const auto remove_recent = [&] {
    return recent_checkpoints == nullptr ? absl::OkStatus()
                                         : recent_checkpoints->Remove();
  };
  ASSIGN_OR_RETURN(std::optional<IslandState> newest,
                   LoadNewest(checkpoints.get(), recent_checkpoints.get()));
  std::shared_ptr<IslandState> resume;
  if (newest.has_value()) {
    resume = std::make_shared<IslandState>(*std::move(newest));
  }
  const auto island_options = [&] {
    Island::Options options = IslandOptions(
        Description(devices, local, rules, present), make_trainer, now);
    options.check_run = [&](const v1::JoinResponse& joined) {
      RETURN_IF_ERROR(CheckTrainable(joined));
      metrics.SetRun(joined);
      manager.Ready();
      manager.SetStatus(absl::StrCat("island ", joined.identity().island_id(),
                                     " of run ", joined.config().name()));
      return absl::OkStatus();
    };
    options.checkpoints = checkpoints.get();
    options.recent_checkpoints = recent_checkpoints.get();
    options.checkpoint_steps = absl::GetFlag(FLAGS_checkpoint_steps);
    // An island that diverged starts again from the run's parameters.
    options.resume = std::exchange(resume, nullptr);
    if (options.resume != nullptr) {
      // The lock on the directory shows that the earlier process is dead.
      options.join.set_replaces_instance_id(
          options.resume->position.instance_id());
    }
    if (rules.least < rules.size) {
      options.hands_over = [&] { return crew->CanGrow(); };
      options.hand_over = [&](IslandState state) {
        resume = std::make_shared<IslandState>(std::move(state));
        return crew->SayStartAgain();
      };
    }
    options.take_verdict =
        [missing = WithoutTrouble(rules, present, local.count)]() mutable {
          return TakeTrouble(std::exchange(missing, std::nullopt));
        };
    if (stamps != nullptr) {
      // The supervisor starts no process before the earlier one is dead.
      const uint64_t dead = stamps->member().exchange(options.seed);
      if (options.resume == nullptr) {
        options.join.set_replaces_instance_id(dead);
      }
    }
    return options;
  };
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials,
                   PrepareConnection(now));
  std::optional<CertificateRenewer> renewer;
  if (!absl::GetFlag(FLAGS_tls).empty()) {
    renewer.emplace(absl::GetFlag(FLAGS_coordinator), absl::GetFlag(FLAGS_tls),
                    now, RandomSeed());
  }
  IslandRunner runner(
      {.connect =
           [&] {
             return NewGrpcCoordinatorClient(
                 {.address = absl::GetFlag(FLAGS_coordinator),
                  .region = absl::GetFlag(FLAGS_region),
                  .credentials = credentials,
                  .tls = !absl::GetFlag(FLAGS_tls).empty() ||
                         !absl::GetFlag(FLAGS_tls_ca).empty(),
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
             if (stamps != nullptr) stamps->member() = 0;
             RETURN_IF_ERROR(remove_recent());
             return checkpoints == nullptr ? absl::OkStatus()
                                           : checkpoints->Remove();
           },
       // Ranks in other processes end with rank 0's trainer, and must be
       // started again from outside.
       .restarts = rendezvous == nullptr ? 3 : 0});
  CertificateExpiry certificate(CertificatePath(), now);
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> metrics_server,
                   StartMetricsServer(
                       absl::GetFlag(FLAGS_metrics_listen), now,
                       [&] { return metrics.CheckJoined(); },
                       [&](MetricFamilies& families) {
                         metrics.Add(runner.Progress(), certificate.Get(),
                                     families);
                       }));
  absl::Status status;
  {
    Terminator terminator(
        [&](const std::string& reason) {
          manager.Stopping();
          runner.RequestLeave(reason);
        },
        [&] { runner.Stop(); },
        [&] {
          if (runner.GetsOn()) manager.Alive();
        });
    const auto run = [&]() -> absl::Status {
      // No island waits for one that has not joined.
      if (rules.least < rules.size) {
        ASSIGN_OR_RETURN(present, crew->AwaitEnough(pause));
      }
      return runner.Run();
    };
    status = run();
    while (absl::IsAborted(status) && resume != nullptr) {
      crew->AwaitDone(kRanksEnd);
      rules = crew->NextRules();
      status = open_rendezvous();
      if (status.ok()) status = run();
    }
  }
  LOG(INFO) << "peak memory " << (PeakResidentBytes() >> 20) << " MiB";
  if (status.ok() || absl::IsCancelled(status)) {
    if (crew.has_value()) crew->Dismiss();
    RETURN_IF_ERROR(remove_recent());
  } else if (rendezvous != nullptr) {
    crew->SayFailed(status);
    if (stamps != nullptr) {
      stamps->avoided() = ProcessToAvoid(status, local, rules, *crew);
      stamps->left() = true;
    }
    crew->AwaitDone(kReportsNeeded, LostRank(status) / local.count);
  }
  return status;
}

// Runs a process of the island that does not have rank 0.
absl::Status Follow() {
  ASSIGN_OR_RETURN(const LocalRanks local, FindLocalRanks());
  std::atomic<bool> has_place = false;
  // Rank 0 needs a process that has a place until it has led the island out of
  // the run.
  Terminator terminator(
      [&](const std::string&) {
        if (!has_place) _exit(absl::GetFlag(FLAGS_interrupted_exit_code));
      },
      [] { _exit(0); }, [] {});
  ASSIGN_OR_RETURN(const RendezvousOptions options, MakeRendezvousOptions());
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<CrewPlace> place,
                     AwaitPlace(options, absl::GetFlag(FLAGS_island_rank),
                                RandomSeed(), kAwaitProcess));
    // The island did not need it.
    if (!place.has_value()) return absl::OkStatus();
    has_place = true;
    const ProcessRankOptions ranks =
        RankOptions(local, place->rank, place->size, place->table.get());
    StampOwnRanks(ranks.rank * ranks.threads, ranks.threads);
    const absl::Status ended = RunFollowingRank(TrainerOptions(local), ranks);
    if (!ended.ok()) {
      SayDone(*place);
      return ended;
    }
    // Rank 0 ends the others in order even if it fails itself, and then says
    // so.
    const absl::StatusOr<std::optional<std::string>> why =
        WhyEnded(*place, kReportsNeeded);
    if (!why.ok()) return absl::OkStatus();
    if (why->has_value()) {
      return absl::AbortedError(absl::StrCat("rank 0 has failed: ", **why));
    }
    has_place = false;
    StampOwnRanks(0, 0);
  }
}

// Returns the exit code.
absl::StatusOr<int> Run() {
  // Check now that the files can be read. The configuration, which says more
  // about them, comes with the join.
  for (const std::string& path : absl::GetFlag(FLAGS_data)) {
    if (access(path.c_str(), R_OK) != 0) {
      return absl::NotFoundError(
          absl::StrCat("cannot read the data file \"", path, "\" (--data)"));
    }
  }
  RETURN_IF_ERROR(OpenRankStamps(SteadyWallClock()));
  const int if_interrupted = absl::GetFlag(FLAGS_interrupted_exit_code);
  if (absl::GetFlag(FLAGS_island_rank) != 0) {
    RETURN_IF_ERROR(Follow());
    // Only process 0 knows why the island has ended.
    return if_interrupted;
  }
  const absl::Status status = Lead();
  // A requested stop is not a failure.
  if (absl::IsCancelled(status)) return interrupted ? if_interrupted : 0;
  RETURN_IF_ERROR(status);
  return 0;
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
      "worker/flags.cc");
  if (!rest.empty()) {
    return causeway::UsageError(
        kProgram, absl::StrCat("unknown argument \"", rest[0], "\""));
  }
  causeway::SetSupervisedIsland();
  const std::string problem = causeway::UsageProblem();
  if (!problem.empty()) return causeway::UsageError(kProgram, problem);
  const absl::StatusOr<int> code =
      absl::GetFlag(FLAGS_supervise) > 0
          ? causeway::SuperviseRanks({argv, argv + argc})
          : causeway::Run();
  return code.ok() ? *code : causeway::ExitCode(kProgram, code.status());
}
