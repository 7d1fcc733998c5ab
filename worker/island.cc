// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/island.h"

#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/backoff.h"
#include "common/checksum.h"
#include "common/model_layout.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "outer_optimizer/step_share.h"
#include "outer_optimizer/sync_schedule.h"
#include "worker/collective/culprit.h"

namespace causeway {
namespace {

bool AllAtVersionZero(const v1::JoinResponse& joined) {
  for (const v1::FragmentHead& head : joined.heads()) {
    if (head.version() != 0) return false;
  }
  return true;
}

absl::Status CheckDigests(const v1::JoinResponse& joined,
                          const FragmentMap& map,
                          absl::Span<const float> parameters) {
  for (const v1::FragmentHead& head : joined.heads()) {
    std::vector<float> values(map.size(head.fragment()));
    map.Gather(head.fragment(), parameters, absl::MakeSpan(values));
    if (Digest128(absl::MakeConstSpan(values)) != head.digest()) {
      return absl::InternalError(absl::StrCat(
          "the initial parameters of fragment ", head.fragment(),
          " differ from the coordinator's: worker and coordinator are of "
          "versions that do not go together"));
    }
  }
  return absl::OkStatus();
}

// The anchors of a checkpoint, which differ from its parameters.
absl::Status SetAnchors(
    const FragmentMap& map, absl::Span<const float> anchors,
    absl::Span<const std::unique_ptr<FragmentReplica>> replica) {
  for (uint32_t fragment = 0; fragment < map.fragments(); ++fragment) {
    std::vector<float> values(map.size(fragment));
    map.Gather(fragment, anchors, absl::MakeSpan(values));
    RETURN_IF_ERROR(replica[fragment]->SetAnchor(values));
  }
  return absl::OkStatus();
}

}  // namespace

Island::Island(Options options, CoordinatorClient* client)
    : options_(std::move(options)),
      client_(client),
      progress_(client, options_.now, options_.log_interval),
      session_({.join = options_.join, .seed = options_.seed}, client,
               [this] { return progress_.Report(); }) {}

absl::StatusOr<std::optional<IslandState>> Island::TakeResume(
    const v1::JoinResponse& joined) {
  if (options_.checkpoints != nullptr &&
      joined.config().synchronization().eager_updates()) {
    return absl::FailedPreconditionError(
        "the run has eager updates, which an island's checkpoint cannot take "
        "back: start the island without a checkpoint directory");
  }
  if (options_.resume == nullptr) return std::nullopt;
  IslandState state = std::exchange(*options_.resume, {});
  const v1::IslandCheckpoint& position = state.position;
  const v1::IslandIdentity& identity = joined.identity();
  if (position.run_id() != identity.run_id() ||
      position.island_id() != identity.island_id()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint directory is that of island ", position.island_id(),
        " of run ", position.run_id(), ", not of island ", identity.island_id(),
        " of run ", identity.run_id(),
        "; name another directory, or remove its checkpoint"));
  }
  const uint64_t history = joined.config().storage().update_history();
  for (int i = 0; i < joined.heads_size(); ++i) {
    const v1::FragmentHead& head = joined.heads(i);
    const v1::FragmentHead& anchor = position.fragments(i).anchor();
    if (anchor.version() <= head.version() &&
        head.version() - anchor.version() <= history &&
        (anchor.version() < head.version() ||
         anchor.digest() == head.digest())) {
      continue;
    }
    LOG(WARNING) << "the checkpoint is of no use: it has version "
                 << anchor.version() << " of fragment " << i
                 << ", the run is at " << head.version()
                 << "; starting from the coordinator's parameters";
    return std::nullopt;
  }
  LOG(INFO) << "going on from the checkpoint of step " << position.run_step();
  return state;
}

absl::Status Island::MaybeSave(uint64_t step, const v1::JoinResponse& joined,
                               const FragmentMap& map, InnerTrainer& trainer,
                               const FragmentSynchronizer& synchronizer) {
  // The first one soon: it tells a successor whose place it takes.
  if (options_.checkpoints == nullptr || options_.checkpoints->busy() ||
      (saved_step_.has_value() &&
       step < *saved_step_ + options_.checkpoint_steps)) {
    return absl::OkStatus();
  }
  saved_step_ = step;
  IslandState state;
  v1::IslandCheckpoint& position = state.position;
  position.set_run_id(joined.identity().run_id());
  position.set_island_id(joined.identity().island_id());
  position.set_instance_id(options_.join.instance_id());
  position.set_shard(joined.shard());
  position.set_run_step(step);
  RETURN_IF_ERROR(trainer.Save(state.trainer));
  state.parameters = std::exchange(state.trainer.parameters, {});
  state.anchors.resize(map.model_size());
  RETURN_IF_ERROR(
      synchronizer.Save(map, position, absl::MakeSpan(state.anchors)));
  options_.checkpoints->SaveLater(std::move(state));
  return absl::OkStatus();
}

absl::Status Island::Run() {
  progress_.SetActivity("joining");
  ASSIGN_OR_RETURN(v1::JoinResponse joined, session_.Join());
  LOG(INFO) << "joined run " << joined.identity().run_id() << " as "
            << joined.identity().island_id() << " (incarnation "
            << joined.identity().incarnation() << "), data shard "
            << joined.shard() << " of " << joined.shards() << ", step "
            << joined.run_step() << " of "
            << joined.config().training().total_steps();
  const absl::Status status = [&]() -> absl::Status {
    const ModelLayout layout = MakeModelLayout(joined.config().model());
    ASSIGN_OR_RETURN(const FragmentMap map,
                     FragmentMap::Create(layout, joined.plan()));
    const auto config = [&joined, this] {
      v1::RunConfig own = joined.config();
      if (options_.overlap_steps.has_value()) {
        own.mutable_synchronization()->set_overlap_steps(
            *options_.overlap_steps);
      }
      return own;
    }();
    ASSIGN_OR_RETURN(SyncSchedule schedule,
                     SyncSchedule::Create(config, joined.plan()));
    progress_.SetOverlapSteps(static_cast<uint32_t>(schedule.overlap_steps()));
    // From here on the lease must be kept.
    session_.Start();
    progress_.SetActivity("loading parameters");
    ASSIGN_OR_RETURN(std::optional<IslandState> resume, TakeResume(joined));
    if (options_.checkpoints != nullptr) {
      RETURN_IF_ERROR(
          options_.checkpoints->SetProcess(options_.join.instance_id()));
    }
    uint64_t step = joined.run_step();
    // Where the island stands: at what it has joined, or at its checkpoint.
    std::vector<float> parameters;
    std::vector<float> anchors;
    std::vector<v1::FragmentHead> heads;
    std::vector<v1::IslandCheckpoint::Fragment> restored;
    if (resume.has_value()) {
      step = resume->position.run_step();
      parameters = std::move(resume->parameters);
      anchors = std::move(resume->anchors);
      for (const auto& fragment : resume->position.fragments()) {
        heads.push_back(fragment.anchor());
        restored.push_back(fragment);
      }
    } else {
      ASSIGN_OR_RETURN(parameters, StartingParameters(joined, map));
      step = joined.run_step();
      heads.assign(joined.heads().begin(), joined.heads().end());
    }
    ASSIGN_OR_RETURN(const std::unique_ptr<InnerTrainer> trainer,
                     options_.make_trainer(joined, std::move(parameters)));
    v1::JoinResponse taken_part = joined;
    *taken_part.mutable_config() = config;
    ASSIGN_OR_RETURN(std::vector<std::unique_ptr<FragmentReplica>> replica,
                     trainer->MakeReplica(taken_part));
    if (resume.has_value()) {
      RETURN_IF_ERROR(trainer->Restore(resume->trainer));
      resume.reset();
      RETURN_IF_ERROR(SetAnchors(map, anchors, replica));
      anchors = {};
    }
    FragmentSynchronizer synchronizer({.config = config.synchronization(),
                                       .schedule = std::move(schedule),
                                       .seed = options_.seed,
                                       .restored = std::move(restored),
                                       .now = options_.now},
                                      heads, std::move(replica), client_,
                                      &session_);
    RETURN_IF_ERROR(AwaitStart());
    const absl::Status trained =
        Train(joined, map, step, *trainer, synchronizer);
    // Ends the calls of the links, whose threads the synchronizer joins.
    client_->Shutdown();
    return trained;
  }();
  Leave(status);
  return status;
}

void Island::RequestLeave(absl::string_view reason) {
  session_.RequestLeave(reason);
  // Before it trains there is nothing to hand in.
  if (!training_) Stop();
}

void Island::Stop() {
  client_->Shutdown();
  session_.RequestStop();
}

absl::StatusOr<std::vector<float>> Island::StartingParameters(
    v1::JoinResponse& joined, const FragmentMap& map) {
  if (AllAtVersionZero(joined)) {
    std::vector<float> parameters = InitialParameters(
        MakeModelLayout(joined.config().model()), joined.config().seed());
    RETURN_IF_ERROR(CheckDigests(joined, map, parameters));
    return parameters;
  }
  std::vector<float> parameters(map.model_size());
  while (true) {
    const absl::Status downloaded = Download(joined, map, parameters);
    if (downloaded.ok()) return parameters;
    if (!absl::IsNotFound(downloaded)) return downloaded;
    // The run has moved on and dropped what we were told to start from.
    LOG(WARNING) << downloaded.message() << "; asking for newer versions";
    ASSIGN_OR_RETURN(joined, session_.Join());
  }
}

absl::Status Island::Download(const v1::JoinResponse& joined,
                              const FragmentMap& map,
                              std::vector<float>& parameters) {
  Backoff backoff({}, options_.seed);
  for (const v1::FragmentHead& head : joined.heads()) {
    v1::FetchParametersRequest request;
    request.set_fragment(head.fragment());
    request.set_version(head.version());
    ParametersDownload download;
    while (true) {
      *request.mutable_identity() = session_.view().identity;
      const absl::Status fetched = client_->FetchParameters(
          request, map.size(head.fragment()) * sizeof(float), download);
      if (fetched.ok()) break;
      if (!IsRetryable(fetched) || session_.view().stopping) return fetched;
      const absl::Duration pause = backoff.Next();
      LOG(WARNING) << "fetching fragment " << head.fragment() << " ("
                   << download.bytes.received().size()
                   << " bytes so far): " << fetched.message()
                   << "; next try in " << absl::FormatDuration(pause);
      const absl::Time until = options_.now() + pause;
      for (IslandView view = session_.view();
           !view.stopping && options_.now() < until;) {
        view = session_.AwaitChange(view.generation, until - options_.now());
      }
    }
    if (download.bytes.size() != map.size(head.fragment()) * sizeof(float)) {
      return absl::DataLossError(absl::StrCat(
          "fragment ", head.fragment(), " has ", map.size(head.fragment()),
          " values, but ", download.bytes.size(), " bytes came"));
    }
    std::vector<float> values(map.size(head.fragment()));
    std::memcpy(values.data(), download.bytes.received().data(),
                download.bytes.size());
    map.Scatter(head.fragment(), values, absl::MakeSpan(parameters));
    LOG(INFO) << "fetched fragment " << head.fragment() << " at version "
              << head.version() << " (" << download.bytes.size() << " bytes)";
  }
  return absl::OkStatus();
}

absl::Status Island::AwaitStart() {
  IslandView view = session_.view();
  while (view.state.run_state() == v1::WAITING_FOR_ISLANDS) {
    progress_.SetActivity("waiting for islands");
    LOG_FIRST_N(INFO, 1) << "waiting for the other islands to join";
    view = session_.AwaitChange(view.generation, absl::Seconds(1));
    if (view.stopping || view.must_leave()) {
      return absl::CancelledError("stopped before the start");
    }
    RETURN_IF_ERROR(view.failure);
  }
  return absl::OkStatus();
}

absl::Status Island::AwaitResumption() {
  IslandView view = session_.view();
  while (view.state.run_state() == v1::PAUSED && !view.stopping &&
         !view.must_leave()) {
    progress_.SetActivity("paused");
    view = session_.AwaitChange(view.generation, absl::Seconds(1));
    RETURN_IF_ERROR(view.failure);
  }
  return absl::OkStatus();
}

absl::Status Island::HandIn(FragmentSynchronizer& synchronizer) {
  const IslandView view = session_.view();
  const std::string reason = view.leaving ? view.leave_reason : "drained";
  LOG(INFO) << "leaving the run (" << reason << "): handing in what is trained";
  progress_.SetActivity("leaving");
  const absl::Status handed_in =
      synchronizer.HandIn(options_.now() + options_.leave_timeout);
  if (absl::IsOutOfRange(handed_in)) return handed_in;
  LOG_IF(WARNING, !handed_in.ok()) << handed_in.message();
  return absl::CancelledError(reason);
}

absl::Status Island::Train(const v1::JoinResponse& joined,
                           const FragmentMap& map, uint64_t first_step,
                           InnerTrainer& trainer,
                           FragmentSynchronizer& synchronizer) {
  progress_.SetSynchronizer(&synchronizer);
  const absl::Cleanup forget = [this] { progress_.SetSynchronizer(nullptr); };
  const uint64_t total_steps = joined.config().training().total_steps();
  const uint64_t round_steps =
      joined.config().synchronization().inner_steps_per_round();
  const std::string training =
      absl::StrCat("training (",
                   v1::TrainingConfig::InnerAlgorithm_Name(
                       joined.config().training().inner_algorithm()),
                   ")");
  v1::RankTrouble trouble;
  training_ = true;
  progress_.SetActivity("catching up");
  absl::StatusOr<FragmentSynchronizer::Outcome> synchronized =
      synchronizer.CatchUp(first_step);
  if (absl::IsCancelled(synchronized.status()) &&
      session_.view().must_leave()) {
    return HandIn(synchronizer);
  }
  RETURN_IF_ERROR(synchronized.status());
  FragmentSynchronizer::Outcome outcome = *synchronized;
  while (!outcome.finished) {
    RETURN_IF_ERROR(AwaitResumption());
    const IslandView view = session_.view();
    if (view.stopping) return absl::CancelledError("stopped");
    if (view.must_leave()) return HandIn(synchronizer);
    progress_.SetActivity(trouble.text().empty()
                              ? training
                              : absl::StrCat(training, "; ", trouble.text()));
    const uint64_t step = outcome.step + 1;
    InnerStepResult result;
    if (IsTrained(step, view.state.inner_steps_per_round(), round_steps) ||
        synchronizer.MustTrain(step)) {
      const absl::Time begin = options_.now();
      ASSIGN_OR_RETURN(result, trainer.Step(step));
      trouble = result.trouble;
      progress_.Record(step, total_steps, result, options_.now() - begin);
    }
    progress_.SetActivity("synchronizing");
    synchronized = synchronizer.AfterStep(step, result.tokens);
    if (absl::IsCancelled(synchronized.status()) &&
        session_.view().must_leave()) {
      return HandIn(synchronizer);
    }
    RETURN_IF_ERROR(synchronized.status());
    outcome = *synchronized;
    RETURN_IF_ERROR(
        MaybeSave(outcome.step, joined, map, trainer, synchronizer));
  }
  LOG(INFO) << "the run is finished at step " << outcome.step << "; training "
            << "stood still for "
            << absl::FormatDuration(
                   absl::Trunc(synchronizer.waited(), absl::Milliseconds(1)))
            << " in all";
  return absl::OkStatus();
}

void Island::Leave(const absl::Status& status) {
  v1::LeaveRequest request;
  *request.mutable_identity() = session_.view().identity;
  request.set_reason(status.ok() ? "finished" : std::string(status.message()));
  if (std::optional<v1::RankTrouble> trouble = RankTroubleOf(status)) {
    *request.mutable_rank_trouble() = *std::move(trouble);
  }
  session_.Stop();
  const absl::Status left = client_->Leave(request);
  LOG_IF(WARNING, !left.ok()) << "could not leave: " << left.message();
}

}  // namespace causeway
