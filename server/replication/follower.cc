// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replication/follower.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "common/backoff.h"
#include "common/checksum.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "outer_optimizer/outer_step.h"
#include "server/fragment_merge.h"
#include "server/storage/commit_log.h"

namespace causeway {
namespace {

// The memory of versions that are no longer read.
constexpr uint64_t kIdleBytes = 256 << 20;

std::shared_ptr<grpc::Channel> Connect(
    const std::string& leader,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  // A new leader at the address of one that was lost should be dialled at once,
  // and not when it is the turn of a connection that has failed before.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  // The leader is trusted, and changes have any size.
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(leader, credentials, arguments);
}

// Returns whether retrying cannot help.
bool IsFinal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsDataLoss(status) ||
         absl::IsPermissionDenied(status);
}

// Adds what to do about a copy that is damaged.
absl::Status WithRemedy(const absl::Status& damaged) {
  return absl::Status(
      damaged.code(),
      absl::StrCat(damaged.message(),
                   "; as long as another coordinator leads the run, an empty "
                   "directory gets another copy"));
}

absl::Status NotSent(absl::string_view what) {
  return absl::InternalError(
      absl::StrCat("the coordinator that is followed sends ", what));
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
  return follower;
}

Follower::~Follower() { Pause(); }

void Follower::Follow(const std::string& leader) {
  Pause();
  leader_ = leader;
  stub_ = v1::Replication::NewStub(Connect(leader, options_.credentials));
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
}

Follower::View Follower::view() const {
  absl::MutexLock lock(&mu_);
  return view_;
}

absl::Status Follower::CheckCertificate(absl::string_view serial) const {
  absl::MutexLock lock(&mu_);
  if (absl::c_none_of(revoked_.ids(), [&](const std::string& id) {
        return absl::StartsWith(serial, id);
      })) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      "this certificate was revoked; enrol with a new token of an operator "
      "(causeway token create)");
}

absl::Status Follower::OpenDirectory() {
  published_.Close();
  heads_ = nullptr;
  state_ = nullptr;
  run_.reset();
  is_copying_ = false;
  RETURN_IF_ERROR(CreateDirectory(options_.state_dir));
  RETURN_IF_ERROR(StateDirectory::RemoveIncompleteCopy(options_.state_dir));
  ASSIGN_OR_RETURN(state_,
                   StateDirectory::Open(options_.state_dir, {.create = true}));
  RETURN_IF_ERROR(state_->log().CheckStructure());
  absl::StatusOr<RunRecord> run = state_->log().LoadRun();
  if (absl::IsNotFound(run.status())) return absl::OkStatus();
  RETURN_IF_ERROR(run.status());
  ASSIGN_OR_RETURN(const LeaderRecord leader, state_->log().LoadLeader());
  is_copy_ = leader.is_followed;
  if (is_copy_) run->config = leader.config;
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
    // While the disk is full, the leader should not send again all the time.
    if (was_connected && !absl::IsResourceExhausted(broken)) backoff.Reset();
    if (stopping_) return;
    LOG(WARNING) << "not following " << leader_ << ": " << broken;
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
  ahead_.clear();
  incoming_.reset();
  if (is_copying_) RETURN_IF_ERROR(OpenDirectory());
  if (state_->log().InDoubt()) {
    RETURN_IF_ERROR(state_->log().Reconcile().status());
  }
  grpc::ClientContext context;
  {
    absl::MutexLock lock(&mu_);
    if (stopping_) return absl::CancelledError("stopping");
    call_ = &context;
  }
  const std::unique_ptr<Stream> stream = stub_->Follow(&context);
  v1::FollowResponse response;
  absl::Status handled;
  if (stream->Write(Hello())) {
    while (handled.ok() && stream->Read(&response)) {
      handled = Handle(response, *stream);
    }
  }
  if (!handled.ok()) context.TryCancel();
  const absl::Status ended = FromGrpcStatus(stream->Finish());
  absl::MutexLock lock(&mu_);
  call_ = nullptr;
  if (!handled.ok()) return handled;
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

absl::Status Follower::Handle(const v1::FollowResponse& response,
                              Stream& stream) {
  switch (response.payload_case()) {
    case v1::FollowResponse::kRun:
      return TakeRun(response.run());
    case v1::FollowResponse::kObject:
      return BeginObject(response.object());
    case v1::FollowResponse::kChunk:
      return TakeChunk(response.chunk());
    case v1::FollowResponse::kChange:
      return TakeChange(response.change(), stream);
    case v1::FollowResponse::kPublished:
      published_.Publish(response.published());
      return absl::OkStatus();
    case v1::FollowResponse::kRevoked: {
      absl::MutexLock lock(&mu_);
      revoked_ = response.revoked();
      return absl::OkStatus();
    }
    case v1::FollowResponse::PAYLOAD_NOT_SET:
      break;
  }
  return NotSent("what this version does not know");
}

absl::Status Follower::TakeRun(const v1::FollowedRun& run) {
  {
    absl::MutexLock lock(&mu_);
    if (heads_ != nullptr && !is_copy_ && run.epoch() <= view_.epoch) {
      return absl::FailedPreconditionError(absl::Substitute(
          "state directory $0 is that of a coordinator of run $1, and the one "
          "at $2 has not replaced it: give the follower a directory of its own",
          options_.state_dir, run_->run_id, leader_));
    }
    if (run.epoch() < view_.epoch) {
      return absl::UnavailableError(absl::Substitute(
          "the coordinator at $0 was replaced: it has epoch $1, and this copy "
          "has $2",
          leader_, run.epoch(), view_.epoch));
    }
    view_.run_id = run.run_id();
    view_.config = run.config();
    view_.epoch = run.epoch();
    view_.leader_changes = run.position().index();
    view_.is_connected = true;
  }
  published_.Connect(run.epoch());
  LOG(INFO) << "following run " << run.run_id() << " at " << leader_
            << ", epoch " << run.epoch();
  if (heads_ == nullptr) return absl::OkStatus();
  run_->config = run.config();
  is_copy_ = true;
  return state_->log().Follow(
      {.is_followed = true, .address = leader_, .config = run.config()});
}

absl::Status Follower::BeginCopy() {
  if (is_copying_) return absl::OkStatus();
  {
    absl::MutexLock lock(&mu_);
    view_.is_complete = false;
  }
  RETURN_IF_ERROR(state_->BeginCopy());
  is_copying_ = true;
  states_.clear();
  published_.Close();
  heads_ = nullptr;
  return absl::OkStatus();
}

absl::Status Follower::BeginObject(const v1::ReplicatedObject& object) {
  if (incoming_.has_value()) return NotSent("an object within another");
  Incoming& incoming = incoming_.emplace();
  incoming.description = object;
  const v1::FragmentHead& head = object.head();
  switch (object.kind()) {
    case v1::ReplicatedObject::LOG: {
      RETURN_IF_ERROR(BeginCopy());
      ASSIGN_OR_RETURN(AtomicFileWriter file,
                       AtomicFileWriter::Create(state_->ReceivedLog()));
      incoming.file.emplace(std::move(file));
      return absl::OkStatus();
    }
    case v1::ReplicatedObject::MERGE: {
      ASSIGN_OR_RETURN(
          AtomicFileWriter file,
          state_->merges().BeginFile(head.fragment(), head.version()));
      incoming.file.emplace(std::move(file));
      return absl::OkStatus();
    }
    case v1::ReplicatedObject::STATE:
      return BeginState(object);
    default:
      return NotSent("an object of a kind that this version does not know");
  }
}

absl::Status Follower::BeginState(const v1::ReplicatedObject& object) {
  RETURN_IF_ERROR(BeginCopy());
  RETURN_IF_ERROR(state_->RemoveFragment(object.head().fragment()));
  FragmentContents like{.head = object.head()};
  OuterStepOptions step;
  {
    absl::MutexLock lock(&mu_);
    like.run_id = view_.run_id;
    step = MakeOuterStepOptions(view_.config, v1::Fragment());
  }
  const bool has[] = {true, HasMomentum(step), HasResidual(step),
                      HasGradientSum(step)};
  const uint64_t parts = std::count(std::begin(has), std::end(has), true);
  if (object.bytes() == 0 || object.bytes() % (parts * sizeof(float)) != 0) {
    return NotSent("a state of another size than its parts have");
  }
  const uint64_t size = object.bytes() / parts / sizeof(float);
  // Only the sizes of these tensors matter.
  const auto tensor = [&](bool is_there) {
    return absl::MakeConstSpan(static_cast<const float*>(nullptr),
                               is_there ? size : 0);
  };
  like.theta = tensor(has[0]);
  like.momentum = tensor(has[1]);
  like.residual = tensor(has[2]);
  like.gradient_sum = tensor(has[3]);
  ASSIGN_OR_RETURN(NewFragment state, state_->fragments().BeginFragment(like));
  Incoming& incoming = *incoming_;
  incoming.state.emplace(std::move(state));
  for (const absl::Span<float> values :
       {incoming.state->theta, incoming.state->momentum,
        incoming.state->residual, incoming.state->gradient_sum}) {
    incoming.parts.push_back({reinterpret_cast<char*>(values.data()),
                              values.size() * sizeof(float)});
  }
  return absl::OkStatus();
}

absl::Status Follower::TakeChunk(const v1::Chunk& chunk) {
  if (!incoming_.has_value()) return NotSent("a chunk of no object");
  Incoming& incoming = *incoming_;
  absl::string_view data = chunk.data();
  if (chunk.offset() != incoming.received || data.empty() ||
      data.size() > incoming.description.bytes() - incoming.received) {
    return NotSent("a chunk in the wrong place");
  }
  if (Crc32c(data) != chunk.crc32c()) {
    return absl::UnavailableError("a chunk was damaged on its way");
  }
  incoming.received += data.size();
  if (incoming.file.has_value()) {
    RETURN_IF_ERROR(incoming.file->Append(data));
  } else {
    while (!data.empty()) {
      absl::Span<char>& part = incoming.parts.front();
      const size_t bytes = std::min(part.size(), data.size());
      std::copy_n(data.data(), bytes, part.data());
      part.remove_prefix(bytes);
      data.remove_prefix(bytes);
      if (part.empty()) incoming.parts.erase(incoming.parts.begin());
    }
  }
  return incoming.received == incoming.description.bytes() ? EndObject()
                                                           : absl::OkStatus();
}

absl::Status Follower::EndObject() {
  Incoming incoming = *std::exchange(incoming_, std::nullopt);
  const v1::FragmentHead& head = incoming.description.head();
  if (incoming.file.has_value()) {
    RETURN_IF_ERROR(incoming.file->Commit());
    return incoming.description.kind() == v1::ReplicatedObject::MERGE &&
                   !is_copying_
               ? Repeat(head)
               : absl::OkStatus();
  }
  SnapshotRecord snapshot{.head = head};
  ASSIGN_OR_RETURN(snapshot.file,
                   state_->fragments().CommitFragment(
                       *std::move(incoming.state), snapshot.head));
  if (snapshot.head.digest() != head.digest()) {
    return NotSent("a state that is not the committed one");
  }
  states_[head.fragment()] = std::move(snapshot);
  return absl::OkStatus();
}

absl::Status Follower::Repeat(const v1::FragmentHead& head) {
  const uint32_t fragment = head.fragment();
  if (fragment >= heads_->size()) return NotSent("a record of no fragment");
  const std::shared_ptr<const StoredFragment> before = heads_->Newest(fragment);
  if (head.version() != before->contents().head.version() + 1) {
    return NotSent("records out of order");
  }
  ASSIGN_OR_RETURN(const StoredMerge stored,
                   state_->merges().Open(fragment, head.version()));
  ASSIGN_OR_RETURN(
      MergedFragment merged,
      RepeatMerge(run_->plan, stored, before->contents(), memory_, pool_));
  std::string difference = Difference(stored.merge(), merged);
  if (difference.empty() && stored.merge().head().digest() != head.digest()) {
    difference = "the record is not that of the committed version";
  }
  if (!difference.empty()) {
    return absl::DataLossError(absl::Substitute(
        "the outer step to version $0 of fragment $1 gives other values here "
        "than at $2: $3. One of the two machines computes or keeps wrong "
        "values: run `causeway replay` on both state directories",
        head.version(), fragment, leader_, difference));
  }
  RETURN_IF_ERROR(
      WriteUpdateOf(
          state_->fragments(),
          MakeOuterStepOptions(run_->config,
                               run_->plan.fragments(static_cast<int>(fragment)))
              .downlink,
          merged)
          .status());
  ASSIGN_OR_RETURN(const uint64_t bytes,
                   state_->merges().Size(fragment, head.version()));
  ahead_.insert_or_assign(fragment, Ahead{std::move(merged.after), bytes});
  return absl::OkStatus();
}

absl::Status Follower::TakeChange(const v1::LogChange& change, Stream& stream) {
  const uint64_t index = change.position().index();
  if (!change.rows().empty()) {
    if (is_copying_) return NotSent("changes of a log before the log");
    const absl::Status applied =
        state_->log().ApplyChange(change, view().epoch);
    if (absl::IsDataLoss(applied)) return WithRemedy(applied);
    RETURN_IF_ERROR(applied);
  } else if (is_copying_) {
    RETURN_IF_ERROR(EndCopy());
  }
  for (const v1::FragmentHead& head : change.commits()) {
    const auto ahead = ahead_.find(head.fragment());
    if (ahead == ahead_.end() ||
        ahead->second.after.contents().head.version() != head.version()) {
      return NotSent("a version without the record of its merge");
    }
    heads_->Install(std::move(ahead->second.after), ahead->second.record_bytes);
    ahead_.erase(ahead);
  }
  if (change.commits_size() > 0) published_.Added();
  {
    absl::MutexLock lock(&mu_);
    view_.changes = index;
    if (change.rows().empty()) view_.is_complete = true;
    view_.leader_changes = std::max(view_.leader_changes, index);
  }
  v1::FollowRequest request;
  request.set_durable_index(index);
  // If the stream is broken, reading says why.
  stream.Write(request);
  return absl::OkStatus();
}

absl::Status Follower::EndCopy() {
  const std::string received = state_->ReceivedLog();
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<CommitLog> log,
                     CommitLog::Open(received));
    RETURN_IF_ERROR(log->Follow(
        {.is_followed = true, .address = leader_, .config = view().config}));
    ASSIGN_OR_RETURN(const RunRecord run, log->LoadRun());
    for (const v1::Fragment& fragment : run.plan.fragments()) {
      const auto state = states_.find(fragment.id());
      std::vector<SnapshotRecord> snapshots;
      if (state != states_.end()) {
        snapshots = {state->second};
      } else {
        ASSIGN_OR_RETURN(snapshots, state_->log().Snapshots(
                                        fragment.id(),
                                        std::numeric_limits<uint64_t>::max()));
      }
      RETURN_IF_ERROR(log->ReplaceSnapshots(fragment.id(), snapshots));
    }
  }
  state_ = nullptr;
  RETURN_IF_ERROR(StateDirectory::EndCopy(options_.state_dir, received));
  RETURN_IF_ERROR(OpenDirectory());
  LOG(INFO) << "the copy of run " << run_->run_id << " is complete";
  return absl::OkStatus();
}

absl::StatusOr<v1::PromoteResponse> Follower::Promote(
    const v1::PromoteRequest& request) {
  absl::MutexLock promoting(&promote_mu_);
  const View now = view();
  if (now.is_promoted) {
    return absl::FailedPreconditionError("the follower is promoted already");
  }
  if (!now.is_complete) {
    return absl::FailedPreconditionError(
        "the copy is not complete, so the run cannot go on from it");
  }
  if (now.is_connected && !request.force()) {
    return absl::FailedPreconditionError(absl::Substitute(
        "the coordinator at $0 is alive. Stop it first; or, if it must be "
        "replaced nevertheless, set --force",
        leader_));
  }
  Pause();
  if (heads_ == nullptr) {
    return absl::FailedPreconditionError("the copy is not complete any more");
  }
  v1::PromoteResponse response;
  ASSIGN_OR_RETURN(const uint64_t epoch, RaiseEpoch(std::nullopt));
  response.set_epoch(epoch);
  for (uint32_t fragment = 0; fragment < heads_->size(); ++fragment) {
    *response.add_heads() = heads_->Newest(fragment)->contents().head;
  }
  response.set_changes_behind(now.leader_changes -
                              std::min(now.leader_changes, now.changes));
  absl::MutexLock lock(&mu_);
  view_.is_promoted = true;
  return response;
}

OpenedRun Follower::Release() {
  Pause();
  published_.Close();
  return {std::move(state_), std::move(heads_)};
}

absl::Status Follower::TakeOver(uint64_t epoch) {
  return RaiseEpoch(epoch).status();
}

absl::StatusOr<uint64_t> Follower::RaiseEpoch(std::optional<uint64_t> epoch) {
  ASSIGN_OR_RETURN(const uint64_t raised, state_->log().TakeOver(epoch));
  LogBatch batch;
  batch.events.push_back(
      {.time = options_.now(),
       .kind = "follower_promoted",
       .text = absl::Substitute(
           "$0 has taken the run over$1; the epoch is $2", options_.name,
           leader_.empty() ? "" : absl::StrCat(" from ", leader_), raised)});
  RETURN_IF_ERROR(state_->log().Apply(batch));
  absl::MutexLock lock(&mu_);
  view_.epoch = raised;
  return raised;
}

}  // namespace causeway
