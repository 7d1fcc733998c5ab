// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/island.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "common/tensors/tensors_layout.h"
#include "glog/logging.h"
#include "quantization/codec_config.h"
#include "worker/collective/culprit.h"
#include "worker/outer_loop/retry.h"

namespace causeway {
namespace {

// The share of its time for which an island waits for recent checkpoints.
constexpr double kShareOfSaving = 0.01;
// Says that the island ends only to be started again with other processes.
constexpr char kOtherRanks[] = "starting again with other ranks";

OuterLoop::Options LoopOptions(const Island::Options& options) {
  OuterLoop::Options loop{.join = options.join,
                          .overlap_steps = options.overlap_steps,
                          .uplink_bits = options.uplink_bits,
                          .leave_timeout = options.leave_timeout,
                          .seed = options.seed};
  if (options.recent_checkpoints != nullptr || options.hands_over != nullptr) {
    loop.checkpoint_steps = 1;
  } else if (options.checkpoints != nullptr) {
    loop.checkpoint_steps = options.checkpoint_steps;
  }
  if (options.resume != nullptr) {
    loop.resume = options.resume->position;
  }
  return loop;
}

}  // namespace

Island::Island(Options options, CoordinatorClient* client)
    : options_(std::move(options)),
      client_(client),
      loop_(LoopOptions(options_), options_.now),
      progress_(client, &loop_, options_.now, options_.log_interval) {}

absl::Status Island::Run() {
  Start();
  const absl::Status status = Train();
  End(status);
  return status;
}

absl::Status Island::Train() {
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<uint64_t> step,
                     NextStep(absl::InfiniteFuture()));
    if (step == 0) return absl::OkStatus();
    const absl::StatusOr<InnerStepResult> result = trainer_->Step(*step);
    const absl::Duration left =
        step_began_ + options_.step_time - options_.now();
    if (left > absl::ZeroDuration()) options_.sleep(left);
    if (result.ok()) {
      Stepped(*result);
    } else {
      Fail(result.status());
    }
  }
}

void Island::Start() {
  session_.emplace(client_, &loop_, [this] { return progress_.Report(); });
}

void Island::End(const absl::Status& status) {
  // Ends the threads of the session and of the fragments, and their calls.
  Stop();
  JoinFetcher();
  actors_.clear();
  session_.reset();
  Leave(status);
}

absl::StatusOr<const v1::JoinResponse*> Island::AwaitRun(absl::Time deadline) {
  const TrainerAction next = loop_.AwaitTrainerAction(deadline);
  if (const auto* end = std::get_if<action::End>(&next)) return end->status;
  if (std::holds_alternative<action::Wait>(next)) {
    const absl::Status error =
        loop_.Read([](const OuterLoop& core, absl::Time) {
          return core.membership().join_error();
        });
    return absl::DeadlineExceededError(absl::StrCat(
        "the island has not joined yet: ",
        error.ok() ? "the coordinator has not answered" : error.message()));
  }
  RETURN_IF_ERROR(TakeUpRun());
  return &*joined_;
}

absl::StatusOr<std::optional<uint64_t>> Island::NextStep(absl::Time deadline) {
  while (true) {
    const TrainerAction next = loop_.AwaitTrainerAction(deadline);
    if (const auto* end = std::get_if<action::End>(&next)) {
      LOG_IF(INFO, end->status.ok())
          << "the run is finished; training stood still for "
          << absl::FormatDuration(
                 absl::Trunc(progress_.waited(), absl::Milliseconds(1)))
          << " in all";
      RETURN_IF_ERROR(end->status);
      return 0;
    }
    if (std::holds_alternative<action::Wait>(next)) return std::nullopt;
    if (const auto* train = std::get_if<action::Train>(&next)) {
      step_ = train->step;
      step_began_ = options_.now();
      return step_;
    }
    // The loop has its answer, or it would order nothing.
    JoinFetcher();
    absl::Status done = TakeUpRun();
    if (done.ok()) {
      done =
          std::visit([this](const auto& action) { return Do(action); }, next);
    }
    if (!done.ok()) Fail(done);
  }
}

void Island::Stepped(const InnerStepResult& result) {
  ++steps_made_;
  progress_.Record(step_, result, options_.now() - step_began_);
  loop_.Stepped(result.tokens);
}

uint64_t Island::RoundsMade() const {
  if (!joined_.has_value()) return 0;
  return steps_made_ /
         joined_->config().synchronization().inner_steps_per_round();
}

void Island::SettleFirst() {
  loop_.Tell([](OuterLoop& core, absl::Time) { core.SettleFirst(); });
}

void Island::Fail(const absl::Status& status) {
  loop_.Tell([&](OuterLoop& core, absl::Time) { core.Failed(status); });
}

std::string Island::Activity() const {
  return loop_.Read([](const OuterLoop& core, absl::Time) {
    const std::string activity = core.Activity();
    const IslandMembership& membership = core.membership();
    // OuterLoop::Activity leaves this out, because a coordinator that hears it
    // from a heartbeat answers again.
    return membership.connection() > 0 && !membership.connected() &&
                   !core.is_training()
               ? absl::StrCat(activity, "; the coordinator does not answer")
               : activity;
  });
}

bool Island::IsTraining() const {
  return loop_.Read(
      [](const OuterLoop& core, absl::Time) { return core.is_training(); });
}

bool Island::HasHandedIn() const {
  return loop_.Read(
      [](const OuterLoop& core, absl::Time) { return core.has_handed_in(); });
}

uint64_t Island::Step() const {
  return loop_.Read(
      [](const OuterLoop& core, absl::Time) { return core.step(); });
}

void Island::RequestLeave(absl::string_view reason) {
  const bool joins = loop_.Tell([&](OuterLoop& core, absl::Time) {
    core.RequestLeave(reason);
    return core.fragments() == 0;
  });
  // Before training there is nothing to hand in, so calls can be cut off.
  if (joins) client_->Shutdown();
}

void Island::Stop() {
  loop_.Tell([](OuterLoop& core, absl::Time) { core.RequestStop(); });
  client_->Shutdown();
}

void Island::WarnOfOldCheckpoints() const {
  if (options_.checkpoints == nullptr) return;
  const v1::RunConfig& config = joined_->config();
  const uint64_t round = config.synchronization().inner_steps_per_round();
  const uint64_t history = config.storage().update_history();
  LOG_IF(WARNING, options_.checkpoint_steps > history * round)
      << "a checkpoint every " << options_.checkpoint_steps
      << " steps (checkpoint_steps) may be too old to continue from: the "
         "coordinator keeps "
      << history << " updates (storage.update_history), one every " << round
      << " steps. Save more often, or have it keep more";
}

absl::Status Island::TakeUpRun() {
  if (joined_.has_value()) return absl::OkStatus();
  joined_ = loop_.Read([](const OuterLoop& core, absl::Time) {
    v1::JoinResponse joined = *core.membership().joined();
    *joined.mutable_config() = core.config();
    return joined;
  });
  LOG(INFO) << "joined run " << joined_->identity().run_id() << " as "
            << joined_->identity().island_id() << " (incarnation "
            << joined_->identity().incarnation() << "), data shard "
            << joined_->shard() << " of " << joined_->shards() << ", step "
            << joined_->run_step() << " of "
            << joined_->config().training().total_steps();
  progress_.SetRun(joined_->config());
  WarnOfOldCheckpoints();
  NoteVerdict();
  if (options_.check_run != nullptr) {
    RETURN_IF_ERROR(options_.check_run(*joined_));
  }
  ASSIGN_OR_RETURN(ModelLayout layout,
                   RunLayout(joined_->config(), joined_->plan()));
  ASSIGN_OR_RETURN(map_, FragmentMap::Create(layout, joined_->plan()));
  parameters_.resize(map_->model_size());
  return OpenInitialValues(std::move(layout));
}

absl::Status Island::OpenInitialValues(ModelLayout layout) {
  if (!joined_->plan().from_checkpoint()) {
    if (!options_.initial_parameters.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "run ", joined_->identity().run_id(),
          " did not begin with a checkpoint: start the island without "
          "--initial_parameters, or name the coordinator of another run"));
    }
    initial_ =
        InitialValues::FromSeed(std::move(layout), joined_->config().seed());
  } else if (!options_.initial_parameters.empty()) {
    ASSIGN_OR_RETURN(initial_,
                     InitialValues::FromCheckpoint(options_.initial_parameters,
                                                   std::move(layout)));
  }
  return absl::OkStatus();
}

void Island::JoinFetcher() {
  if (fetcher_.joinable()) fetcher_.join();
}

absl::Status Island::Do(const action::FetchParameters& fetch) {
  loop_.Tell([](OuterLoop& core, absl::Time) { core.FetchStarted(); });
  fetcher_ = std::thread([this, request = fetch.request] {
    const absl::Status done = Load(request);
    if (!done.ok()) Fail(done);
  });
  return absl::OkStatus();
}

absl::Status Island::Load(const v1::FetchParametersRequest& request) {
  const uint32_t fragment = request.fragment();
  std::vector<float> values(map_->size(fragment));
  std::optional<v1::FragmentHead> made;
  if (request.version() == 0) {
    ASSIGN_OR_RETURN(made, MakeInitialValues(fragment, absl::MakeSpan(values)));
  }
  const absl::StatusOr<v1::FragmentHead> head =
      made.has_value() ? *std::move(made)
                       : Fetch(request, absl::MakeSpan(values));
  if (head.ok()) {
    map_->Scatter(fragment, values, absl::MakeSpan(parameters_));
  }
  loop_.Tell([&](OuterLoop& core, absl::Time now) {
    core.ParametersAnswered(head, now);
  });
  return absl::OkStatus();
}

absl::StatusOr<v1::FragmentHead> Island::Fetch(
    const v1::FetchParametersRequest& request, absl::Span<float> values) {
  const uint64_t bytes = values.size() * sizeof(float);
  const absl::Status fetched =
      client_->FetchParameters(request, bytes, download_);
  // A download that broke off is continued by the next attempt.
  if (!fetched.ok() && !absl::IsNotFound(fetched)) return fetched;
  const ParametersDownload download = std::exchange(download_, {});
  RETURN_IF_ERROR(fetched);
  if (download.bytes.size() != bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("fragment ", request.fragment(), " has ", values.size(),
                     " values here, but the coordinator sent ",
                     download.bytes.size(), " bytes"));
  }
  std::memcpy(values.data(), download.bytes.received().data(), bytes);
  LOG(INFO) << "fetched fragment " << request.fragment() << " at version "
            << download.description.head().version() << " (" << bytes
            << " bytes)";
  return download.description.head();
}

absl::StatusOr<std::optional<v1::FragmentHead>> Island::MakeInitialValues(
    uint32_t fragment, absl::Span<float> values) {
  if (!initial_.has_value()) return std::nullopt;
  const v1::FragmentHead& head = joined_->heads(static_cast<int>(fragment));
  RETURN_IF_ERROR(initial_->Read(
      joined_->plan().fragments(static_cast<int>(fragment)), 0, values));
  if (Digest128(absl::Span<const float>(values)) == head.digest()) {
    return head;
  }
  if (!joined_->plan().from_checkpoint()) {
    return absl::InternalError(
        absl::StrCat("the initial parameters of fragment ", fragment,
                     " differ from the coordinator's: worker and coordinator "
                     "are of incompatible versions"));
  }
  LOG(WARNING) << "fragment " << fragment << " of checkpoint "
               << options_.initial_parameters
               << " is not the one that the run began with; fetching it";
  return std::nullopt;
}

absl::Status Island::NoteProcess() {
  const uint64_t process = options_.join.instance_id();
  if (options_.checkpoints != nullptr) {
    RETURN_IF_ERROR(options_.checkpoints->SetProcess(process));
  }
  IslandCheckpointStore* const recent = options_.recent_checkpoints;
  if (recent == nullptr) return absl::OkStatus();
  const absl::Status noted = recent->SetProcess(process);
  if (noted.ok()) return absl::OkStatus();
  // The memory may be full. No process may continue from the old checkpoint,
  // because it would not know that this process has contributed.
  LOG(WARNING) << "no checkpoint is kept in memory for now: "
               << noted.message();
  return recent->Remove();
}

absl::Status Island::Do(const action::Begin& begin) {
  RETURN_IF_ERROR(NoteProcess());
  IslandState resumed;
  if (options_.resume != nullptr) resumed = std::move(*options_.resume);
  if (begin.from_checkpoint) {
    // The replica begins with the trainer's parameters as its anchors.
    parameters_ = std::move(resumed.anchors);
  }
  initial_.reset();
  ASSIGN_OR_RETURN(trainer_, options_.make_trainer(
                                 *joined_, std::exchange(parameters_, {})));
  NoteVerdict();
  ASSIGN_OR_RETURN(replica_, trainer_->MakeReplica(*joined_));
  progress_.SetData(trainer_->DataDigest());
  if (begin.from_checkpoint) {
    RETURN_IF_ERROR(trainer_->Restore(std::move(resumed.trainer)));
  }
  loop_.Tell([](OuterLoop& core, absl::Time) { core.Begun(); });
  const v1::SynchronizationConfig& sync = joined_->config().synchronization();
  for (uint32_t fragment = 0; fragment < map_->fragments(); ++fragment) {
    actors_.push_back(std::make_unique<FragmentActor>(
        FragmentActor::Options{.fragment = fragment,
                               .uplink = UplinkSpec(sync),
                               .downlink = DownlinkSpec(sync)},
        replica_[fragment].get(), client_, &loop_));
  }
  return absl::OkStatus();
}

absl::Status Island::Do(const action::TakeSnapshot& snapshot) {
  RETURN_IF_ERROR(replica_[snapshot.fragment]->TakeSnapshot());
  loop_.Tell([](OuterLoop& core, absl::Time) { core.SnapshotTaken(); });
  return absl::OkStatus();
}

absl::Status Island::Do(const action::Apply& apply) {
  RETURN_IF_ERROR(replica_[apply.fragment]->Apply(apply.includes_island));
  loop_.Tell([](OuterLoop& core, absl::Time) { core.Applied(); });
  return absl::OkStatus();
}

absl::StatusOr<std::string> Island::ReadAnchor(uint32_t fragment,
                                               absl::Span<float> model) {
  std::vector<float> anchor(map_->size(fragment));
  RETURN_IF_ERROR(replica_[fragment]->ReadAnchor(absl::MakeSpan(anchor)));
  map_->Scatter(fragment, anchor, model);
  return Digest128(absl::MakeConstSpan(anchor));
}

absl::Status Island::ReadAnchors(absl::Span<float> model) {
  for (uint32_t fragment = 0; fragment < map_->fragments(); ++fragment) {
    RETURN_IF_ERROR(ReadAnchor(fragment, model).status());
  }
  return absl::OkStatus();
}

absl::Status Island::Do(const action::Validate& validate) {
  const absl::Time begin = options_.now();
  std::vector<float> merged(map_->model_size());
  RETURN_IF_ERROR(ReadAnchors(absl::MakeSpan(merged)));
  ASSIGN_OR_RETURN(
      const ValidationLoss measured,
      trainer_->Validate(std::move(merged), validate.max_sequences));
  progress_.RecordValidation(validate.version, measured,
                             options_.now() - begin);
  loop_.Tell([](OuterLoop& core, absl::Time) { core.Validated(); });
  return absl::OkStatus();
}

absl::StatusOr<IslandState> Island::StateAt(v1::IslandCheckpoint position) {
  IslandState state{.position = std::move(position)};
  RETURN_IF_ERROR(trainer_->Save(state.trainer));
  state.anchors.resize(map_->model_size());
  for (v1::IslandCheckpoint::Fragment& saved :
       *state.position.mutable_fragments()) {
    ASSIGN_OR_RETURN(
        *saved.mutable_anchor()->mutable_digest(),
        ReadAnchor(saved.anchor().fragment(), absl::MakeSpan(state.anchors)));
  }
  return state;
}

absl::StatusOr<IslandState> Island::State() {
  return StateAt(loop_.Read(
      [](const OuterLoop& core, absl::Time) { return core.Position(); }));
}

IslandCheckpointStore* Island::DueCheckpoints(uint64_t step,
                                              absl::Time now) const {
  IslandCheckpointStore* const store = options_.checkpoints;
  if (store != nullptr && !store->busy() &&
      (!saved_step_.has_value() ||
       step >= *saved_step_ + options_.checkpoint_steps)) {
    return store;
  }
  IslandCheckpointStore* const recent = options_.recent_checkpoints;
  if (recent == nullptr || recent->busy()) return nullptr;
  // Writing takes a processor from training, too. The first checkpoint is due
  // at once, because InfinitePast plus any cost stays InfinitePast.
  const absl::Duration cost = time_to_save_ + recent->least_write();
  return now >= saved_recent_ + cost / kShareOfSaving ? recent : nullptr;
}

bool Island::HandsOver(uint64_t step) {
  if (options_.hands_over == nullptr || !options_.hands_over()) {
    hands_over_since_.reset();
    return false;
  }
  if (!hands_over_since_.has_value()) hands_over_since_ = step;
  return loop_.Read([&](const OuterLoop& core, absl::Time) {
    return !core.has_in_flight() ||
           // The step may be an earlier one, after an update without the
           // island.
           step >= *hands_over_since_ +
                       core.config().synchronization().inner_steps_per_round();
  });
}

absl::Status Island::Do(const action::Save& save) {
  if (HandsOver(save.position.run_step())) {
    ASSIGN_OR_RETURN(IslandState state, StateAt(save.position));
    RETURN_IF_ERROR(options_.hand_over(std::move(state)));
    return absl::AbortedError(kOtherRanks);
  }
  const absl::Time begin = options_.now();
  const uint64_t step = save.position.run_step();
  IslandCheckpointStore* const store = DueCheckpoints(step, begin);
  if (store != nullptr) {
    ASSIGN_OR_RETURN(IslandState state, StateAt(save.position));
    store->SaveLater(std::move(state), options_.now);
    if (store == options_.checkpoints) {
      saved_step_ = step;
    } else {
      saved_recent_ = options_.now();
      // The shortest time is the true cost, without waits for a rank that
      // starts.
      time_to_save_ = std::min(time_to_save_, saved_recent_ - begin);
    }
  }
  loop_.Tell(
      [&](OuterLoop& core, absl::Time) { core.Saved(store != nullptr); });
  return absl::OkStatus();
}

std::optional<v1::RankTrouble> Island::TakeVerdict() const {
  return options_.take_verdict == nullptr ? std::nullopt
                                          : options_.take_verdict();
}

void Island::NoteVerdict() {
  if (const auto verdict = TakeVerdict()) progress_.SetTrouble(*verdict);
}

void Island::Leave(const absl::Status& status) {
  v1::LeaveRequest request;
  *request.mutable_identity() =
      loop_.Read([](const OuterLoop& core, absl::Time) {
        return core.membership().identity();
      });
  // An island that never joined has nothing to leave.
  if (request.identity().run_id().empty()) return;
  *request.mutable_progress() = progress_.Report();
  request.set_reason(status.ok() ? "finished" : std::string(status.message()));
  if (absl::IsOutOfRange(status) && !SaysVersionIsLost(status)) {
    // Tell the coordinator that the replica has diverged.
    request.mutable_progress()->set_loss(
        std::numeric_limits<double>::quiet_NaN());
  } else if (!status.ok() && !absl::IsCancelled(status) &&
             // After these, the island starts again at once, by itself.
             status.message() != kOtherRanks && !SaysVersionIsLost(status)) {
    request.mutable_reason()->insert(0, "failed: ");
  }
  // A supervisor knows more than the other ranks.
  std::optional<v1::RankTrouble> trouble = TakeVerdict();
  if (!trouble.has_value()) trouble = RankTroubleOf(status);
  if (trouble.has_value()) {
    *request.mutable_rank_trouble() = *std::move(trouble);
  }
  const absl::Status left = client_->Leave(request);
  LOG_IF(WARNING, !left.ok()) << "could not leave: " << left.message();
}

}  // namespace causeway
