// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Follower that handles what the leader sends.
#include <algorithm>
#include <chrono>
#include <future>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "outer_optimizer/outer_step.h"
#include "quantization/codec_config.h"
#include "server/footprint.h"
#include "server/fragment_merge.h"
#include "server/replication/follower.h"
#include "server/storage/commit_log.h"
#include "server/storage/merge_store.h"
#include "server/trust/revoked.h"

namespace causeway {
namespace {

// The leader counts a follower that says nothing for LogFeed::kBehindAfter as
// behind.
constexpr std::chrono::seconds kSayEvery(1);

absl::Status NotSent(absl::string_view what) {
  return absl::InternalError(
      absl::StrCat("the followed coordinator sent ", what));
}

}  // namespace

absl::Status Follower::Handle(v1::FollowResponse& response, Stream& stream) {
  switch (response.payload_case()) {
    case v1::FollowResponse::kRun:
      return TakeRun(response.run());
    case v1::FollowResponse::kObject:
      return BeginObject(response.object());
    case v1::FollowResponse::kChunk:
      return TakeChunk(response.chunk(), stream);
    case v1::FollowResponse::kChange:
      if (response.change().rows().empty()) {
        RETURN_IF_ERROR(EndCatchUp());
        Acknowledge(response.change().position().index(), stream);
        return absl::OkStatus();
      }
      return TakeChange(std::move(*response.mutable_change()));
    case v1::FollowResponse::kPublished:
      published_.Publish(response.published());
      return absl::OkStatus();
    case v1::FollowResponse::kRevoked: {
      {
        absl::MutexLock lock(&mu_);
        revoked_ = response.revoked();
      }
      return OfOwnDisk(WriteRevoked(options_.state_dir, response.revoked()));
    }
    case v1::FollowResponse::PAYLOAD_NOT_SET:
      break;
  }
  return NotSent("a message that this version does not know");
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
    // The leader of an epoch has each change first. A restored one that goes on
    // may soon count more changes than it lost.
    is_ahead_ = heads_ != nullptr && run.epoch() == caught_up_epoch_ &&
                (is_ahead_ || run.position().index() < view_.changes);
    if (is_ahead_) {
      return absl::UnavailableError(absl::Substitute(
          "the coordinator at $0 has an older log than this copy: was its "
          "state directory restored? Promote this follower, or give it an "
          "empty directory to follow that log",
          leader_));
    }
    view_.run_id = run.run_id();
    view_.config = run.config();
    view_.epoch = run.epoch();
    view_.leader_changes = run.position().index();
    view_.is_connected = true;
  }
  published_.Connect(run.epoch(), DownlinkSpec(run.config().synchronization()));
  LOG(INFO) << "following run " << run.run_id() << " at " << leader_
            << ", epoch " << run.epoch();
  if (heads_ == nullptr) return absl::OkStatus();
  run_->config = run.config();
  is_copy_ = true;
  return state_->log().Follow(
      {.is_followed = true, .address = leader_, .config = run.config()},
      run.epoch());
}

absl::Status Follower::BeginCopy() {
  if (is_copying_) return absl::OkStatus();
  RETURN_IF_ERROR(writer_->Flush());
  is_copying_ = true;
  states_.clear();
  return absl::OkStatus();
}

absl::Status Follower::DiscardCopy() {
  if (is_discarded_) return absl::OkStatus();
  CloseCopy();
  RETURN_IF_ERROR(state_->BeginCopy());
  is_discarded_ = true;
  RETURN_IF_ERROR(AtomicFileWriter::CommitAll(absl::MakeSpan(records_)));
  records_.clear();
  return absl::OkStatus();
}

absl::Status Follower::BeginObject(const v1::ReplicatedObject& object) {
  if (incoming_.has_value()) return NotSent("an object within another");
  Incoming& incoming = incoming_.emplace(Incoming());
  incoming.description = object;
  const v1::FragmentHead& head = object.head();
  switch (object.kind()) {
    case v1::ReplicatedObject::LOG: {
      RETURN_IF_ERROR(BeginCopy());
      // Both files would have the same temporary name.
      log_.reset();
      ASSIGN_OR_RETURN(AtomicFileWriter file,
                       AtomicFileWriter::Create(state_->ReceivedLog()));
      incoming.file.emplace(std::move(file));
      return absl::OkStatus();
    }
    case v1::ReplicatedObject::MERGE: {
      // Both files would have the same temporary name.
      ahead_.erase(head.fragment());
      ASSIGN_OR_RETURN(
          AtomicFileWriter file,
          state_->merges().BeginFile(head.fragment(), head.version()));
      incoming.file.emplace(std::move(file));
      said_at_ = now_();
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
  RETURN_IF_ERROR(DiscardCopy());
  RETURN_IF_ERROR(state_->RemoveFragment(object.head().fragment()));
  const View leading = view();
  const auto value_bytes =
      static_cast<uint64_t>(StateBytesPerValue(leading.config));
  if (object.bytes() == 0 || object.bytes() % value_bytes != 0) {
    return NotSent("a state whose size is not that of its parts");
  }
  FragmentContents like =
      ContentsOfSize(MakeOuterStepOptions(leading.config, v1::Fragment()),
                     leading.run_id, object.bytes() / value_bytes);
  like.head = object.head();
  ASSIGN_OR_RETURN(NewFragment state, state_->fragments().BeginFragment(like));
  incoming_->state.emplace(std::move(state));
  return absl::OkStatus();
}

absl::Status Follower::TakeChunk(const v1::Chunk& chunk, Stream& stream) {
  if (!incoming_.has_value()) return NotSent("a chunk without an object");
  Incoming& incoming = *incoming_;
  const absl::string_view data = chunk.data();
  if (chunk.offset() != incoming.received || data.empty() ||
      data.size() > incoming.description.bytes() - incoming.received) {
    return NotSent("a chunk in the wrong place");
  }
  if (Crc32c(data) != chunk.crc32c()) {
    return absl::UnavailableError("a chunk was damaged on its way");
  }
  incoming.received += data.size();
  // The syncs of a large record, during which a follower shows no sign of work,
  // must find little to write.
  RETURN_IF_ERROR(incoming.file.has_value()
                      ? incoming.file->AppendWithWriteback(data)
                      : incoming.state->Append(data));
  // No version waits for a copy.
  if (!is_copying_) SayAtWork(stream);
  return incoming.received == incoming.description.bytes() ? EndObject(stream)
                                                           : absl::OkStatus();
}

absl::Status Follower::EndObject(Stream& stream) {
  Incoming incoming = *std::exchange(incoming_, std::nullopt);
  const v1::FragmentHead& head = incoming.description.head();
  if (incoming.description.kind() == v1::ReplicatedObject::LOG) {
    log_.emplace(*std::move(incoming.file));
    return absl::OkStatus();
  }
  if (incoming.file.has_value()) {
    return is_copying_ ? KeepRecord(*std::move(incoming.file))
                       : Repeat(head, *std::move(incoming.file), stream);
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

absl::Status Follower::KeepRecord(AtomicFileWriter record) {
  if (is_discarded_) return record.Commit();
  record.StartWriteback();
  records_.push_back(std::move(record));
  // Each takes a descriptor.
  return records_.size() < kMostKeptRecords ? absl::OkStatus() : DiscardCopy();
}

absl::Status Follower::Repeat(const v1::FragmentHead& head,
                              AtomicFileWriter record, Stream& stream) {
  record.StartWriteback();
  const uint32_t fragment = head.fragment();
  if (fragment >= heads_->size()) {
    return NotSent("a record of a fragment that the run does not have");
  }
  std::shared_ptr<const StoredFragment> before = heads_->Newest(fragment);
  if (head.version() > before->contents().head.version() + 1) {
    // The previous version is being written.
    RETURN_IF_ERROR(writer_->Flush());
    before = heads_->Newest(fragment);
  }
  if (head.version() != before->contents().head.version() + 1) {
    return NotSent("records out of order");
  }
  // Another thread makes the version, so that this one can say so.
  std::future<absl::StatusOr<MergedFragment>> making =
      std::async(std::launch::async,
                 [&] { return MakeVersion(head, record, before->contents()); });
  while (making.wait_for(kSayEvery) != std::future_status::ready) {
    SayAtWork(stream);
  }
  ASSIGN_OR_RETURN(MergedFragment merged, making.get());
  ahead_.emplace(fragment, ReceivedVersion{.after = std::move(merged.after),
                                           .update = std::move(merged.update),
                                           .record = std::move(record),
                                           .duration = merged.duration});
  return absl::OkStatus();
}

absl::StatusOr<MergedFragment> Follower::MakeVersion(
    const v1::FragmentHead& head, const AtomicFileWriter& record,
    const FragmentContents& before) {
  ASSIGN_OR_RETURN(const StoredMerge stored, MergeStore::Open(record));
  ASSIGN_OR_RETURN(MergedFragment merged,
                   RepeatMerge(run_->plan, stored, before, memory_, pool_));
  std::string difference = Difference(stored.merge(), merged);
  if (difference.empty() && stored.merge().head().digest() != head.digest()) {
    difference = "the record is not that of the committed version";
  }
  if (!difference.empty()) {
    return absl::DataLossError(absl::Substitute(
        "the outer step to version $0 of fragment $1 gives other values here "
        "than at $2: $3. One of the two machines computes or keeps wrong "
        "values: run `causeway replay` on both state directories",
        head.version(), head.fragment(), leader_, difference));
  }
  return merged;
}

absl::Status Follower::TakeChange(v1::LogChange change) {
  if (is_copying_) return NotSent("changes of a log before the log");
  ReceivedChange received;
  for (const v1::FragmentHead& head : change.commits()) {
    const auto ahead = ahead_.extract(head.fragment());
    if (ahead.empty()) {
      return NotSent("a version without the record of its merge");
    }
    const v1::FragmentHead& made = ahead.mapped().after.contents().head;
    if (made.version() != head.version() || made.digest() != head.digest()) {
      return NotSent("a version with the record of another one");
    }
    received.versions.push_back(std::move(ahead.mapped()));
  }
  {
    absl::MutexLock lock(&mu_);
    view_.leader_changes =
        std::max(view_.leader_changes, change.position().index());
  }
  received.change = std::move(change);
  writer_->Add(std::move(received));
  return absl::OkStatus();
}

absl::Status Follower::WriteGroup(std::vector<ReceivedChange> group,
                                  Stream& stream) {
  std::vector<AtomicFileWriter> records;
  std::vector<v1::LogChange> changes;
  for (ReceivedChange& received : group) {
    changes.push_back(std::move(received.change));
    for (ReceivedVersion& version : received.versions) {
      records.push_back(std::move(version.record));
    }
  }
  RETURN_IF_ERROR(
      OfOwnDisk(AtomicFileWriter::CommitAll(absl::MakeSpan(records))));
  RETURN_IF_ERROR(state_->log().ApplyChanges(changes, view().epoch));
  auto record = records.begin();
  for (ReceivedChange& received : group) {
    for (ReceivedVersion& version : received.versions) {
      const auto bytes = static_cast<uint64_t>((record++)->bytes_written());
      heads_->Install(std::move(version.after), std::move(version.update),
                      {.bytes = bytes, .duration = version.duration});
    }
  }
  Acknowledge(changes.back().position().index(), stream);
  published_.Added();
  return absl::OkStatus();
}

void Follower::Acknowledge(uint64_t index, Stream& stream) {
  {
    absl::MutexLock lock(&mu_);
    view_.changes = index;
    view_.leader_changes = std::max(view_.leader_changes, index);
  }
  Send(index, stream);
}

void Follower::SayAtWork(Stream& stream) {
  const absl::Time now = now_();
  if (now - said_at_ < absl::FromChrono(kSayEvery)) return;
  said_at_ = now;
  Send(0, stream);
}

void Follower::Send(uint64_t durable_index, Stream& stream) {
  v1::FollowRequest request;
  request.set_durable_index(durable_index);
  absl::MutexLock lock(&send_mu_);
  // If the stream is broken, reading says why.
  stream.Write(request);
}

absl::Status Follower::EndCatchUp() {
  RETURN_IF_ERROR(writer_->Flush());
  if (is_copying_) RETURN_IF_ERROR(EndCopy());
  absl::MutexLock lock(&mu_);
  view_.is_complete = true;
  caught_up_epoch_ = view_.epoch;
  return absl::OkStatus();
}

absl::Status Follower::EndCopy() {
  if (!log_.has_value()) return NotSent("no log");
  // The old log gets the last snapshots, which the new log names.
  CloseCopy();
  RETURN_IF_ERROR(log_->Commit());
  const std::string received = state_->ReceivedLog();
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<CommitLog> log,
                     CommitLog::Open(received));
    const View leading = view();
    RETURN_IF_ERROR(log->Follow(
        {.is_followed = true, .address = leader_, .config = leading.config},
        leading.epoch));
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
  RETURN_IF_ERROR(DiscardCopy());
  state_ = nullptr;
  RETURN_IF_ERROR(StateDirectory::EndCopy(options_.state_dir, received));
  RETURN_IF_ERROR(OpenDirectory());
  LOG(INFO) << "the copy of run " << run_->run_id << " is complete";
  return absl::OkStatus();
}

}  // namespace causeway
