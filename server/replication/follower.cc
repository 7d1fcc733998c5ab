// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replication/follower.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "common/backoff.h"
#include "common/status_macros.h"
#include "common/transport/grpc_status.h"
#include "common/transport/keepalive.h"
#include "glog/logging.h"
#include "server/storage/commit_log.h"
#include "server/trust/revoked.h"

namespace causeway {
namespace {

// The memory to keep of versions that are no longer read.
constexpr uint64_t kIdleBytes = 256 << 20;

std::shared_ptr<grpc::Channel> Connect(
    const std::string& leader,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments = LastingChannelArguments();
  // The leader is trusted, and changes have any size.
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(leader, credentials, arguments);
}

// Returns whether retrying cannot help.
bool IsFinal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsDataLoss(status) ||
         absl::IsPermissionDenied(status);
}

// Adds what to do about a damaged copy.
absl::Status WithRemedy(const absl::Status& damaged) {
  return absl::Status(
      damaged.code(),
      absl::StrCat(damaged.message(),
                   "; while another coordinator leads the run, following it "
                   "with an empty directory makes a new copy"));
}

}  // namespace

Follower::Follower(Options options)
    : options_(std::move(options)),
      pool_(options_.merge_threads),
      memory_(kIdleBytes, options_.evictable_state ? options_.state_dir : "") {}

absl::StatusOr<std::unique_ptr<Follower>> Follower::Open(Options options) {
  std::unique_ptr<Follower> follower(new Follower(std::move(options)));
  const absl::Status opened = follower->OpenDirectory();
  const bool has_readable_log = follower->run_.has_value();
  if ((absl::IsDataLoss(opened) && follower->is_copy_) ||
      (!has_readable_log &&
       (absl::IsDataLoss(opened) || absl::IsInternal(opened)))) {
    return WithRemedy(opened);
  }
  RETURN_IF_ERROR(opened);
  absl::MutexLock lock(&follower->mu_);
  ASSIGN_OR_RETURN(follower->revoked_,
                   ReadRevoked(follower->options_.state_dir));
  return follower;
}

Follower::~Follower() { Pause(); }

void Follower::Follow(const std::string& leader) {
  Pause();
  leader_ = leader;
  channel_ = Connect(leader, options_.credentials);
  {
    absl::MutexLock lock(&mu_);
    stopping_ = false;
    view_.leader = leader;
    view_.ended = absl::OkStatus();
  }
  thread_ = std::thread([this] { Loop(); });
}

void Follower::Pause() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  if (thread_.joinable()) thread_.join();
  absl::MutexLock lock(&mu_);
  view_.problem = absl::OkStatus();
}

absl::Status Follower::CheckCertificate(absl::string_view serial) const {
  absl::MutexLock lock(&mu_);
  return CheckNotRevoked(revoked_, serial);
}

void Follower::CloseCopy() {
  published_.Close();
  {
    absl::MutexLock lock(&mu_);
    view_.is_complete = false;
  }
  heads_ = nullptr;
}

absl::Status Follower::OfOwnDisk(const absl::Status& error) {
  if (!absl::IsPermissionDenied(error) && !absl::IsDataLoss(error)) {
    return error;
  }
  // The follower then tries as seldom as on a full disk.
  return absl::ResourceExhaustedError(error.message());
}

absl::Status Follower::OpenDirectory() {
  CloseCopy();
  state_ = nullptr;
  run_.reset();
  is_copying_ = false;
  is_discarded_ = false;
  const absl::Status opened = OpenCopy();
  // The next try opens it again. If a half-open directory stayed, the follower
  // would say that it has no copy, and get another in its place.
  if (!opened.ok()) state_ = nullptr;
  return absl::IsPermissionDenied(opened) ? OfOwnDisk(opened) : opened;
}

absl::Status Follower::OpenCopy() {
  RETURN_IF_ERROR(CreateDirectory(options_.state_dir));
  RETURN_IF_ERROR(StateDirectory::RemoveIncompleteCopy(options_.state_dir));
  ASSIGN_OR_RETURN(state_,
                   StateDirectory::Open(options_.state_dir, {.create = true}));
  RETURN_IF_ERROR(state_->log().CheckStructure());
  absl::StatusOr<RunRecord> run = state_->log().LoadRun();
  if (absl::IsNotFound(run.status())) return absl::OkStatus();
  RETURN_IF_ERROR(run.status());
  ASSIGN_OR_RETURN(const LeaderRecord leader, state_->log().LoadLeader());
  // A takeover whose outcome was unknown was made if the epoch is higher. If it
  // is not, a former leader's log has failed to become a copy.
  if (is_copy_ && !leader.is_followed && run->epoch > view().epoch) {
    NoteTakeover(run->epoch);
    absl::MutexLock lock(&mu_);
    view_.is_promoted = true;
  }
  is_copy_ = leader.is_followed;
  run->config = leader.config;
  if (!is_copy_) {
    // If a coordinator ended before the run had its first versions, there is
    // nothing to follow with: the elected leader makes them (Engine::Start).
    ASSIGN_OR_RETURN(const std::vector<CommitRecord> heads,
                     state_->log().Heads());
    if (heads.empty()) return absl::OkStatus();
  }
  run_ = *std::move(run);
  ASSIGN_OR_RETURN(
      heads_, FragmentHeads::Restore(*state_, *run_, options_.merge_threads,
                                     options_.evictable_state));
  heads_->StartSnapshots([log = &state_->log()](SnapshotRecord snapshot) {
    LogBatch batch{.snapshots = {std::move(snapshot)}};
    return log->Apply(batch);
  });
  published_.Open(state_.get(), heads_.get(), run_->run_id);
  absl::MutexLock lock(&mu_);
  view_.recorded_leader = is_copy_ ? leader.address : "";
  view_.run_id = run_->run_id;
  view_.config = run_->config;
  view_.epoch = run_->epoch;
  view_.is_complete = true;
  view_.changes = state_->log().Position().index();
  return absl::OkStatus();
}

void Follower::Loop() {
  Backoff backoff({}, options_.seed);
  while (true) {
    const absl::Status broken = FollowOnce();
    published_.Disconnect();
    absl::MutexLock lock(&mu_);
    const bool was_connected = std::exchange(view_.is_connected, false);
    // While the disk is full, do not make the leader send again all the time.
    if (was_connected && !absl::IsResourceExhausted(broken)) backoff.Reset();
    if (stopping_ || view_.is_promoted) return;
    LOG(WARNING) << "not following " << leader_ << ": " << broken;
    view_.problem = broken;
    if (IsFinal(broken)) {
      view_.ended = broken;
      return;
    }
    if (mu_.AwaitWithTimeout(absl::Condition(&stopping_), backoff.Next())) {
      return;
    }
  }
}

absl::Status Follower::FollowOnce() {
  if (state_ == nullptr || is_copying_) RETURN_IF_ERROR(OpenDirectory());
  if (state_->log().InDoubt()) {
    RETURN_IF_ERROR(OfOwnDisk(state_->log().Reconcile().status()));
    // The log may now have a change whose versions are not installed.
    RETURN_IF_ERROR(OpenDirectory());
  }
  grpc::ClientContext context;
  {
    absl::MutexLock lock(&mu_);
    if (stopping_ || view_.is_promoted) return absl::CancelledError("stopping");
    call_ = &context;
  }
  if (channel_->GetState(/*try_to_connect=*/false) ==
      GRPC_CHANNEL_TRANSIENT_FAILURE) {
    // A new channel looks the leader's name up at once. After failed look-ups,
    // gRPC pauses for up to two minutes.
    channel_ = Connect(leader_, options_.credentials);
  }
  const std::unique_ptr<Stream> stream =
      v1::Replication::NewStub(channel_)->Follow(&context);
  writer_ = std::make_unique<ChangeWriter>(
      [&](std::vector<ReceivedChange> group) {
        return WriteGroup(std::move(group), *stream);
      },
      [&] { context.TryCancel(); });
  v1::FollowResponse response;
  absl::Status handled;
  if (stream->Write(Hello())) {
    while (handled.ok() && stream->Read(&response)) {
      handled = Handle(response, *stream);
    }
  }
  if (!handled.ok()) context.TryCancel();
  const absl::Status written = writer_->Flush();
  writer_ = nullptr;
  // While an object comes, an error is of the file that it comes into.
  if (written.ok() && incoming_.has_value()) handled = OfOwnDisk(handled);
  // Remove temporary files, too, because this process may come to lead.
  ahead_.clear();
  incoming_.reset();
  log_.reset();
  records_.clear();
  // Without the new log, the old copy goes on.
  if (heads_ != nullptr) is_copying_ = false;
  const absl::Status ended = FromGrpcStatus(stream->Finish());
  {
    absl::MutexLock lock(&mu_);
    call_ = nullptr;
  }
  const absl::Status& failed = handled.ok() ? written : handled;
  // The log may be busy for long, so mu_ must be free.
  if (!failed.ok() && state_ != nullptr && state_->log().InDoubt()) {
    // The log refuses all writes until the next try reconciles it.
    return absl::UnavailableError(failed.message());
  }
  if (absl::IsPermissionDenied(failed)) return OfOwnDisk(failed);
  RETURN_IF_ERROR(handled);
  if (absl::IsDataLoss(written)) return WithRemedy(written);
  RETURN_IF_ERROR(written);
  return ended.ok() ? absl::UnavailableError("the stream ended") : ended;
}

v1::FollowRequest Follower::Hello() {
  v1::FollowRequest request;
  v1::FollowRequest::Hello& hello = *request.mutable_hello();
  hello.set_name(options_.name);
  hello.set_region(options_.region);
  hello.set_address(options_.address);
  if (heads_ == nullptr) return request;
  hello.set_run_id(run_->run_id);
  hello.set_epoch(view().epoch);
  *hello.mutable_position() = state_->log().Position();
  for (uint32_t fragment = 0; fragment < heads_->size(); ++fragment) {
    *hello.add_heads() = heads_->Newest(fragment)->contents().head;
  }
  return request;
}

absl::StatusOr<v1::PromoteResponse> Follower::Promote(
    const v1::PromoteRequest& request) {
  if (options_.is_candidate) {
    return absl::FailedPreconditionError(
        "the run's coordinators elect the one that leads (--etcd): stop the "
        "leader, and one of the others takes over automatically");
  }
  absl::MutexLock promoting(&promote_mu_);
  const View now = view();
  if (now.is_promoted) {
    return absl::FailedPreconditionError(
        "the follower has already been promoted");
  }
  if (!now.is_complete) {
    return absl::FailedPreconditionError(
        "the copy is not complete, so it cannot take over the run");
  }
  if (now.is_connected && !request.force()) {
    return absl::FailedPreconditionError(
        absl::Substitute("the coordinator at $0 is alive. Stop it first, or "
                         "set --force to replace it anyway",
                         leader_));
  }
  Pause();
  absl::StatusOr<v1::PromoteResponse> response = TakeOverPaused();
  // The run may continue at the leader, or at another follower.
  if (!response.ok()) Follow(leader_);
  return response;
}

absl::StatusOr<v1::PromoteResponse> Follower::TakeOverPaused() {
  if (heads_ == nullptr) {
    return absl::FailedPreconditionError("the copy is not complete any more");
  }
  v1::PromoteResponse response;
  ASSIGN_OR_RETURN(const uint64_t epoch, RaiseEpoch(std::nullopt));
  response.set_epoch(epoch);
  for (uint32_t fragment = 0; fragment < heads_->size(); ++fragment) {
    *response.add_heads() = heads_->Newest(fragment)->contents().head;
  }
  absl::MutexLock lock(&mu_);
  // The pause has made the changes durable that had come.
  response.set_changes_behind(view_.leader_changes -
                              std::min(view_.leader_changes, view_.changes));
  view_.is_promoted = true;
  return response;
}

OpenedRun Follower::Release() {
  Pause();
  published_.Close();
  return {std::move(state_), std::move(heads_)};
}

absl::Status Follower::TakeOver(uint64_t epoch) {
  if (heads_ == nullptr) {
    return absl::FailedPreconditionError("the copy is not complete any more");
  }
  return RaiseEpoch(epoch).status();
}

absl::StatusOr<uint64_t> Follower::RaiseEpoch(std::optional<uint64_t> epoch) {
  // If the disk refused it, the log lacks the last leader's epoch. An own log
  // is never taken over, whatever its epoch is.
  ASSIGN_OR_RETURN(const uint64_t raised,
                   state_->log().TakeOver(epoch, is_copy_ ? view().epoch : 0));
  NoteTakeover(raised);
  return raised;
}

void Follower::NoteTakeover(uint64_t epoch) {
  state_->AddFirstEvent(
      {.kind = "follower_promoted",
       .text = absl::Substitute(
           "$0 has taken the run over$1; the epoch is $2", options_.name,
           leader_.empty() ? "" : absl::StrCat(" from ", leader_), epoch)});
  absl::MutexLock lock(&mu_);
  view_.epoch = epoch;
}

}  // namespace causeway
