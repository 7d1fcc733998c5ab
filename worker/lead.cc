// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/lead.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/http/http_server.h"
#include "common/metrics/metric_families.h"
#include "common/metrics/metrics_server.h"
#include "common/os/file.h"
#include "common/os/machine.h"
#include "common/os/service_manager.h"
#include "common/status_macros.h"
#include "common/transport/certificate_expiry.h"
#include "common/transport/enrolment.h"
#include "glog/logging.h"
#include "worker/collective/collective_diagnosis.h"
#include "worker/collective/crew.h"
#include "worker/collective/crew_watch.h"
#include "worker/collective/culprit.h"
#include "worker/collective/rank_stamps.h"
#include "worker/collective/slow_process.h"
#include "worker/collective/succession.h"
#include "worker/collective/tcp_rendezvous.h"
#include "worker/collective/verdicts.h"
#include "worker/coordinator_access.h"
#include "worker/crew_report.h"
#include "worker/flags.h"
#include "worker/inner_trainer.h"
#include "worker/island.h"
#include "worker/island_checkpoint.h"
#include "worker/island_runner.h"
#include "worker/local_ranks.h"
#include "worker/model/device.h"
#include "worker/outer_loop/retry.h"
#include "worker/terminator.h"
#include "worker/training/gradient_audit.h"
#include "worker/training/island_ranks.h"
#include "worker/worker_metrics.h"

namespace causeway {
namespace {

using RandomSeed = std::function<uint64_t()>;

// The leader checks for new processes at this interval.
constexpr absl::Duration kLookForProcesses = absl::Milliseconds(50);
// The leader waits this long for a crew's other processes to end their ranks.
constexpr absl::Duration kRanksEnd = absl::Seconds(15);
// The reason why an island leaves when its supervisor has given up.
constexpr char kGaveUp[] =
    "its supervisor has given up, because its ranks kept failing without a "
    "step between";
// The time for which a slow process is left out doubles at most this often.
constexpr int kMostDoublings = 6;

// Returns the checkpoints in a directory, or null if there is none.
absl::StatusOr<std::unique_ptr<IslandCheckpointStore>> OpenCheckpoints(
    const std::string& directory) {
  if (directory.empty()) return nullptr;
  return IslandCheckpointStore::Open(directory);
}

// Returns the higher one of the ranks at the ends of a broken link.
int FarEnd(const v1::RankTrouble& trouble) {
  return static_cast<int>(std::max(trouble.rank(), trouble.to_rank()));
}

// Returns the rank that `status` blames for being dead, stuck or behind a
// broken link to rank 0, and that need not be waited for; 0 if there is none.
int LostRank(const absl::Status& status) {
  const std::optional<v1::RankTrouble> trouble = RankTroubleOf(status);
  if (!trouble.has_value()) return 0;
  switch (trouble->kind()) {
    case v1::RankTrouble::DEAD_RANK:
    case v1::RankTrouble::STUCK_RANK:
      return static_cast<int>(trouble->rank());
    case v1::RankTrouble::SLOW_LINK:
      return std::min(trouble->rank(), trouble->to_rank()) == 0
                 ? FarEnd(*trouble)
                 : 0;
    default:
      return 0;
  }
}

class LeadingProcess {
 public:
  explicit LeadingProcess(const RandomSeed& random_seed)
      : random_seed_(random_seed) {}

  absl::Status Run();

 private:
  absl::Status Prepare();
  // Begins a new crew.
  absl::Status OpenRendezvous();
  bool MayShrink() const { return rules_.least < rules_.size; }
  // Returns whether this process only tells the coordinator and the island's
  // other processes that the island has ended.
  bool GaveUp() const { return stamps_ != nullptr && stamps_->gave_up() > 0; }
  // Waits for a moment. Returns false if the process must end.
  bool PauseForProcesses();

  // Returns a description of the island for people.
  std::string Description() const;
  Island::Options MakeIslandOptions();
  absl::Status CheckRun(const v1::JoinResponse& joined);
  absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeTrainer(
      const v1::JoinResponse& joined, std::vector<float> parameters);
  // Decides whether to leave out a slow process.
  void Diagnosed(const CollectiveDiagnosis& diagnosis);
  // Keeps the island's state for the next crew, and tells this one to end.
  absl::Status HandOver(IslandState state);
  // Removes the checkpoints of an island that diverged, and this host's copy.
  absl::Status GiveUp();
  absl::Status RemoveRecent();

  // Runs the island, with one crew after the other, until it has left.
  absl::Status RunCrews(IslandRunner& runner);
  absl::Status RunCrew(IslandRunner& runner);
  // Like RunCrew, but gives up once another process leads the island.
  //   ALREADY_EXISTS  Another process does, or the coordinator says so.
  absl::Status RunCrewWithoutRivals(IslandRunner& runner);
  // Tells the other processes and the supervisor how the island has ended, and
  // whether a later start needs its recent checkpoint.
  absl::Status End(const absl::Status& status, bool has_handed_in);
  // Returns the process to leave out after `status` because its link to another
  // one is broken; kNoProcess if there is none.
  int ProcessToAvoid(const absl::Status& status);
  // Handles the `status` of an audit that has found wrong numbers. Returns
  // ABORTED if the island continues without the process at fault, and `status`
  // otherwise.
  absl::Status Isolate(const absl::Status& status);

  const RandomSeed& random_seed_;
  const Clock now_ = SteadyWallClock();
  // Null without a supervisor.
  RankStampPage* const stamps_ = OpenedRankStamps();
  CrewRules rules_ = IslandCrewRules();
  // The instance_id of the newest join.
  uint64_t instance_ = 0;
  // Null and none if the island has one process.
  std::unique_ptr<RendezvousServer> rendezvous_;
  std::optional<CrewLeader> crew_;
  // Looks for rivals until this process has joined; null if there can be none.
  std::unique_ptr<RivalWatch> rivals_;
  std::atomic<bool> has_rival_ = false;
  LocalRanks local_;
  // A description of this process's devices.
  std::string devices_;
  ServiceManager manager_{now_};
  WorkerMetrics metrics_;
  // Null without a directory for them.
  std::unique_ptr<IslandCheckpointStore> checkpoints_;
  std::unique_ptr<IslandCheckpointStore> recent_checkpoints_;
  // The state from which the next start continues, or null.
  std::shared_ptr<IslandState> resume_;
  // True if that is the state of a crew that ended in order for another one.
  bool hands_over_ = false;
  // The rank trouble to report to the coordinator.
  std::optional<v1::RankTrouble> news_;
  // The crew's size, and the diagnoses of its last windows.
  int crew_size_ = 1;
  std::vector<CollectiveDiagnosis> windows_;
  // The process to leave out after this step.
  int left_out_ = kNoProcess;
  // Counts the times that each process was left out for being slow.
  std::map<int, int> times_left_out_;
};

absl::Status LeadingProcess::Run() {
  RETURN_IF_ERROR(Prepare());
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials,
                   PrepareAccess(WallClock(), random_seed_));
  std::optional<CertificateRenewer> renewer;
  if (!absl::GetFlag(FLAGS_tls).empty()) {
    renewer.emplace(absl::GetFlag(FLAGS_coordinator), absl::GetFlag(FLAGS_tls),
                    WallClock(), random_seed_());
  }
  IslandRunner runner(
      {.connect = [&] { return ConnectToCoordinator(credentials, now_); },
       .island = [this] { return MakeIslandOptions(); },
       .give_up = [this] { return GiveUp(); },
       // Ranks in other processes end with rank 0's trainer, and only their
       // supervisors can restart them.
       .restarts = rendezvous_ == nullptr ? 3 : 0});
  CertificateExpiry certificate(IslandTlsFiles().CertificatePath(),
                                WallClock());
  CertificateWatch watch(&certificate);
  ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> metrics_server,
                   StartMetricsServer(
                       absl::GetFlag(FLAGS_metrics_listen), now_,
                       [this] { return metrics_.CheckJoined(); },
                       [&](MetricFamilies& families) {
                         metrics_.Add(runner.Progress(), certificate.Get(),
                                      certificate.Check().since, families);
                       }));
  std::thread teller;
  if (GaveUp() && crew_.has_value()) {
    teller = std::thread([this] {
      crew_->DismissAll(rules_.size - stamps_->gave_up(), kGaveUp,
                        [this] { return PauseForProcesses(); });
    });
  }
  const absl::Status status = RunCrews(runner);
  if (teller.joinable()) teller.join();
  LOG(INFO) << "peak memory " << (PeakResidentBytes() >> 20) << " MiB";
  // To systemd, a service that ends before it is ready has failed. So this one
  // says that it is ready, even if it has come too late for the run.
  if (absl::IsCancelled(status)) {
    LOG(INFO) << status.message();
    manager_.Ready();
  }
  return End(status, runner.HasHandedIn());
}

absl::Status LeadingProcess::Prepare() {
  const int avoided = stamps_ == nullptr ? kNoProcess : stamps_->TakeAvoided();
  if (avoided != kNoProcess) {
    rules_.avoided[avoided] = now_() + QuietTime(rules_);
  }
  for (int process = 0; stamps_ != nullptr && process < kMostRanks; ++process) {
    if (stamps_->IsCorrupt(process)) {
      rules_.avoided[process] = absl::InfiniteFuture();
    }
  }
  // The crew waits neither for these nor for the processes before this one in
  // the succession.
  rules_.awaited =
      rules_.size - static_cast<int>(rules_.avoided.size()) -
      std::max(0, PlaceInSuccession(IslandLeaders(), rules_.leader));
  // The server starts first, so that the other ranks find it.
  if (rules_.size > 1) RETURN_IF_ERROR(OpenRendezvous());
  // Report a missing device before the join.
  ASSIGN_OR_RETURN(local_, FindLocalRanks());
  ASSIGN_OR_RETURN(devices_, DescribeDevices(local_.devices));
  ASSIGN_OR_RETURN(checkpoints_,
                   OpenCheckpoints(absl::GetFlag(FLAGS_checkpoint_dir)));
  ASSIGN_OR_RETURN(recent_checkpoints_,
                   OpenCheckpoints(absl::GetFlag(FLAGS_recent_checkpoint_dir)));
  // A process that only reports the island's end in place of a dead member
  // needs no checkpoint.
  if (GaveUp() && stamps_->member() != 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::optional<IslandState> newest,
                   LoadNewest(checkpoints_.get(), recent_checkpoints_.get(),
                              CheckpointCopyDirectory()));
  if (newest.has_value()) {
    resume_ = std::make_shared<IslandState>(*std::move(newest));
  }
  return absl::OkStatus();
}

absl::Status LeadingProcess::OpenRendezvous() {
  ASSIGN_OR_RETURN(RendezvousOptions options, IslandRendezvousOptions());
  options.now = now_;
  crew_.reset();
  rendezvous_.reset();
  ASSIGN_OR_RETURN(rendezvous_, RendezvousServer::Start(options));
  crew_.emplace(rules_, rendezvous_.get(), now_);
  return SayLeads(rules_.leader, rendezvous_->table());
}

bool LeadingProcess::PauseForProcesses() {
  absl::SleepFor(kLookForProcesses);
  return !IsInterrupted() && !has_rival_;
}

std::string LeadingProcess::Description() const {
  char host[256] = "unknown host";
  gethostname(host, sizeof(host) - 1);
  std::string text = absl::StrCat(host, ", ", devices_);
  const int ranks = local_.count * rules_.size;
  if (ranks > 1) {
    // The crew is chosen after the join.
    absl::StrAppend(&text, MayShrink() ? ", up to " : ", ", ranks, " ranks");
  }
  if (!local_.devices[0].is_host()) return text;
  return absl::StrCat(text, ranks > 1 ? " of " : ", ", local_.threads,
                      local_.threads == 1 ? " thread" : " threads");
}

Island::Options LeadingProcess::MakeIslandOptions() {
  instance_ = random_seed_() | 1;  // 0 means none.
  Island::Options options{
      .make_trainer =
          [this](const v1::JoinResponse& joined,
                 std::vector<float> parameters) {
            return MakeTrainer(joined, std::move(parameters));
          },
      .overlap_steps = absl::GetFlag(FLAGS_overlap_steps),
      .uplink_bits = absl::GetFlag(FLAGS_uplink_bits),
      .initial_parameters = absl::GetFlag(FLAGS_initial_parameters),
      .seed = instance_,
      .now = now_,
      .leave_timeout = absl::Seconds(absl::GetFlag(FLAGS_leave_timeout)),
      .log_interval = absl::Seconds(absl::GetFlag(FLAGS_log_seconds)),
      .step_time = absl::Seconds(absl::GetFlag(FLAGS_simulated_step_seconds))};
  options.join.set_island_id(absl::GetFlag(FLAGS_island));
  options.join.set_instance_id(instance_);
  options.join.set_description(Description());
  options.check_run = [this](const v1::JoinResponse& joined) {
    return CheckRun(joined);
  };
  options.checkpoints = checkpoints_.get();
  options.recent_checkpoints = recent_checkpoints_.get();
  options.checkpoint_steps = absl::GetFlag(FLAGS_checkpoint_steps);
  // An island that diverged starts again from the run's parameters.
  options.resume = std::exchange(resume_, nullptr);
  if (options.resume != nullptr) {
    // The directory's lock proves that the earlier process is dead. The process
    // that wrote a copy may live, so this one does not replace it: its own id
    // only says that it continues from a checkpoint.
    const uint64_t dead = options.resume->position.instance_id();
    options.join.set_replaces_instance_id(dead == 0 ? instance_ : dead);
    options.join.set_saved_by(options.resume->saved_by);
  }
  if (stamps_ != nullptr && stamps_->member() != 0) {
    // The supervisor starts a process only after the earlier one is dead, which
    // may have joined without recording its id beside the checkpoint.
    options.join.set_replaces_instance_id(stamps_->member());
  }
  if (MayShrink()) {
    options.hands_over = [this] {
      return left_out_ != kNoProcess || crew_->CanGrow();
    };
    options.hand_over = [this](IslandState state) {
      return HandOver(std::move(state));
    };
  }
  Rendezvous* const table =
      rendezvous_ == nullptr ? nullptr : rendezvous_->table();
  options.take_verdict = [this,
                          verdicts = Verdicts(table, rules_.size)]() mutable {
    return Joined(verdicts.Take(), std::exchange(news_, std::nullopt));
  };
  return options;
}

absl::Status LeadingProcess::CheckRun(const v1::JoinResponse& joined) {
  if (stamps_ != nullptr) stamps_->member() = instance_;
  if (GaveUp()) {
    return absl::AbortedError(kGaveUp);
  }
  if (rivals_ != nullptr) {
    rivals_->Stop();
    RETURN_IF_ERROR(SayJoined(rendezvous_->table()));
  }
  RETURN_IF_ERROR(CheckTrainable(joined));
  metrics_.SetRun(joined);
  manager_.Ready();
  manager_.SetStatus(absl::StrCat("island ", joined.identity().island_id(),
                                  " of run ", joined.config().name()));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<InnerTrainer>> LeadingProcess::MakeTrainer(
    const v1::JoinResponse& joined, std::vector<float> parameters) {
  IslandRanksOptions options = TrainerOptions(local_);
  options.shard = joined.shard();
  options.data_order = joined.data_order();
  if (rendezvous_ == nullptr) {
    return MakeThreadedIsland(joined.config(), options, local_.count,
                              std::move(parameters));
  }
  windows_.clear();
  left_out_ = kNoProcess;
  if (absl::GetFlag(FLAGS_leave_out_slow) > 0) {
    options.diagnosed = [this](const CollectiveDiagnosis& diagnosis) {
      Diagnosed(diagnosis);
    };
  }
  const v1::TrainingConfig& training = joined.config().training();
  const int64_t unit = int64_t{training.micro_batch_size()} * local_.count;
  const int64_t batch = training.batch_size();
  const auto pause = [this] { return PauseForProcesses(); };
  ASSIGN_OR_RETURN(const int size, crew_->Choose(
                                       local_.count,
                                       [=](int processes) {
                                         return batch % (unit * processes) == 0;
                                       },
                                       pause));
  crew_size_ = size;
  const CrewWatch watch(size, local_.count, rendezvous_.get(), now_);
  ProcessRankOptions process =
      RankOptions(local_, 0, size, rendezvous_->table());
  process.pause = pause;
  ASSIGN_OR_RETURN(std::unique_ptr<InnerTrainer> trainer,
                   MakeLeadingRank(joined.config(), options, process,
                                   std::move(parameters)));
  news_ = WithoutTrouble(rules_, crew_->WithSpares(), local_.count);
  return trainer;
}

void LeadingProcess::Diagnosed(const CollectiveDiagnosis& diagnosis) {
  windows_.push_back(diagnosis);
  const std::optional<SlowProcess> slow = FindSlowProcess(
      windows_, {.least_saved = absl::GetFlag(FLAGS_leave_out_slow),
                 .ranks = local_.count,
                 .processes = crew_size_,
                 .fewer = crew_->SizeWithoutOne()});
  if (windows_.size() >= kSlowWindows) windows_.erase(windows_.begin());
  if (!slow.has_value()) return;
  const int process = crew_->ProcessWithRank(slow->place * local_.count);
  v1::RankTrouble trouble = ToRankTrouble(diagnosis);
  const std::string evidence = absl::StrFormat(
      "%s; in each of %d windows this cost %.0f %% or more, and without "
      "process %d each step would take %.0f %% less",
      trouble.text(), kSlowWindows, 100 * slow->share, process,
      100 * slow->saved);
  if (OnRankFault() != RankFaultAction::kAct) {
    LOG(WARNING) << evidence
                 << "; with --on_rank_fault=act the island would leave it out";
    windows_.clear();
    return;
  }
  trouble.set_text(absl::StrCat(evidence, ", so it is left out"));
  LOG(WARNING) << trouble.text();
  left_out_ = process;
  news_ = std::move(trouble);
}

absl::Status LeadingProcess::HandOver(IslandState state) {
  resume_ = std::make_shared<IslandState>(std::move(state));
  if (left_out_ == kNoProcess) return crew_->SayStartAgain();
  // A process that is slow again and again is retried less and less often.
  const int times = std::min(times_left_out_[left_out_]++, kMostDoublings);
  return crew_->SayStartAgain(left_out_, QuietTime(rules_) * std::exp2(times));
}

absl::Status LeadingProcess::GiveUp() {
  if (stamps_ != nullptr) stamps_->member() = 0;
  // If one checkpoint cannot be removed, the others still must go.
  absl::Status removed = RemoveRecent();
  if (checkpoints_ != nullptr) removed.Update(checkpoints_->Remove());
  // The host that sent the copy may be lost, and would not remove it.
  const std::string copy = CheckpointCopyDirectory();
  if (!copy.empty()) {
    removed.Update(
        RemoveFileIfThere(absl::StrCat(copy, "/", kIslandCheckpointFile)));
  }
  return removed;
}

absl::Status LeadingProcess::RemoveRecent() {
  return recent_checkpoints_ == nullptr ? absl::OkStatus()
                                        : recent_checkpoints_->Remove();
}

absl::Status LeadingProcess::RunCrews(IslandRunner& runner) {
  Terminator terminator(
      [&](const std::string& reason) {
        manager_.Stopping();
        runner.RequestLeave(reason);
      },
      [&] { runner.Stop(); },
      [&] {
        if (runner.GetsOn()) manager_.Alive();
      });
  absl::Status status = RunCrewWithoutRivals(runner);
  while (absl::IsAborted(status) && resume_ != nullptr) {
    crew_->AwaitDone(kRanksEnd);
    rules_ = crew_->NextRules();
    status = OpenRendezvous();
    hands_over_ = true;
    if (status.ok()) status = RunCrewWithoutRivals(runner);
  }
  return status;
}

absl::Status LeadingProcess::RunCrewWithoutRivals(IslandRunner& runner) {
  if (!HasSuccessors()) return RunCrew(runner);
  ASSIGN_OR_RETURN(Succession succession, IslandSuccession());
  std::string rival;
  rivals_ = std::make_unique<RivalWatch>(std::move(succession), hands_over_,
                                         [&](const std::string& words) {
                                           rival = words;
                                           has_rival_ = true;
                                           runner.Stop();
                                         });
  absl::Status status = RunCrew(runner);
  // Its thread, which may still write `rival`, ends here.
  rivals_ = nullptr;
  if (has_rival_) status = absl::AlreadyExistsError(rival);
  if (absl::IsAlreadyExists(status)) {
    LOG(WARNING) << "this process does not lead: " << status.message();
    StampOwnRanks(0, 0);
  }
  return status;
}

absl::Status LeadingProcess::RunCrew(IslandRunner& runner) {
  // Processes gather before the join, so that no other island waits for them.
  if (MayShrink() && !GaveUp()) {
    RETURN_IF_ERROR(crew_->AwaitEnough([this] { return PauseForProcesses(); }));
  }
  return runner.Run();
}

absl::Status LeadingProcess::End(const absl::Status& status,
                                 bool has_handed_in) {
  if (status.ok() || absl::IsCancelled(status)) {
    if (crew_.has_value()) crew_->Dismiss();
    // An island that leaves before it trains, between two crews, at once or too
    // late has not handed in its state.
    const bool is_needed = absl::IsCancelled(status) &&
                           !SaysRunIsFinished(status) && !has_handed_in;
    if (!is_needed) {
      RETURN_IF_ERROR(RemoveRecent());
    } else if (stamps_ != nullptr) {
      stamps_->keeps_checkpoint() = true;
    }
    return status;
  }
  absl::Status end = IsFoundByAudit(status) ? Isolate(status) : status;
  if (!crew_.has_value()) return end;
  const bool for_good = IsFoundByAudit(end) && !HasSuccessors();
  crew_->SayFailed(status, for_good);
  // After an audit, this process's exit code makes the supervisor end.
  if (stamps_ != nullptr && !IsFoundByAudit(end)) {
    stamps_->SetAvoided(ProcessToAvoid(status));
    stamps_->left() = true;
  }
  crew_->AwaitDone(kReportsNeeded, LostRank(status) / local_.count);
  return end;
}

int LeadingProcess::ProcessToAvoid(const absl::Status& status) {
  const std::optional<v1::RankTrouble> trouble = RankTroubleOf(status);
  if (!trouble.has_value() || trouble->kind() != v1::RankTrouble::SLOW_LINK ||
      !MayShrink()) {
    return kNoProcess;
  }
  // The far end is never rank 0, which leads.
  return crew_->ProcessWithRank(FarEnd(*trouble));
}

absl::Status LeadingProcess::Isolate(const absl::Status& status) {
  // The parameters of all ranks contain the wrong numbers since the last audit.
  const absl::Status removed = GiveUp();
  LOG_IF(ERROR, !removed.ok())
      << "a checkpoint with wrong numbers is left: " << removed.message();
  const std::optional<v1::RankTrouble> trouble = RankTroubleOf(status);
  if (!trouble.has_value() || !crew_.has_value() || stamps_ == nullptr ||
      OnRankFault() != RankFaultAction::kAct || crew_->SizeWithoutOne() == 0) {
    return status;
  }
  const int process = crew_->ProcessWithRank(static_cast<int>(trouble->rank()));
  if (process == rules_.leader) return status;
  stamps_->SetCorrupt(process);
  LOG(WARNING) << "the island continues without process " << process;
  return absl::AbortedError(status.message());
}

}  // namespace

absl::Status LeadIsland(const std::function<uint64_t()>& random_seed) {
  return LeadingProcess(random_seed).Run();
}

}  // namespace causeway
