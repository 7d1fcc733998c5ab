// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/engine.h"

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/printable.h"
#include "common/status_macros.h"
#include "common/trace.h"
#include "glog/logging.h"
#include "quantization/codec.h"
#include "quantization/codec_config.h"
#include "quantization/encoded_object.h"
#include "server/rules/rank_parts.h"

namespace causeway {
namespace {

// The time between looks at leases and grace windows.
constexpr absl::Duration kTick = absl::Milliseconds(100);
// Islands notice a write of the commit log, or the delay of a tick, of this
// length.
constexpr absl::Duration kLongWrite = absl::Seconds(1);

// The time between attempts to read a disk that failed during a write.
constexpr absl::Duration kReconcilePause = absl::Seconds(5);

std::string InSeconds(absl::Duration time) {
  return absl::StrFormat("%.1f s", absl::ToDoubleSeconds(time));
}

}  // namespace

Engine::Engine(Options options, std::unique_ptr<StateDirectory> state,
               Coordinator::Options rules,
               std::unique_ptr<FragmentHeads> fragment_heads,
               std::vector<Coordinator::CommittedFragment> heads,
               std::vector<Member> members, CoordinatorHistory history,
               RunHealth::Options health, const StagingBytes& staging)
    : options_(std::move(options)),
      run_id_(rules.run_id),
      started_at_(options_.now()),
      state_(std::move(state)),
      fragment_heads_(std::move(fragment_heads)),
      staging_(staging.uploads, options_.evictable_state ? 0 : staging.codes),
      outer_steps_(
          {.config = options_.config,
           .plan = rules.plan,
           .now = options_.now,
           .threads = options_.merge_threads,
           .memory_dir = options_.evictable_state ? options_.state_dir : ""},
          {*state_, *fragment_heads_, feed_, staging_}),
      coordinator_(std::move(rules), std::move(heads), std::move(members),
                   started_at_, std::move(history)),
      health_(health) {}

void Engine::StartThreads(std::vector<CoordinatorEvent> events) {
  const v1::LogPosition position = state_->log().Publish(
      [this](std::shared_ptr<const v1::LogChange> change) {
        feed_.Add(std::move(change));
      });
  feed_.Begin(position, options_.is_elected);
  const absl::Status begun = Handle([&](Effects& effects) {
    effects.events = std::move(events);
    return absl::OkStatus();
  });
  LOG_IF(ERROR, !begun.ok()) << begun;
  ticker_ = std::thread([this] { TickLoop(); });
  outer_steps_.Start(
      {.begin_commit =
           [this](const ClosedRound& closed, const OuterStepOutcome& outcome,
                  absl::Span<const float> shares, CommitRecord commit) {
             absl::MutexLock lock(&mu_);
             return journal_.BeginCommit(coordinator_, closed, outcome, shares,
                                         std::move(commit));
           },
       .write = [this](const LogBatch& batch) { return WriteToLog(batch); },
       .await_outcome =
           [this](const ClosedRound& closed, const absl::Status& unknown) {
             return AwaitOutcome(closed, unknown);
           },
       .ended =
           [this](const ClosedRound& closed,
                  const absl::StatusOr<OuterStepOutcome>& outcome) {
             OuterStepEnded(closed, outcome);
           }});
  fragment_heads_->StartSnapshots([this](SnapshotRecord snapshot) {
    return NoteSnapshot(std::move(snapshot));
  });
}

Engine::~Engine() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  // This ends waits for followers with an error, which is the stop's.
  feed_.Stop();
  if (ticker_.joinable()) ticker_.join();
  outer_steps_.Stop();
  // This makes the last snapshots, which the engine still notes.
  fragment_heads_.reset();
}

absl::Status Engine::CheckBegun() {
  if (feed_.IsBegun()) return absl::OkStatus();
  return absl::UnavailableError(
      "this coordinator has just been elected, and followers may lack its "
      "newest version: try again");
}

absl::Status Engine::CheckOpen() {
  RETURN_IF_ERROR(CheckBegun());
  return CheckInOffice();
}

absl::StatusOr<v1::JoinResponse> Engine::Join(const v1::JoinRequest& request) {
  RETURN_IF_ERROR(CheckBegun());
  return Handle(Event(&Coordinator::Join, request));
}

absl::Status Engine::Heartbeat(const v1::SessionRequest& request) {
  RETURN_IF_ERROR(CheckBegun());
  return Handle(
      Event(&Coordinator::Heartbeat, request.identity(), request.progress()));
}

absl::StatusOr<v1::ContributeResponse> Engine::Offer(
    const v1::ContributionHeader& header) {
  absl::StatusOr<v1::ContributeResponse> response;
  {
    absl::MutexLock lock(&mu_);
    response = coordinator_.Offer(header, options_.now());
  }
  if (response.ok() && response->verdict() == v1::ContributeResponse::UPLOAD) {
    const v1::EncodedObject& object = header.object();
    ASSIGN_OR_RETURN(
        const uint64_t offset,
        staging_.Begin(KeyOf(header), object,
                       MaxEncodedBytes(SpecOf(object), object.size())));
    response->set_next_offset(offset);
  }
  return response;
}

absl::StatusOr<bool> Engine::Append(const ContributionKey& key,
                                    const Chunk& chunk) {
  bytes_received_ += chunk.size();
  return staging_.Append(key, chunk);
}

absl::StatusOr<v1::ContributeResponse> Engine::Complete(
    const v1::ContributionHeader& header) {
  RankParts parts{.ranks = static_cast<uint64_t>(header.rank_ends_size())};
  const absl::StatusOr<double> verified = [&] {
    const TraceSpan span("verify", header.fragment());
    return staging_.Verify(KeyOf(header), header.object(), header.rank_ends(),
                           &parts.runs);
  }();
  // Leave values that are not finite to the rules.
  if (!absl::IsOutOfRange(verified.status())) {
    RETURN_IF_ERROR(verified.status());
  }
  if (verified.ok()) {
    outer_steps_.Prepare(header, [this] {
      absl::MutexLock lock(&mu_);
      return coordinator_.membership().ready_count();
    });
  }
  const double norm =
      verified.value_or(std::numeric_limits<double>::quiet_NaN());
  return Handle(Event(&Coordinator::Complete, header, norm, parts));
}

absl::Status Engine::Leave(const v1::LeaveRequest& request) {
  return Handle(Event(&Coordinator::Leave, request));
}

absl::StatusOr<OpenedParameters> Engine::OpenParameters(
    const v1::FetchParametersRequest& request) {
  {
    absl::MutexLock lock(&mu_);
    RETURN_IF_ERROR(coordinator_.Check(request.identity()));
  }
  return OpenVersion(*fragment_heads_, request);
}

absl::StatusOr<OpenedUpdate> Engine::OpenUpdate(
    const v1::FetchUpdateRequest& request) {
  {
    absl::MutexLock lock(&mu_);
    RETURN_IF_ERROR(coordinator_.Check(request.identity()));
  }
  ASSIGN_OR_RETURN(
      const CommitRecord commit,
      state_->log().FindCommit(request.fragment(), request.from_version() + 1));
  absl::StatusOr<std::shared_ptr<const StoredUpdate>> stored =
      OpenStoredUpdate(*fragment_heads_, commit,
                       DownlinkSpec(options_.config.synchronization()));
  // When there is no such update, the log still has what was merged. An island
  // in the middle of a download already knows.
  if (!stored.ok() &&
      (!absl::IsNotFound(stored.status()) || request.offset() > 0)) {
    return stored.status();
  }
  ASSIGN_OR_RETURN(const std::vector<ContributionRecord> merged,
                   state_->log().MergedContributions(
                       request.fragment(), request.from_version(),
                       request.identity().island_id()));
  OpenedUpdate opened;
  v1::FetchUpdateResponse& response = opened.response;
  *response.mutable_head() = commit.head;
  {
    absl::MutexLock lock(&mu_);
    coordinator_.DescribeMerged(request, merged, response);
  }
  if (!stored.ok()) return opened;
  *response.mutable_object() = (*stored)->contents().object;
  opened.bytes = (*stored)->contents().encoding;
  opened.owner = *std::move(stored);
  return opened;
}

absl::Status Engine::Persist(const Journal::Entry& entry) {
  for (const CoordinatorEvent& event : entry.events) {
    LOG(INFO) << Printable(event.text);
  }
  if (entry.batch == nullptr) return absl::OkStatus();
  const absl::Time begin = options_.now();
  const absl::Status applied = WriteToLog(*entry.batch);
  if (const absl::Duration took = options_.now() - begin; took >= kLongWrite) {
    // No heartbeat was handled meanwhile.
    coordinator_.ExtendLeases(took, begin + took);
    written_ += took;
    LOG(WARNING) << "a write to the commit log took " << InSeconds(took)
                 << ", and no call was answered meanwhile; check the disk of "
                 << options_.state_dir << ". Leases were extended by that time";
  }
  return journal_.Written(applied);
}

absl::Status Engine::WriteToLog(const LogBatch& batch) {
  std::multiset<absl::Time>::iterator begin;
  {
    absl::MutexLock lock(&writes_mu_);
    begin = writes_.insert(options_.now());
  }
  const absl::Status applied = state_->log().Apply(batch);
  absl::MutexLock lock(&writes_mu_);
  writes_.erase(begin);
  return applied;
}

absl::Status Engine::CheckLogMoves() const {
  absl::Duration taken;
  {
    absl::MutexLock lock(&writes_mu_);
    if (!writes_.empty()) taken = options_.now() - *writes_.begin();
  }
  if (taken < kLongWrite) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "the coordinator cannot write its commit log: a write has taken ",
      InSeconds(taken),
      " so far, and other calls wait for it; check the disk of ",
      options_.state_dir));
}

absl::Status Engine::NoteSnapshot(SnapshotRecord snapshot) {
  return Handle([&](Effects&) {
    mu_.AssertHeld();
    journal_.AddSnapshot(std::move(snapshot));
    return absl::OkStatus();
  });
}

void Engine::CarryOut(const Effects& effects, const HeldBytes& held) {
  KeepQuarantined(effects, held);
  if (!effects.outer_steps.empty()) outer_steps_.Add(effects.outer_steps);
  if (effects.view_changed) news_.Notify();
}

void Engine::TickLoop() {
  absl::Time reconcile_at = absl::InfinitePast();
  absl::Time rescue_at = absl::InfinitePast();
  bool has_begun = false;
  absl::Time ticked_at = options_.steady();
  while (true) {
    if (!has_begun && (has_begun = CheckBegun().ok())) news_.Notify();
    if (options_.now() >= reconcile_at && state_->log().InDoubt()) {
      reconcile_at = options_.now() + kReconcilePause;
      Reconcile();
    }
    const absl::Status in_place = state_->CheckInPlace();
    if (in_place.ok()) {
      rescue_at = absl::InfinitePast();
    } else if (options_.now() >= rescue_at) {
      const absl::StatusOr<bool> rescued = state_->RescueLog();
      LOG_IF(ERROR, !rescued.ok())
          << "cannot copy the commit log: " << rescued.status();
      // One copy is enough, because nothing is committed meanwhile.
      rescue_at = rescued.ok() && *rescued ? absl::InfiniteFuture()
                                           : options_.now() + kReconcilePause;
    }
    {
      absl::MutexLock lock(&mu_);
      if (mu_.AwaitWithTimeout(absl::Condition(&stopping_), kTick)) return;
    }
    const absl::Status ticked = Handle([&](Effects& effects) {
      mu_.AssertHeld();
      // Every stop of the process before `now` must have extended the leases.
      absl::Time now;
      do {
        now = options_.now();
      } while (NoteLateness(ticked_at));
      effects.events = feed_.Tick(now);
      coordinator_.StorageChecked(
          in_place.ok() ? state_->log().Doubt() : in_place, effects);
      coordinator_.Tick(now, effects);
      ObserveHealth(now);
      return absl::OkStatus();
    });
    LOG_IF_EVERY_N(ERROR, !ticked.ok(), 100) << ticked;
  }
}

bool Engine::NoteLateness(absl::Time& ticked_at) {
  const absl::Time now = options_.steady();
  const absl::Duration late =
      now - std::exchange(ticked_at, now) - kTick - std::exchange(written_, {});
  if (late < kLongWrite) return false;
  coordinator_.ExtendLeases(late, options_.now());
  LOG(WARNING)
      << "leases were not checked for " << InSeconds(late)
      << ", as if this process or its machine had been stopped, or the "
         "disk of "
      << options_.state_dir << " were slow. They were extended by that time";
  return true;
}

void Engine::Reconcile() {
  const absl::Status reconciled = Handle([&](Effects& effects) -> absl::Status {
    mu_.AssertHeld();
    ASSIGN_OR_RETURN(const DoubtfulWrite write, state_->log().Reconcile());
    journal_.Reconciled(write, effects);
    coordinator_.StorageChecked(absl::OkStatus(), effects);
    return absl::OkStatus();
  });
  LOG_IF(WARNING, !reconciled.ok())
      << "the outcome of a write is still unknown: " << reconciled;
}

void Engine::OuterStepEnded(const ClosedRound& closed,
                            const absl::StatusOr<OuterStepOutcome>& outcome) {
  const absl::Status told = Handle([&](Effects& effects) {
    mu_.AssertHeld();
    const absl::Time now = options_.now();
    if (!outcome.ok() && stopping_) {
      // The next process does the step again, or finds its commit.
      LOG(INFO) << "an outer step of fragment " << closed.fragment
                << " ends with the process: " << outcome.status();
    } else if (outcome.ok()) {
      coordinator_.OuterStepCommitted(closed, *outcome, now, effects);
    } else {
      coordinator_.OuterStepFailed(closed, outcome.status(), now, effects);
    }
    return absl::OkStatus();
  });
  LOG_IF(ERROR, !told.ok()) << told;
}

absl::Status Engine::AwaitOutcome(const ClosedRound& closed,
                                  const absl::Status& unknown) {
  // The event about the doubt is written once the disk allows.
  Handle([&](Effects& effects) {
    mu_.AssertHeld();
    coordinator_.OuterStepInDoubt(closed, unknown, effects);
    return absl::OkStatus();
  }).IgnoreError();
  std::optional<absl::Status> outcome;
  const auto known = [&] {
    mu_.AssertReaderHeld();
    outcome = journal_.OutcomeOfCommit(closed.fragment, unknown);
    return stopping_ || outcome.has_value();
  };
  absl::MutexLock lock(&mu_, absl::Condition(&known));
  return outcome.value_or(unknown);
}

}  // namespace causeway
