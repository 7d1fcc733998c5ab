// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs the coordinator's rules (server/rules/coordinator.h) with threads, time
// and files. For each event, the engine
//   * asks the rules what to do, under one lock, with the current time, and
//     discards uploads;
//   * writes to the commit log what the journal (server/rules/journal.h) says
//     must be durable before it answers;
//   * carries out the other effects: keeps quarantined bytes, queues outer
//     steps, and tells listeners that the view has changed.
//
// It also keeps uploads in memory (Staging), opens stored files for downloads,
// and answers operators and people.
//
// Threads:
//   * the callers' threads (those of gRPC, and main) run the public functions;
//   * the tick thread ends leases and closes rounds when their time has come,
//     and finds out the outcome of writes in doubt (TickLoop);
//   * the merge threads and the prepare thread (server/outer_steps.h);
//   * the writing thread (server/fragment_heads.h).
// All but the last may call listeners.
//
// Knows no gRPC; server/edge/services.h does. Thread-safe. Calls block for as
// long as a database transaction takes (milliseconds).
#ifndef SERVER_ENGINE_H_
#define SERVER_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/listeners.h"
#include "common/transport/chunk.h"
#include "proto/control.pb.h"
#include "proto/coordinator.pb.h"
#include "proto/status.pb.h"
#include "server/footprint.h"
#include "server/fragment_heads.h"
#include "server/opened.h"
#include "server/outer_steps.h"
#include "server/replication/copy_stream.h"
#include "server/replication/log_feed.h"
#include "server/rules/coordinator.h"
#include "server/rules/coordinator_history.h"
#include "server/rules/journal.h"
#include "server/rules/run_health.h"
#include "server/staging.h"
#include "server/storage/state_directory.h"

namespace causeway {

class Engine {
 public:
  struct Options {
    std::string state_dir;
    // With every field filled in (common/config/run_config.h).
    v1::RunConfig config;
    // A random number that makes a new run's id unique; used only if the state
    // directory is new.
    uint64_t random = 0;
    Clock now;
    // Measures for how long the process was stopped, independently of `now`.
    Clock steady = SteadyWallClock();
    // Threads of an outer step, at least 1. Any number gives the same bits.
    int merge_threads = 1;
    // If true, the kernel may write versions of fragments to files of the state
    // directory and reclaim their memory.
    bool evictable_state = false;
    // See Coordinator::Options.
    absl::Duration drain_slow_after = absl::InfiniteDuration();
    // The checkpoint that a new run begins with
    // (common/checkpoint/tensor_files.h). If it is empty, the run's seed makes
    // version 0. A run that has begun does not read it again.
    std::string initial_parameters;
    // If true, an election has made this coordinator the leader. Only such a
    // leader continues an elected coordinator's run. Its feed must learn who is
    // in sync (LogFeed::SetInSync) before islands can come.
    bool is_elected = false;
  };

  // Opens the state directory, or creates it with version 0 of every fragment,
  // and starts the threads. Uses `opened` instead, if given.
  //   INVALID_ARGUMENT     The checkpoint cannot be read, or does not fit the
  //                        model. Nothing was written.
  //   UNAVAILABLE          Another coordinator holds the directory.
  //   FAILED_PRECONDITION  The directory belongs to another run or model.
  //   DATA_LOSS            A committed file is damaged.
  static absl::StatusOr<std::unique_ptr<Engine>> Start(Options options,
                                                       OpenedRun opened = {});
  // Waits for the outer steps under way, and makes a snapshot of each fragment,
  // so that the next start has nothing to repeat.
  ~Engine();

  // --- The Coordinator service; errors as in proto/coordinator.proto. ---

  // If coordinators are elected, these return UNAVAILABLE until followers have
  // all that the log had at the start. Until then no island learns of the
  // epoch, so none gets a version that only this coordinator has.
  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest& request);
  absl::Status Heartbeat(const v1::SessionRequest& request);
  v1::SessionResponse View(const v1::IslandIdentity& identity) {
    absl::MutexLock lock(&mu_);
    return coordinator_.View(identity);
  }
  // See Coordinator::News.
  std::optional<v1::SessionResponse> News(const v1::IslandIdentity& identity,
                                          v1::SessionResponse shown) {
    absl::MutexLock lock(&mu_);
    return coordinator_.News(identity, std::move(shown));
  }
  // Returns UPLOAD with the offset to continue from, ACCEPTED or LATE.
  absl::StatusOr<v1::ContributeResponse> Offer(
      const v1::ContributionHeader& header);
  // Returns true if the chunk was the last one; always false if the header's
  // description was open.
  absl::StatusOr<bool> Append(const ContributionKey& key, const Chunk& chunk);
  // Verifies and accepts the upload, after its last chunk. `header` has the
  // trailer's object if the offered one was open.
  absl::StatusOr<v1::ContributeResponse> Complete(
      const v1::ContributionHeader& header);
  absl::StatusOr<OpenedParameters> OpenParameters(
      const v1::FetchParametersRequest& request);
  absl::StatusOr<OpenedUpdate> OpenUpdate(
      const v1::FetchUpdateRequest& request);
  // Returns whether the update that an island waits for has not been made yet.
  // Listeners are called when it is made, and when the island's membership
  // ends.
  //   ABORTED  The incarnation is fenced off.
  absl::StatusOr<bool> IsAwaited(const v1::FetchUpdateRequest& request) {
    absl::MutexLock lock(&mu_);
    return coordinator_.IsAwaited(request);
  }
  // The bytes of data that downloads have sent.
  std::atomic<uint64_t>& bytes_sent() { return bytes_sent_; }
  // Notes that an island has received the update that led to `head`.
  void NoteDelivered(const v1::FragmentHead& head);
  absl::Status Leave(const v1::LeaveRequest& request);
  // Permanently stops deciding about the run (Coordinator::StandDown). No
  // commit begins afterwards.
  absl::Status StandDown(uint64_t epoch);
  // Returns UNAVAILABLE if the coordinator has stood down; listeners are called
  // when it does.
  absl::Status CheckInOffice();
  // Notes what is wrong with etcd, where this coordinator was elected; empty if
  // nothing is.
  void NoteEtcd(std::string problem) {
    absl::MutexLock lock(&mu_);
    etcd_problem_ = std::move(problem);
  }
  // Returns UNAVAILABLE while islands may not come: until followers have all
  // that an elected coordinator's log had at the start, and after it has stood
  // down. Listeners are called when this changes.
  absl::Status CheckOpen();

  // --- The Status service. ---

  v1::RunStatus GetRun();
  // Answers with a page.
  v1::ListIslandsResponse ListIslands(const v1::ListIslandsRequest& request);
  // Returns all islands at once.
  v1::ListIslandsResponse ListIslands(bool include_departed);
  v1::ListFragmentsResponse ListFragments();
  // Reads the log by a connection of its own, so that no round waits. Errors of
  // CommitLog::OpenReadOnly.
  absl::StatusOr<v1::GetHistoryResponse> GetHistory(
      const v1::GetHistoryRequest& request);
  CommitLog& log() { return state_->log(); }

  // --- The Control service; errors as in proto/control.proto. Events say that
  // the operator `by` asked for them. ---

  absl::Status Pause(const v1::PauseRunRequest& request,
                     absl::string_view by = "");
  absl::Status Resume(absl::string_view by = "");
  absl::Status Drain(const v1::DrainIslandRequest& request,
                     absl::string_view by = "");
  absl::Status Evict(const v1::EvictIslandRequest& request,
                     absl::string_view by = "");
  v1::ListQuarantineResponse ListQuarantine(bool include_decided);
  absl::Status Admit(uint64_t id, absl::string_view by = "");
  absl::Status Drop(uint64_t id, absl::string_view by = "");
  absl::Status AcceptData(const v1::AcceptDataRequest& request,
                          absl::string_view by = "");

  // Returns what followers get (server/edge/follow_call.cc).
  FollowedSource followed();

  // Records an event from outside the rules.
  void Record(const CoordinatorEvent& event);

  // --- News: any of the answers above may have changed. ---

  // Listeners are called from any thread, without the engine's lock.
  Listeners& news() { return news_; }

  absl::Time now() const { return options_.now(); }
  // Returns UNAVAILABLE while a write to the commit log takes long. Does not
  // wait itself.
  absl::Status CheckLogMoves() const;
  v1::RunState run_state() {
    absl::MutexLock lock(&mu_);
    return coordinator_.run_state();
  }
  const std::string& run_id() const { return run_id_; }

 private:
  Engine(Options options, std::unique_ptr<StateDirectory> state,
         Coordinator::Options rules,
         std::unique_ptr<FragmentHeads> fragment_heads,
         std::vector<Coordinator::CommittedFragment> heads,
         std::vector<Member> members, CoordinatorHistory history,
         RunHealth::Options health, const StagingBytes& staging);

  // The bytes of new quarantine entries, by the entries' ids.
  using HeldBytes = std::map<uint64_t, absl::StatusOr<StagedEncoding>>;

  // Records `events` and starts the threads.
  void StartThreads(std::vector<CoordinatorEvent> events);
  // Handles one event as the journal says: runs `event` on the rules and writes
  // to the log under the lock, and carries out the rest without it. Returns the
  // event's answer.
  template <typename AnyEvent>
  std::invoke_result_t<AnyEvent, Effects&> Handle(AnyEvent event)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Returns an event that calls a method of the rules with `arguments`, the
  // time, if the method takes it, and effects. Keeps references to `arguments`.
  template <typename Result, typename... Parameters, typename... Arguments>
  auto Event(Result (Coordinator::*event)(Parameters...),
             const Arguments&... arguments) {
    return [this, event, &arguments...](Effects& effects) {
      mu_.AssertHeld();
      if constexpr (sizeof...(Parameters) > sizeof...(Arguments) + 1) {
        return (coordinator_.*event)(arguments..., options_.now(), effects);
      } else {
        return (coordinator_.*event)(arguments..., effects);
      }
    };
  }
  // Handles an event of an operator; its records name `by`. An error says if
  // the event is in effect, but not recorded.
  absl::Status HandleFor(absl::string_view by,
                         const std::function<absl::Status(Effects&)>& event)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status WriteToLog(const LogBatch& batch)
      ABSL_LOCKS_EXCLUDED(writes_mu_);
  absl::Status Persist(const Journal::Entry& entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Discards uploads, and returns those of new quarantine entries. The lock
  // keeps the order of events: later, an island may have offered the same bytes
  // again, and an open round may need them.
  HeldBytes DiscardUploads(const Effects& effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CarryOut(const Effects& effects, const HeldBytes& held)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Saves the bytes of new entries, and removes the bytes of decided entries.
  void KeepQuarantined(const Effects& effects, const HeldBytes& held)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the bytes of an entry if it can be admitted, or else nothing.
  absl::StatusOr<std::string> ReadQuarantined(uint64_t id)
      ABSL_LOCKS_EXCLUDED(mu_);
  void TickLoop();
  // Extends leases if this tick, after the one at `ticked_at`, is so late that
  // perhaps no island could be heard. Returns whether it did.
  bool NoteLateness(absl::Time& ticked_at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ObserveHealth(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tries to find out whether a write in doubt succeeded.
  void Reconcile() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until it is found out whether the outer step's commit, whose write
  // ended with `unknown`, succeeded, and returns the outcome.
  absl::Status AwaitOutcome(const ClosedRound& closed,
                            const absl::Status& unknown)
      ABSL_LOCKS_EXCLUDED(mu_);
  void OuterStepEnded(const ClosedRound& closed,
                      const absl::StatusOr<OuterStepOutcome>& outcome)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status NoteSnapshot(SnapshotRecord snapshot) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CheckBegun();

  const Options options_;
  const std::string run_id_;
  const absl::Time started_at_;
  const std::unique_ptr<StateDirectory> state_;
  std::unique_ptr<FragmentHeads> fragment_heads_;
  LogFeed feed_;
  Staging staging_;
  OuterSteps outer_steps_;
  std::atomic<uint64_t> bytes_received_ = 0;
  std::atomic<uint64_t> bytes_sent_ = 0;

  absl::Mutex mu_;
  Coordinator coordinator_ ABSL_GUARDED_BY(mu_);
  Journal journal_ ABSL_GUARDED_BY(mu_);
  RunHealth health_ ABSL_GUARDED_BY(mu_);
  // The time by which long writes have extended leases since the last tick.
  absl::Duration written_ ABSL_GUARDED_BY(mu_);
  // The quarantine entries whose bytes are still being written.
  std::set<uint64_t> being_kept_ ABSL_GUARDED_BY(mu_);
  std::string etcd_problem_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  mutable absl::Mutex writes_mu_ ABSL_ACQUIRED_AFTER(mu_);
  // The starts of the writes to the log that are under way. One waits for the
  // other.
  std::multiset<absl::Time> writes_ ABSL_GUARDED_BY(writes_mu_);

  Listeners news_;

  std::thread ticker_;
};

// Lets a configuration take the defaults of the run in `state`.
//   FAILED_PRECONDITION  The run cannot continue with the configuration.
absl::Status CheckContinues(StateDirectory& state, const RunRecord& run,
                            v1::RunConfig& config);

template <typename AnyEvent>
std::invoke_result_t<AnyEvent, Effects&> Engine::Handle(AnyEvent event) {
  Effects effects;
  Journal::Entry entry;
  HeldBytes held;
  absl::Status persisted;
  decltype(event(effects)) result = absl::UnknownError("");
  {
    absl::MutexLock lock(&mu_);
    result = event(effects);
    held = DiscardUploads(effects);
    entry = journal_.Enter(effects, options_.now());
    persisted = Persist(entry);
  }
  // Carry the effects out even if that failed: a closed round must be merged.
  CarryOut(effects, held);
  return Journal::Answer(entry, persisted, std::move(result));
}

}  // namespace causeway

#endif  // SERVER_ENGINE_H_
