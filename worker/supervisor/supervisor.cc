// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/supervisor.h"

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/os/daemon.h"
#include "common/os/machine.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "common/transport/field_limits.h"
#include "glog/logging.h"
#include "proto/coordinator.pb.h"
#include "worker/collective/rank_stamps.h"
#include "worker/supervisor/rank_process.h"
#include "worker/supervisor/stamp_reader.h"

namespace causeway {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);
// Ranks take less time to find out which one is at fault, and to leave the run.
constexpr absl::Duration kEndTogether = absl::Seconds(15);
constexpr int kUsageExitCode = 2;

// Returns whether no process may be started again after one with this code.
bool IsFinal(int code) {
  return code == kUsageExitCode || code == kGaveUpExitCode;
}

class Supervisor {
 public:
  Supervisor(const SupervisorOptions& options,
             std::unique_ptr<RankStampPage> page)
      : options_(options),
        page_(std::move(page)),
        reader_(page_.get()),
        budget_(options.first_pause) {}

  absl::StatusOr<SupervisionEnd> Run() {
    RETURN_IF_ERROR(Start());
    for (absl::Status started;; started = Start()) {
      if (!started.ok()) {
        // The lack of a process or port may pass, so it counts like the failure
        // of a start without progress.
        processes_.clear();
        NoteFault(absl::StrCat("cannot start the island's ranks again: ",
                               started.message()));
      }
      while (IsRunning()) Tick();
      const std::optional<int> code = started.ok() ? FinalCode() : std::nullopt;
      if (code.has_value()) {
        return SupervisionEnd{
            .exit_code = *code,
            .is_over = IsInOrder(*code) && !page_->keeps_checkpoint()};
      }
      const std::optional<absl::Duration> pause =
          budget_.AfterFailureAt(reader_.LastStep(), IsOwnFailure());
      RepeatVerdict(pause == absl::ZeroDuration());
      if (!pause.has_value()) {
        LOG(ERROR) << "the island has failed " << RestartBudget::kMost + 1
                   << " times without progress; it is not restarted (" << fault_
                   << ")";
        TakeLeave();
        return SupervisionEnd{.exit_code = kGaveUpExitCode};
      }
      LOG(WARNING) << "starting the island's ranks on this host again, after "
                   << "step " << reader_.LastStep();
      if (AwaitTerminationSignal(*pause) != 0) {
        return SupervisionEnd{.exit_code = options_.interrupted_exit_code};
      }
    }
  }

 private:
  bool acts() const { return options_.action == RankFaultAction::kAct; }
  // Returns whether all processes of the island are here, perhaps with spares.
  bool is_whole_island() const {
    return options_.first_process == 0 &&
           static_cast<int>(processes_.size()) >= options_.island_size;
  }

  // Returns whether process 0 is here, and the island needs it.
  bool HasProcess0() const {
    return options_.first_process == 0 && !options_.has_successors;
  }

  // Returns whether the island cannot continue without this host. Otherwise the
  // island takes this host in again once it is well and reachable.
  bool IsNeeded() const {
    return HasProcess0() || !options_.has_spares ||
           FindProcess(static_cast<pid_t>(page_->rank(0).process)) != nullptr;
  }

  // Returns whether this start's failure counts: the island cannot continue
  // without this host, and did not just wait in vain for other hosts.
  bool IsOwnFailure() const { return IsNeeded() && !page_->others_missing(); }

  absl::Status Start() {
    processes_.clear();
    page_->Clear();
    fault_.clear();
    fault_has_verdict_ = false;
    is_known_ = false;
    suspected_ = -1;
    ended_at_ = absl::InfiniteFuture();
    memory_kills_ = OutOfMemoryKills(options_.root);
    ASSIGN_OR_RETURN(commands_, options_.commands());
    retries_.assign(commands_.size(),
                    Retry{.budget = RestartBudget(options_.first_pause)});
    for (size_t i = 0; i < commands_.size(); ++i) {
      ASSIGN_OR_RETURN(processes_.emplace_back(), StartProcess(i));
    }
    return absl::OkStatus();
  }

  // Repeats an earlier start's verdict to the next one if rank 0 cannot have
  // told the coordinator before this start ended.
  void RepeatVerdict(bool got_on) {
    if (!fault_has_verdict_ && (got_on || page_->left())) verdict_.reset();
    if (!fault_has_verdict_ && verdict_.has_value()) {
      page_->SetVerdict(*verdict_);
    }
  }

  // Lets process 0 tell the coordinator that the island has ended, and which
  // rank was at fault, and tell other hosts' processes that it does not start
  // again. Otherwise the coordinator would wait for a lease, and report only a
  // missing heartbeat, and those hosts would wait for process 0.
  void TakeLeave() {
    if (!HasProcess0()) return;
    page_->Clear();
    page_->gave_up() = static_cast<int>(commands_.size());
    processes_.clear();
    auto process = StartProcess(0);
    if (!process.ok()) return;
    processes_.push_back(*std::move(process));
    const absl::Time deadline = options_.now() + kEndTogether;
    while (processes_[0]->running() && options_.now() < deadline &&
           AwaitTerminationSignal(absl::ZeroDuration()) == 0) {
      RankProcess::Tend(processes_, kTick);
    }
    SignalAll(SIGKILL);
  }

  int NumberOf(size_t i) const {
    return options_.first_process + static_cast<int>(i);
  }

  absl::StatusOr<std::unique_ptr<RankProcess>> StartProcess(size_t i) const {
    return RankProcess::Start(commands_[i],
                              absl::StrCat("[", NumberOf(i), "] "));
  }

  // Returns whether the process has ended, and will be started again alone.
  bool AwaitsRetry(size_t i) const {
    return retries_[i].at != absl::InfiniteFuture();
  }

  bool IsRunning() const {
    bool awaits = false;
    bool has_ended = leaving_;
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (processes_[i]->running()) return true;
      (AwaitsRetry(i) ? awaits : has_ended) = true;
    }
    return awaits && !has_ended;
  }

  void Tick() {
    RankProcess::Tend(processes_, kTick);
    if (AwaitTerminationSignal(absl::ZeroDuration()) != 0) {
      leaving_ = true;
      SignalAll(SIGTERM);
    }
    NoteEnds();
    RetryProcesses();
    const absl::Time now = options_.now();
    WatchStamps(now);
    EndTogether(now);
    if (fault_.empty() && options_.all_is_well != nullptr) {
      options_.all_is_well(has_joined_);
    }
  }

  void SignalAll(int signal) {
    for (const auto& process : processes_) process->Signal(signal);
  }

  bool IsInOrder(int code) const {
    return code == 0 || code == options_.interrupted_exit_code;
  }
  bool EndedInOrder(const RankProcess& process) const {
    return IsInOrder(process.exit_code());
  }

  // Returns whether the others must end soon, too, because this process has.
  // Rank 0 may spend long on handing in and on a checkpoint after others have
  // ended in order, and a spare ends as soon as it is told to.
  bool IsEndOfAll(const RankProcess& process) const {
    if (!EndedInOrder(process)) return true;
    const RankProcess* const rank0 =
        HasProcess0() ? processes_[0].get()
                      : FindProcess(static_cast<pid_t>(page_->rank(0).process));
    return rank0 == nullptr ? FirstRankOf(process) >= 0 : !rank0->running();
  }

  void NoteEnds() {
    for (size_t i = 0; i < processes_.size(); ++i) {
      const RankProcess& process = *processes_[i];
      if (process.running() || AwaitsRetry(i)) continue;
      if (IsDispensable(i)) {
        const absl::Duration pause = retries_[i].PauseAfter(options_.now());
        LOG(WARNING) << HowEnded(i) << "; it had no rank, and is restarted "
                     << "in " << absl::FormatDuration(pause);
        continue;
      }
      if (IsEndOfAll(process)) {
        ended_at_ = std::min(ended_at_, options_.now());
      }
      if (EndedInOrder(process) || leaving_) continue;
      // A process that was not killed may have ended because of another rank,
      // and a spare may have been killed because of another.
      const bool was_killed = process.exit_code() > 128;
      is_known_ = is_known_ ||
                  (was_killed && (fault_.empty() || FirstRankOf(process) >= 0));
      NoteFault(HowEnded(i), v1::RankTrouble::DEAD_RANK,
                was_killed ? FirstRankOf(process) : -1);
    }
  }

  std::string HowEnded(size_t i) const {
    const RankProcess& process = *processes_[i];
    const int code = process.exit_code();
    return code > 128
               ? absl::StrCat("process ", NumberOf(i), " was killed by signal ",
                              code - 128, LackOfMemory(code - 128))
               : absl::StrCat("process ", NumberOf(i), " has ended with code ",
                              code, ": ", PrintableLines(process.last_line()));
  }

  // Returns a text to add if the kernel may have sent the signal because memory
  // ran out.
  absl::string_view LackOfMemory(int signal) const {
    return signal == SIGKILL && OutOfMemoryKills(options_.root) > memory_kills_
               ? "; the kernel killed a process of this machine for lack of "
                 "memory meanwhile (`dmesg` names it): raise the limit of the "
                 "container, unit or job, or let the island use less"
               : "";
  }

  // Returns whether a process that has ended had no rank, so that the island
  // continues without it.
  bool IsDispensable(size_t i) const {
    const RankProcess& process = *processes_[i];
    return options_.has_spares && acts() && !leaving_ && fault_.empty() &&
           !(i == 0 && HasProcess0()) && !EndedInOrder(process) &&
           !IsFinal(process.exit_code()) && FirstRankOf(process) < 0;
  }

  void RetryProcesses() {
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (leaving_ || options_.now() < retries_[i].at) continue;
      auto process = StartProcess(i);
      if (!process.ok()) {
        LOG(ERROR) << process.status().message();
        retries_[i].PauseAfter(options_.now());
        continue;
      }
      processes_[i] = *std::move(process);
      retries_[i].at = absl::InfiniteFuture();
    }
  }

  // Returns the first rank of the process, or -1 if it has none yet.
  int FirstRankOf(const RankProcess& process) const {
    for (int rank = 0; rank < kMostRanks; ++rank) {
      if (static_cast<pid_t>(page_->rank(rank).process) == process.pid()) {
        return rank;
      }
    }
    return -1;
  }

  // Logs the first fault of this start and, if the rank to blame is known,
  // reports it through rank 0.
  void NoteFault(const std::string& text, v1::RankTrouble::Kind kind = {},
                 int rank = -1) {
    if (!fault_.empty()) return;
    fault_ = text;
    LOG(WARNING) << text;
    if (rank >= 0) {
      v1::RankTrouble verdict;
      verdict.set_kind(kind);
      verdict.set_rank(static_cast<uint32_t>(rank));
      verdict.set_text(kind == v1::RankTrouble::DEAD_RANK
                           ? absl::StrCat("rank ", rank, " is dead: ", text)
                           : text);
      page_->SetVerdict(verdict);
      verdict_ = std::move(verdict);
      fault_has_verdict_ = true;
    }
    LOG_IF(WARNING, options_.action == RankFaultAction::kDecide)
        << "with --on_rank_fault=act the island's ranks on this host would be "
           "restarted";
  }

  // Returns null if this supervisor has no such process.
  RankProcess* FindProcess(pid_t pid) const {
    for (const auto& process : processes_) {
      if (process->pid() == pid) return process.get();
    }
    return nullptr;
  }

  void WatchStamps(absl::Time now) {
    const std::vector<RankView> views = reader_.Read(now);
    // Ranks are made after the join.
    has_joined_ = has_joined_ || !views.empty();
    const std::optional<RankFault> fault =
        FindStuckRank(views, options_.limits);
    if (!fault.has_value()) {
      suspected_ = -1;
      return;
    }
    const bool is_new = fault->rank != std::exchange(suspected_, fault->rank);
    if (!fault->is_sure) {
      LOG_IF(WARNING, is_new) << fault->text;
      return;
    }
    is_known_ = true;
    NoteFault(fault->text, v1::RankTrouble::STUCK_RANK, fault->rank);
    if (acts()) FindProcess(fault->process)->Signal(SIGKILL);
  }

  // Ends the remaining processes some time after others have ended.
  void EndTogether(absl::Time now) {
    if (!acts() && !leaving_) return;
    EndSpares();
    // Once the rank at fault is known, or rank 0 has reported it, the other
    // processes are not needed, except perhaps by ranks of other hosts.
    const bool is_settled = acts() && is_whole_island() && !fault_.empty() &&
                            (is_known_ || page_->left());
    if (is_settled || now - ended_at_ > kEndTogether) {
      SignalAll(SIGKILL);
    }
  }

  // Ends the processes without a rank after a fault. Such a process would wait
  // for the next crew, or get a place there, before this host's ranks have
  // ended and all its processes start again.
  void EndSpares() {
    if (!acts() || !options_.has_spares || fault_.empty()) return;
    for (size_t i = HasProcess0() ? 1 : 0; i < processes_.size(); ++i) {
      if (FirstRankOf(*processes_[i]) < 0) processes_[i]->Signal(SIGKILL);
    }
  }

  // Returns the exit code if the processes must not be started again.
  std::optional<int> FinalCode() const {
    std::vector<int> codes;
    bool in_order = true;
    for (size_t i = 0; i < processes_.size(); ++i) {
      if (AwaitsRetry(i)) continue;
      const int code = processes_[i]->exit_code();
      if (IsFinal(code)) return code;
      in_order = in_order && EndedInOrder(*processes_[i]);
      codes.push_back(code > 128 ? 1 : code);
    }
    // All processes wait to be started again.
    if (codes.empty()) return options_.interrupted_exit_code;
    int highest = *std::max_element(codes.begin(), codes.end());
    if (HasProcess0()) {
      highest = codes[0];
      in_order = EndedInOrder(*processes_[0]);
    }
    if (in_order || leaving_ || !acts()) return highest;
    return std::nullopt;
  }

  const SupervisorOptions& options_;
  const std::unique_ptr<RankStampPage> page_;
  StampReader reader_;
  RestartBudget budget_;
  bool leaving_ = false;
  bool has_joined_ = false;
  // The newest verdict that rank 0 may not have told yet.
  std::optional<v1::RankTrouble> verdict_;

  // The time of a process's next start.
  struct Retry {
    absl::Time at = absl::InfiniteFuture();
    RestartBudget budget;

    // Sets `at` after a failure without progress, and returns the pause.
    absl::Duration PauseAfter(absl::Time failure) {
      const absl::Duration pause =
          *budget.AfterFailureAt(/*step=*/0, /*is_limited=*/false);
      at = failure + pause;
      return pause;
    }
  };

  // The following are renewed at each start.
  std::vector<std::vector<std::string>> commands_;
  std::vector<std::unique_ptr<RankProcess>> processes_;
  std::vector<Retry> retries_;
  // When the first process ended with which the others must end.
  absl::Time ended_at_ = absl::InfiniteFuture();
  std::string fault_;
  bool fault_has_verdict_ = false;
  // Counts the processes that the kernel had killed for lack of memory before
  // this start.
  uint64_t memory_kills_ = 0;
  // Is true if the process at fault is known.
  bool is_known_ = false;
  // The rank at fault in the last tick, or -1.
  int suspected_ = -1;
};

}  // namespace

absl::StatusOr<SupervisionEnd> Supervise(const SupervisorOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<RankStampPage> page,
                   RankStampPage::Create());
  if (setenv(kRankStampsVariable, page->path().c_str(), 1) != 0) {
    return absl::InternalError("cannot set an environment variable");
  }
  return Supervisor(options, std::move(page)).Run();
}

}  // namespace causeway
