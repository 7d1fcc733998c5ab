// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/embedding/embedded_island.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/restated.h"
#include "common/status_macros.h"
#include "common/tensors/tensors_layout.h"
#include "common/transport/certificate_expiry.h"
#include "common/transport/enrolment.h"
#include "common/transport/identity.h"
#include "glog/logging.h"
#include "proto/coordinator.pb.h"
#include "worker/collective/culprit.h"
#include "worker/collective/rank_stamps.h"
#include "worker/collective/tcp_rendezvous.h"
#include "worker/collective/verdicts.h"
#include "worker/embedding/embedded_rank.h"
#include "worker/embedding/following_island.h"
#include "worker/embedding/rank_connection.h"
#include "worker/island_checkpoint.h"
#include "worker/sync/grpc_coordinator_client.h"
#include "worker/training/gradient_audit.h"

namespace causeway {
namespace {

// Rank 0: a member of the run.
class LeadingIsland : public EmbeddedIsland {
 public:
  explicit LeadingIsland(EmbeddedIslandOptions options)
      : options_(std::move(options)), now_(options_.connection.now) {}
  ~LeadingIsland() override {
    if (island_ != nullptr && !end_.has_value()) {
      End(absl::CancelledError("the training program has closed the island"))
          .IgnoreError();
    }
  }

  absl::Status Start() {
    if (options_.ranks > 1) {
      ASSIGN_OR_RETURN(rendezvous_, ServeRendezvous(options_));
    }
    RETURN_IF_ERROR(PrepareConnection());
    Island::Options island = options_.island;
    island.seed = options_.instance_id;
    island.join.set_instance_id(options_.instance_id);
    RETURN_IF_ERROR(OpenStates(island));
    island.now = now_;
    island.take_verdict = [verdicts =
                               Verdicts(table(), options_.ranks)]() mutable {
      return verdicts.Take();
    };
    island.make_trainer = [this](const v1::JoinResponse& /*joined*/,
                                 std::vector<float> parameters) {
      return MakeTrainer(std::move(parameters));
    };
    client_ = NewGrpcCoordinatorClient(options_.connection);
    island_ = std::make_unique<Island>(std::move(island), client_.get());
    island_->Start();
    return absl::OkStatus();
  }

  const char* leader() const override {
    return rendezvous_ == nullptr ? "" : rendezvous_->address().c_str();
  }

  absl::Status AwaitRun(absl::Duration timeout) override {
    if (end_.has_value() && !end_->ok()) return *end_;
    if (has_run()) return absl::OkStatus();
    const absl::StatusOr<const v1::JoinResponse*> joined =
        island_->AwaitRun(now_() + timeout);
    if (absl::IsDeadlineExceeded(joined.status())) return joined.status();
    if (!joined.ok()) return End(joined.status());
    RETURN_IF_ERROR(SetRun(**joined));
    return ShareRun(run(), options_.encrypt, table());
  }

  absl::Status Attach(const std::vector<TensorBuffer>& buffers) override {
    ASSIGN_OR_RETURN(
        tensors_, LocalTensors::Create(layout(), buffers, options_.ranks == 1,
                                       options_.anchors_on_device));
    ranks_deadline_ = now_() + options_.rank_timeout;
    TellRanks(Milestone::kAttached, 0, absl::OkStatus(), table());
    return absl::OkStatus();
  }

  void SetStream(void* stream) override { tensors_->SetStream(stream); }

  absl::StatusOr<std::optional<uint64_t>> NextStep(
      absl::Duration timeout) override {
    stamp_.reset();
    if (end_.has_value() && !end_->ok()) return *end_;
    if (end_.has_value()) return 0;
    const absl::Time deadline = now_() + timeout;
    // Before all ranks have attached, there is nothing to hand in.
    if (!asked_to_leave_ && attached_ < options_.ranks) {
      const absl::StatusOr<bool> all = AwaitAttached(deadline);
      if (!all.ok()) return End(all.status());
      if (!*all) return std::nullopt;
    }
    const absl::StatusOr<std::optional<uint64_t>> step =
        island_->NextStep(deadline);
    if (!step.ok() || *step == 0) {
      RETURN_IF_ERROR(End(step.status()));
      return 0;
    }
    if (!step->has_value()) return step;
    const absl::Status begun = rank_->BeginStep(**step);
    if (!begun.ok()) return End(begun);
    stamp_.emplace(0, RankLane::kTraining, RankSection::kStep);
    return step;
  }

  void Fail(const absl::Status& status) override {
    if (end_.has_value()) return;
    // The program may fail because another rank, which has said why, is gone
    // from a collective of theirs.
    const absl::Status others = OthersFailure();
    End(others.ok() ? status : others).IgnoreError();
  }
  absl::Status Failure() override {
    if (!end_.has_value() || absl::IsCancelled(*end_)) return absl::OkStatus();
    return *end_;
  }

  void Stepped(const InnerStepResult& result) override {
    stamp_.reset();
    steps_without_tokens_ = result.tokens == 0 ? steps_without_tokens_ + 1 : 0;
    // The last step of an island that leaves may be one, too.
    LOG_IF(WARNING,
           steps_without_tokens_ ==
               run().config().synchronization().inner_steps_per_round() + 1)
        << steps_without_tokens_
        << " steps were reported with 0 tokens. Until a step has some, the "
           "island sends nothing, and others wait for it";
    island_->Stepped(result);
    StampStep(0, island_->Step());
  }

  void SettleFirst() override { island_->SettleFirst(); }

  void RequestLeave(absl::string_view reason) override {
    asked_to_leave_ = true;
    island_->RequestLeave(reason);
  }
  absl::StatusOr<v1::IslandProgress> Progress() override {
    return island_->Progress();
  }
  std::string Activity() const override {
    if (has_run() && attached_ < options_.ranks) return "waiting for its ranks";
    return island_->Activity();
  }
  absl::Duration Waited() const override { return island_->Waited(); }
  absl::Status ReadMerged(absl::Span<float> model) override {
    RETURN_IF_ERROR(CheckBegun());
    return Checked(island_->ReadAnchors(model));
  }

  absl::Status Save(const std::string& directory) override {
    RETURN_IF_ERROR(CheckBegun());
    const absl::StatusOr<IslandState> state = island_->State();
    RETURN_IF_ERROR(Checked(state.status()));
    std::error_code missing;
    if (std::filesystem::equivalent(directory, options_.checkpoint_directory,
                                    missing)) {
      return checkpoints_->Save(*state);
    }
    ASSIGN_OR_RETURN(const auto store, IslandCheckpointStore::Open(directory));
    return store->Save(*state);
  }

 private:
  // Enrols, and makes the connection's credentials.
  absl::Status PrepareConnection() {
    const std::string& address = options_.connection.address;
    const Clock wall_clock = WallClock();
    if (!options_.join_token.empty()) {
      RETURN_IF_ERROR(EnrolOnce(
          address, options_.join_token, options_.island.join.island_id(),
          options_.tls.tls, wall_clock, options_.instance_id,
          [](absl::Duration) { return false; }));
    }
    if (!options_.tls.tls.empty()) {
      ASSIGN_OR_RETURN(const Identity identity,
                       FolderIdentity(options_.tls.tls, wall_clock()));
      v1::JoinRequest& join = options_.island.join;
      if (join.island_id().empty()) join.set_island_id(identity.name);
      renewer_.emplace(address, options_.tls.tls, wall_clock,
                       options_.instance_id);
    }
    ASSIGN_OR_RETURN(options_.connection.credentials,
                     MakeChannelCredentials(options_.tls, wall_clock()));
    certificate_.emplace(options_.tls.CertificatePath(), wall_clock);
    certificate_watch_.emplace(&*certificate_);
    options_.connection.tls = options_.tls.UsesTls();
    return absl::OkStatus();
  }

  // Opens the island's own checkpoints, and the state to continue from.
  absl::Status OpenStates(Island::Options& island) {
    std::optional<IslandState> state;
    // The lock proves that the process of the own checkpoint is dead. One that
    // saved a state to resume from may live, so it is not replaced: the own id
    // only says that this process continues from a checkpoint.
    uint64_t replaced = 0;
    if (!options_.checkpoint_directory.empty()) {
      ASSIGN_OR_RETURN(checkpoints_, IslandCheckpointStore::Open(
                                         options_.checkpoint_directory));
      ASSIGN_OR_RETURN(state, checkpoints_->Load());
      if (state.has_value()) replaced = state->position.instance_id();
      island.checkpoints = checkpoints_.get();
    }
    if (!options_.resume_directory.empty()) {
      ASSIGN_OR_RETURN(
          state, IslandCheckpointStore::LoadFrom(options_.resume_directory));
      if (!state.has_value()) {
        return absl::NotFoundError(absl::StrCat(options_.resume_directory,
                                                " has no state of an island"));
      }
    }
    if (!state.has_value()) return absl::OkStatus();
    island.join.set_replaces_instance_id(replaced == 0 ? options_.instance_id
                                                       : replaced);
    island.join.set_saved_by(state->saved_by);
    island.resume = std::make_shared<IslandState>(*std::move(state));
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeTrainer(
      std::vector<float> parameters) {
    TellRanks(Milestone::kBegun, 0, absl::OkStatus(), table());
    ASSIGN_OR_RETURN(RankCommunicators communicators,
                     ConnectRanks(options_, table()));
    ASSIGN_OR_RETURN(
        std::unique_ptr<EmbeddedRank> rank,
        EmbeddedRank::Create(
            layout(), &*tensors_, std::move(communicators), Pulse(options_),
            // This also ends any wait of the island.
            [island = island_.get()](const absl::Status& failure) {
              island->Fail(failure);
            }));
    RETURN_IF_ERROR(rank->ShareParameters(std::move(parameters)));
    rank_ = rank.get();
    return rank;
  }

  Rendezvous* table() {
    return rendezvous_ == nullptr ? &alone_ : rendezvous_->table();
  }

  // Returns whether all ranks have attached their tensors, for which it waits
  // until `deadline`. The ranks have time until ranks_deadline_.
  absl::StatusOr<bool> AwaitAttached(absl::Time deadline) {
    for (; attached_ < options_.ranks; ++attached_) {
      const absl::Duration left = std::min(deadline, ranks_deadline_) - now_();
      const absl::Status said =
          AwaitRank(Milestone::kAttached, attached_,
                    std::max(left, absl::ZeroDuration()), table());
      if (absl::IsDeadlineExceeded(said)) {
        if (now_() < ranks_deadline_) return false;
        return NotAttached(attached_, options_.rank_timeout);
      }
      if (absl::IsCancelled(said)) {
        return absl::AbortedError(
            absl::StrCat("rank ", attached_, " has ended: ", said.message()));
      }
      RETURN_IF_ERROR(said);
    }
    return true;
  }

  // Returns the failures that the other ranks have reported, if any.
  absl::Status OthersFailure() {
    for (int rank = 1; rank < options_.ranks; ++rank) {
      const absl::Status said =
          AwaitRank(Milestone::kAttached, rank, absl::ZeroDuration(), table());
      if (absl::IsAborted(said)) return said;
    }
    return CheckGivenUp(options_.ranks, table());
  }

  absl::Status CheckBegun() const {
    if (rank_ != nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "the island has no parameters yet: causeway_next_step loads them");
  }

  // Returns `status`; ends the island if a rank is to blame.
  absl::Status Checked(const absl::Status& status) {
    const bool goes_on = status.ok() || rank_->failure().ok();
    return goes_on || end_.has_value() ? status : End(status);
  }

  // Leaves the run because of `status`; returns the status to report.
  absl::Status End(const absl::Status& status) {
    const bool in_order = status.ok() || absl::IsCancelled(status);
    end_ = has_run() ? FinalError(status) : status;
    // The ranks' common work must not delay the end.
    if (!in_order && rank_ != nullptr) rank_->Fail(status);
    // The ranks hear this during the leave; the program may close the table
    // right after that.
    if (rank_ == nullptr) TellEnd();
    island_->End(status);
    if (absl::IsOutOfRange(status) || IsFoundByAudit(status)) DropCheckpoint();
    renewer_.reset();
    certificate_watch_.reset();
    if (rank_ != nullptr && in_order) {
      rank_
          ->BeginStep(status.ok() ? EmbeddedRank::kFinished
                                  : EmbeddedRank::kLeft)
          .IgnoreError();
    }
    return *end_;
  }

  // Tells the other ranks, which are not connected yet, to stop waiting.
  void TellEnd() {
    const absl::Status end =
        end_->ok() ? absl::CancelledError("the run is finished") : *end_;
    if (!has_run()) ShareNoRun(end, table());
    TellRanks(tensors_.has_value() ? Milestone::kBegun : Milestone::kAttached,
              0, end, table());
  }

  // The coordinator lets no process continue from the checkpoint of an island
  // that diverged. After an audit, the checkpoint has wrong numbers.
  void DropCheckpoint() {
    if (checkpoints_ == nullptr) return;
    const absl::Status removed = checkpoints_->Remove();
    LOG_IF(ERROR, !removed.ok())
        << "remove the island's checkpoint before it starts again: "
        << removed.message();
  }

  EmbeddedIslandOptions options_;
  const Clock now_;
  std::unique_ptr<RendezvousServer> rendezvous_;
  // The table of an island with one rank.
  LocalRendezvous alone_;
  std::optional<CertificateRenewer> renewer_;
  std::optional<CertificateExpiry> certificate_;
  std::optional<CertificateWatch> certificate_watch_;
  std::unique_ptr<IslandCheckpointStore> checkpoints_;
  std::unique_ptr<CoordinatorClient> client_;
  std::optional<LocalTensors> tensors_;
  std::unique_ptr<Island> island_;
  // Owned by the island.
  EmbeddedRank* rank_ = nullptr;
  // Ranks below this number have attached their tensors; the others have a
  // deadline.
  int attached_ = 1;
  absl::Time ranks_deadline_;
  // Set while the training loop is in a step.
  std::optional<RankSectionScope> stamp_;
  std::atomic<bool> asked_to_leave_ = false;
  // The number of steps with 0 tokens since the last one with more.
  uint64_t steps_without_tokens_ = 0;
  // The status with which the island has ended, if it has.
  std::optional<absl::Status> end_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<EmbeddedIsland>> EmbeddedIsland::Open(
    EmbeddedIslandOptions options) {
  if (options.rank > 0) return FollowingIsland::Open(options);
  auto island = std::make_unique<LeadingIsland>(std::move(options));
  RETURN_IF_ERROR(island->Start());
  return island;
}

absl::Status EmbeddedIsland::FinalError(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnavailable:
      return Restated(status, absl::StatusCode::kAborted, status.message());
    case absl::StatusCode::kInvalidArgument:
      return Restated(status, absl::StatusCode::kFailedPrecondition,
                      status.message());
    default:
      return status;
  }
}

absl::Status EmbeddedIsland::SetRun(v1::JoinResponse run) {
  ASSIGN_OR_RETURN(layout_, RunLayout(run.config(), run.plan()));
  run_ = std::move(run);
  return absl::OkStatus();
}

}  // namespace causeway
