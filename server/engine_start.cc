// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Engine that takes up a run: creates it, or reads what was
// committed.
#include <algorithm>
#include <cmath>
#include <future>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/substitute.h"
#include "common/as_bytes.h"
#include "common/checkpoint/initial_values.h"
#include "common/config/run_config.h"
#include "common/os/machine.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "common/tensors/model_layout.h"
#include "glog/logging.h"
#include "outer_optimizer/fragment_plan.h"
#include "outer_optimizer/outer_step.h"
#include "server/engine.h"
#include "server/footprint.h"
#include "server/fragment_merge.h"

namespace causeway {
namespace {

constexpr char kConfigChanged[] = "config_changed";
// Ends the text of a change that islands would have to know.
constexpr char kIslandsKeep[] =
    "; islands that have joined before keep the earlier configuration until "
    "they are restarted";

// Joins the lines of a ConfigDifference; those of one kind follow its name.
std::string InOneLine(absl::string_view changes) {
  std::string text;
  absl::string_view last;
  for (const absl::string_view line :
       absl::StrSplit(changes, '\n', absl::SkipEmpty())) {
    const absl::string_view kind = line.substr(0, line.find(' ') + 1);
    absl::StrAppend(&text,
                    text.empty()   ? ""
                    : kind == last ? ", "
                                   : "; ",
                    kind == last ? line.substr(kind.size()) : line);
    last = kind;
  }
  return text;
}

// A run keeps the defaults that it began with, even if later versions have
// others. So its stored configuration states each field whose default has ever
// changed: sets those that `config` leaves out to their values in `source`,
// which may be the same object.
void StateDefaults(const v1::RunConfig& source, v1::RunConfig& config) {
  v1::OuterOptimizerConfig& outer = *config.mutable_outer_optimizer();
  if (!outer.has_learning_rate()) {
    outer.set_learning_rate(source.outer_optimizer().learning_rate());
  }
  if (!outer.has_momentum()) {
    outer.set_momentum(source.outer_optimizer().momentum());
  }
  v1::SynchronizationConfig& sync = *config.mutable_synchronization();
  if (!sync.has_inner_steps_per_round()) {
    sync.set_inner_steps_per_round(
        source.synchronization().inner_steps_per_round());
  }
}

// Returns a configuration without the parts that the coordinator uses almost
// alone.
v1::RunConfig ForIslands(v1::RunConfig config) {
  config.clear_storage();
  const v1::MembershipConfig membership = config.membership();
  config.clear_membership();
  config.mutable_membership()->set_lease_seconds(membership.lease_seconds());
  config.mutable_membership()->set_heartbeat_seconds(
      membership.heartbeat_seconds());
  return config;
}

absl::StatusOr<InitialValues> OpenInitialValues(
    const Engine::Options& options) {
  if (options.initial_parameters.empty() && options.config.has_tensors()) {
    return absl::InvalidArgumentError(
        "a run that is defined by its tensors begins with a checkpoint: name "
        "it with --initial_parameters");
  }
  ASSIGN_OR_RETURN(ModelLayout layout,
                   NewRunLayout(options.config, options.initial_parameters));
  if (options.initial_parameters.empty()) {
    return InitialValues::FromSeed(std::move(layout), options.config.seed());
  }
  return InitialValues::FromCheckpoint(options.initial_parameters,
                                       std::move(layout));
}

// Records a new run in the log, if there is room for it. Its files are written
// afterwards, so that the remains of a crash are known to belong to it.
absl::Status CreateRun(StateDirectory& state, const Engine::Options& options,
                       const ModelLayout& layout) {
  const v1::RunConfig& config = options.config;
  RunRecord run{.run_id = absl::StrFormat("%s-%08x", config.name(),
                                          options.random & 0xffffffff),
                .config = config,
                .created_at = options.now()};
  ASSIGN_OR_RETURN(run.plan, MakeFragmentPlan(layout, config));
  run.plan.set_from_checkpoint(!options.initial_parameters.empty());
  ASSIGN_OR_RETURN(const DiskSpace disk, FindDiskSpace(options.state_dir));
  RETURN_IF_ERROR(CheckRoom(CoordinatorFootprint(config, run.plan), disk.free));
  if (options.is_elected) {
    RETURN_IF_ERROR(state.log().TakeOver(run.epoch).status());
  }
  return state.log().CreateRun(run);
}

// Appends a fragment's initial values to its file. A thread makes the next
// piece while one is written.
absl::Status AppendInitialValues(const InitialValues& values,
                                 const v1::Fragment& fragment,
                                 NewFragment& file) {
  constexpr uint64_t kPiece = 1 << 22;
  using Piece = std::vector<float>;
  const auto begin_piece = [&](uint64_t begin) {
    const uint64_t size = std::min(kPiece, fragment.size() - begin);
    const auto read = [=, &values, &fragment]() -> absl::StatusOr<Piece> {
      Piece piece(size);
      RETURN_IF_ERROR(values.Read(fragment, begin, absl::MakeSpan(piece)));
      return piece;
    };
    return std::async(std::launch::async, read);
  };
  std::future<absl::StatusOr<Piece>> next = begin_piece(0);
  for (uint64_t end = kPiece; next.valid(); end += kPiece) {
    ASSIGN_OR_RETURN(const Piece piece, next.get());
    if (end < fragment.size()) next = begin_piece(end);
    RETURN_IF_ERROR(file.Append(AsStringView(absl::MakeConstSpan(piece))));
  }
  return absl::OkStatus();
}

absl::Status CommitInitialVersions(StateDirectory& state, const RunRecord& run,
                                   const InitialValues& values) {
  LogBatch batch;
  for (const v1::Fragment& fragment : run.plan.fragments()) {
    FragmentContents contents =
        ContentsOfSize(MakeOuterStepOptions(run.config, fragment), run.run_id,
                       fragment.size());
    contents.head.set_fragment(fragment.id());
    ASSIGN_OR_RETURN(NewFragment file,
                     state.fragments().BeginFragment(contents));
    RETURN_IF_ERROR(AppendInitialValues(values, fragment, file));
    RETURN_IF_ERROR(file.AppendZeros());
    SnapshotRecord snapshot{.head = contents.head};
    ASSIGN_OR_RETURN(snapshot.file, state.fragments().CommitFragment(
                                        std::move(file), snapshot.head));
    batch.commits.push_back(
        {.head = snapshot.head, .committed_at = run.created_at});
    batch.snapshots.push_back(std::move(snapshot));
  }
  return state.log().Apply(batch);
}

// Refuses a configuration with fewer steps than the run has merged: islands
// would end at once, as if the run were finished.
absl::Status CheckNotPast(StateDirectory& state, const RunRecord& run,
                          const v1::RunConfig& config) {
  ASSIGN_OR_RETURN(const SyncSchedule schedule,
                   SyncSchedule::Create(config, run.plan));
  ASSIGN_OR_RETURN(const std::vector<CommitRecord> commits,
                   state.log().Heads());
  for (const CommitRecord& commit : commits) {
    const uint64_t last = schedule.FinalVersion(commit.head.fragment());
    if (commit.head.version() <= last) continue;
    return absl::FailedPreconditionError(absl::Substitute(
        "run $0 has merged $1 rounds of fragment $2, but training.total_steps "
        "is $3, which allows only $4. Nothing was changed",
        run.run_id, commit.head.version(), commit.head.fragment(),
        config.training().total_steps(), last));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckContinues(StateDirectory& state, const RunRecord& run,
                            v1::RunConfig& config) {
  StateDefaults(run.config, config);
  const std::string difference = IdentityDifference(run.config, config);
  if (!difference.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "state directory \"", state.path(), "\" holds run ", run.run_id,
        ", which differs from this configuration in:\n", difference,
        "Give this run a state directory of its own, or continue that run "
        "with its own configuration. Nothing was changed"));
  }
  return CheckNotPast(state, run, config);
}

namespace {

// Returns the run in `state` if the configuration, which takes the run's
// defaults, may continue it.
absl::StatusOr<RunRecord> ContinueRun(StateDirectory& state,
                                      Engine::Options& options) {
  ASSIGN_OR_RETURN(RunRecord run, state.log().LoadRun());
  ASSIGN_OR_RETURN(const LeaderRecord leader, state.log().LoadLeader());
  if (leader.is_followed) {
    return absl::FailedPreconditionError(absl::Substitute(
        "state directory $0 has a copy of run $1, which the coordinator at $2 "
        "leads: start with --follow, or with --promote to take the run over. "
        "Nothing was changed",
        options.state_dir, run.run_id, leader.address));
  }
  if (leader.is_elected && !options.is_elected) {
    return absl::FailedPreconditionError(absl::Substitute(
        "state directory $0 is that of a coordinator which was elected to lead "
        "run $1, and another one may have been elected since: start with "
        "--etcd, or, if no other coordinator will lead the run any more, with "
        "--promote. Nothing was changed",
        options.state_dir, run.run_id));
  }
  RETURN_IF_ERROR(CheckContinues(state, run, options.config));
  return run;
}

// Returns what the log has about the run's health before this process.
absl::StatusOr<RunHealth::Options> HealthOptions(
    const v1::RunConfig& config, const SyncSchedule& schedule,
    absl::Span<const Member> members, CommitLog& log) {
  RunHealth::Options options = {
      .total_steps = schedule.total_steps(),
      .round_steps = schedule.round_steps(),
      .grace = absl::Seconds(config.membership().grace_seconds())};
  absl::Time last_end = absl::InfinitePast();
  for (const Member& member : members) {
    if (member.state == v1::IslandStatus::LIVE) continue;
    last_end = std::max(last_end, member.ended_at);
  }
  if (last_end > absl::InfinitePast()) options.last_end = last_end;
  // A second pause gives only another reason.
  constexpr uint64_t kMost = 100;
  ASSIGN_OR_RETURN(
      const std::vector<v1::Event> pauses,
      log.NewestEvents(0, kMost, {.kinds = {"run_paused", "run_resumed"}}));
  bool is_paused = false;
  for (const v1::Event& event : pauses) {
    const bool pauses_run = event.kind() == "run_paused";
    if (pauses_run && !is_paused) options.last_pause = ToTime(event.time());
    is_paused = pauses_run;
  }
  ASSIGN_OR_RETURN(const std::vector<v1::Event> changes,
                   log.NewestEvents(0, kMost, {.kinds = {kConfigChanged}}));
  for (const v1::Event& event : changes) {
    if (absl::EndsWith(event.text(), kIslandsKeep)) {
      options.config_changed = ToTime(event.time());
    }
  }
  return options;
}

struct StartedRun {
  RunRecord run;
  // The newest version of each fragment.
  std::vector<CommitRecord> commits;
  bool is_new = false;
};

// Continues the run in `state`, or begins a new one there. `options.config`
// takes the run's defaults.
absl::StatusOr<StartedRun> StartRun(StateDirectory& state,
                                    Engine::Options& options) {
  StartedRun started;
  absl::StatusOr<RunRecord> run = ContinueRun(state, options);
  started.is_new = absl::IsNotFound(run.status());
  if (started.is_new) {
    StateDefaults(options.config, options.config);
  } else {
    RETURN_IF_ERROR(run.status());
    ASSIGN_OR_RETURN(started.commits, state.log().Heads());
  }
  if (started.commits.empty()) {
    ASSIGN_OR_RETURN(const InitialValues values, OpenInitialValues(options));
    if (started.is_new) {
      RETURN_IF_ERROR(CreateRun(state, options, values.layout()));
    }
    ASSIGN_OR_RETURN(run, ContinueRun(state, options));
    const bool from_checkpoint = run->plan.from_checkpoint();
    if (from_checkpoint == options.initial_parameters.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "run ", run->run_id,
          " was created but has no parameters yet, and it ",
          from_checkpoint ? "begins" : "does not begin",
          " with a checkpoint: start ", from_checkpoint ? "with" : "without",
          " --initial_parameters, or remove the state directory"));
    }
    // The checkpoint may differ from the one at the first start.
    RETURN_IF_ERROR(FragmentMap::Create(values.layout(), run->plan).status());
    RETURN_IF_ERROR(CommitInitialVersions(state, *run, values));
    ASSIGN_OR_RETURN(started.commits, state.log().Heads());
  }
  started.run = *std::move(run);
  return started;
}

// Returns the events to record first: those that `state` has, the start, and
// last the change since the run was led before.
absl::StatusOr<std::vector<CoordinatorEvent>> StartEvents(
    StateDirectory& state, const StartedRun& started,
    const Engine::Options& options) {
  const RunRecord& run = started.run;
  ASSIGN_OR_RETURN(const LeaderRecord leader, state.log().LoadLeader());
  std::vector<CoordinatorEvent> events = state.TakeFirstEvents();
  events.push_back(
      {"coordinator_started", "",
       absl::StrCat(
           started.is_new ? "new run " : "continuing run ", run.run_id,
           started.is_new && run.plan.from_checkpoint()
               ? absl::StrCat(" from checkpoint ", options.initial_parameters)
               : "")});
  const std::string changes = ConfigDifference(leader.config, options.config);
  if (!changes.empty()) {
    // The plan is stored.
    const bool keeps_sends =
        run.plan.fragments_size() > 1 &&
        WaitsForUpdates(leader.config.synchronization()) !=
            WaitsForUpdates(options.config.synchronization());
    events.push_back(
        {kConfigChanged, "",
         absl::StrCat(
             InOneLine(changes),
             keeps_sends
                 ? "; fragments are sent at the same steps of a round as before"
                 : "",
             ConfigDifference(ForIslands(leader.config),
                              ForIslands(options.config))
                     .empty()
                 ? ""
                 : kIslandsKeep)});
  }
  return events;
}

double ParameterNorm(const FragmentHeads& heads, uint32_t fragment) {
  double squares = 0;
  const auto newest = heads.Newest(fragment);
  for (const float value : newest->contents().theta) {
    squares += static_cast<double>(value) * value;
  }
  return std::sqrt(squares);
}

std::vector<Coordinator::CommittedFragment> CommittedFragments(
    absl::Span<const CommitRecord> commits, const FragmentHeads& heads,
    const CoordinatorHistory& history) {
  std::vector<Coordinator::CommittedFragment> fragments;
  for (const CommitRecord& commit : commits) {
    const uint32_t fragment = commit.head.fragment();
    // A norm of all parameters of a large model takes minutes.
    const bool is_needed =
        !NormGuard::ShowUsual(history.merged_norms[fragment]);
    fragments.push_back(
        {.head = commit.head,
         .merged_norm = commit.merged_norm,
         .committed_at = commit.committed_at,
         .parameter_norm = is_needed ? ParameterNorm(heads, fragment) : 0});
  }
  return fragments;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Start(Options options,
                                                      OpenedRun opened) {
  std::unique_ptr<StateDirectory> state = std::move(opened.state);
  std::unique_ptr<FragmentHeads> fragment_heads = std::move(opened.heads);
  if (state == nullptr) {
    ASSIGN_OR_RETURN(state,
                     StateDirectory::Open(options.state_dir, {.create = true}));
  }
  ASSIGN_OR_RETURN(StartedRun started, StartRun(*state, options));
  ASSIGN_OR_RETURN(std::vector<CoordinatorEvent> events,
                   StartEvents(*state, started, options));
  RunRecord& run = started.run;
  run.config = options.config;
  ASSIGN_OR_RETURN(const uint64_t memory, MachineMemoryBytes());
  const std::string warning = MemoryWarning(run.config, run.plan, memory);
  LOG_IF(WARNING, !warning.empty() && !options.evictable_state) << warning;

  if (fragment_heads == nullptr ||
      !fragment_heads->Are(started.commits, run.config.storage())) {
    fragment_heads = nullptr;
    ASSIGN_OR_RETURN(fragment_heads,
                     FragmentHeads::Restore(*state, run, options.merge_threads,
                                            options.evictable_state));
  }
  const v1::StorageConfig& storage = run.config.storage();
  RETURN_IF_ERROR(state
                      ->RemoveUnreferenced(run.run_id, storage.versions_kept(),
                                           storage.update_history())
                      .status());
  ASSIGN_OR_RETURN(std::vector<Member> members, state->log().Members());
  ASSIGN_OR_RETURN(
      CoordinatorHistory history,
      state->log().LoadHistory(
          static_cast<uint32_t>(started.commits.size()),
          NormGuard::Memory(run.config.membership().max_islands())));
  std::vector<Coordinator::CommittedFragment> heads =
      CommittedFragments(started.commits, *fragment_heads, history);
  for (const QuarantineEntry& entry : history.quarantine) {
    if (entry.state == v1::QuarantinedContribution::HELD) continue;
    RETURN_IF_ERROR(state->RemoveQuarantined(entry.id));
  }
  ASSIGN_OR_RETURN(SyncSchedule schedule,
                   SyncSchedule::Create(run.config, run.plan));
  ASSIGN_OR_RETURN(RunHealth::Options health,
                   HealthOptions(run.config, schedule, members, state->log()));
  // The event of this start is not in the log yet.
  if (absl::EndsWith(events.back().text, kIslandsKeep)) {
    health.config_changed = options.now();
  }
  ASSIGN_OR_RETURN(
      const std::vector<v1::Event> ends,
      state->log().NewestEvents(0, 1, {.kinds = {RunFinished().kind}}));
  // The constructor is private, so std::make_unique cannot call it.
  std::unique_ptr<Engine> engine(new Engine(
      options, std::move(state),
      {.run_id = run.run_id,
       .config = run.config,
       .plan = run.plan,
       .schedule = std::move(schedule),
       .epoch = run.epoch,
       .drain_slow_after = options.drain_slow_after},
      std::move(fragment_heads), std::move(heads), std::move(members),
      std::move(history), health, StagingBytesOf(run.config, run.plan)));
  // A crash at the end of the run may have lost its event.
  if (engine->run_state() == v1::FINISHED && ends.empty()) {
    events.push_back(RunFinished());
  }
  // A later start finds no change in this configuration.
  RETURN_IF_ERROR(engine->state_->log().RecordConfig(run.config));
  engine->StartThreads(std::move(events));
  return engine;
}

}  // namespace causeway
