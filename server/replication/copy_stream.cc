// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/replication/copy_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "common/as_bytes.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "common/transport/chunk.h"
#include "common/transport/chunk_message.h"
#include "server/storage/commit_log.h"
#include "server/storage/fragment_store.h"

namespace causeway {
namespace {

// Makes the error of a coordinator that cannot read its state directory one
// after which its followers try again: their copies are not damaged.
absl::Status ForFollower(const absl::Status& error) {
  if (error.ok() || absl::IsUnavailable(error)) return error;
  return absl::Status(
      // Followers try again less often.
      absl::IsResourceExhausted(error) ? absl::StatusCode::kResourceExhausted
                                       : absl::StatusCode::kUnavailable,
      absl::StrCat("the followed coordinator cannot read or write on its own "
                   "disk: ",
                   error.message()));
}

// A state makes the follower's old copy incomplete until the new one is there,
// so records are sent in its place up to this many times its size.
constexpr uint64_t kRecordsPerState = 8;

// The most queued objects that are open. Records that are open stay readable
// while the log is sent before them, even if they are removed. A process can
// map only some 65,000 files.
constexpr size_t kMostOpen = 256;

std::vector<absl::string_view> PartsOf(const FragmentContents& contents) {
  return {AsStringView(contents.theta), AsStringView(contents.momentum),
          AsStringView(contents.residual), AsStringView(contents.gradient_sum)};
}

uint64_t BytesOf(const std::vector<absl::string_view>& parts) {
  uint64_t bytes = 0;
  for (const absl::string_view part : parts) bytes += part.size();
  return bytes;
}

}  // namespace

absl::StatusOr<CopyStream> CopyStream::Begin(
    const FollowedSource& source, const v1::FollowRequest::Hello& hello) {
  if (!hello.run_id().empty() && hello.run_id() != source.run_id) {
    return absl::FailedPreconditionError(absl::Substitute(
        "the follower has a copy of run $0, and this is run $1: give it "
        "another state directory",
        hello.run_id(), source.run_id));
  }
  CopyStream stream(source, hello.name());
  v1::FollowedRun& run = *stream.first_.emplace().mutable_run();
  run.set_run_id(source.run_id);
  run.set_epoch(source.epoch);
  *run.mutable_config() = source.config;
  *run.mutable_position() = source.feed->Newest();
  RETURN_IF_ERROR(ForFollower(stream.Prepare(hello)));
  return stream;
}

absl::Status CopyStream::Prepare(const v1::FollowRequest::Hello& hello) {
  RETURN_IF_ERROR(Recognize(hello));
  return QueueWhatIsLacking(hello);
}

absl::Status CopyStream::Recognize(const v1::FollowRequest::Hello& hello) {
  held_.resize(source_.heads->size());
  told_.resize(held_.size());
  for (const v1::FragmentHead& head : hello.heads()) {
    if (head.fragment() >= held_.size()) continue;
    const absl::StatusOr<CommitRecord> commit =
        source_.state->log().FindCommit(head.fragment(), head.version());
    if (absl::IsNotFound(commit.status())) continue;
    RETURN_IF_ERROR(commit.status());
    if (commit->head.digest() == head.digest()) {
      held_[head.fragment()] = head.version();
    }
  }
  return absl::OkStatus();
}

void CopyStream::QueueRecord(const v1::FragmentHead& head,
                             std::shared_ptr<const MappedFile> file) {
  Object& record = objects_.emplace_back();
  record.description.set_kind(v1::ReplicatedObject::MERGE);
  *record.description.mutable_head() = head;
  if (file == nullptr) return;
  record.parts = {file->bytes()};
  record.owner = std::move(file);
}

absl::StatusOr<std::optional<uint64_t>> CopyStream::BytesOfRecords(
    uint32_t fragment, uint64_t held, uint64_t version) const {
  uint64_t bytes = 0;
  for (uint64_t next = held + 1; next <= version; ++next) {
    const absl::StatusOr<uint64_t> size =
        source_.state->merges().Size(fragment, next);
    if (absl::IsNotFound(size.status())) return std::nullopt;
    RETURN_IF_ERROR(size.status());
    bytes += *size;
  }
  return bytes;
}

absl::StatusOr<bool> CopyStream::QueueRecords(uint32_t fragment,
                                              uint64_t version) {
  uint64_t& held = *held_[fragment];
  ASSIGN_OR_RETURN(const std::optional<uint64_t> bytes,
                   BytesOfRecords(fragment, held, version));
  if (!bytes.has_value()) return false;
  for (; held < version; ++held) {
    ASSIGN_OR_RETURN(const CommitRecord commit,
                     source_.state->log().FindCommit(fragment, held + 1));
    QueueRecord(commit.head);
    if (objects_.size() <= kMostOpen) RETURN_IF_ERROR(Open(objects_.back()));
  }
  return true;
}

absl::Status CopyStream::Open(Object& object) {
  if (object.owner != nullptr) return absl::OkStatus();
  v1::FragmentHead& head = *object.description.mutable_head();
  if (object.description.kind() == v1::ReplicatedObject::STATE) {
    std::shared_ptr<const StoredFragment> newest =
        source_.heads->Newest(head.fragment());
    const FragmentContents& contents = newest->contents();
    head = contents.head;
    held_[head.fragment()] = head.version();
    object.parts = PartsOf(contents);
    object.owner = std::move(newest);
    return absl::OkStatus();
  }
  absl::StatusOr<MappedFile> file =
      source_.state->merges().OpenFile(head.fragment(), head.version());
  if (absl::IsNotFound(file.status())) {
    return absl::UnavailableError(absl::Substitute(
        "the record of the merge to version $0 of fragment $1 is no longer "
        "kept",
        head.version(), head.fragment()));
  }
  RETURN_IF_ERROR(file.status());
  // A mapped file can be read even after it is removed.
  auto owner = std::make_shared<const MappedFile>(*std::move(file));
  object.parts = {owner->bytes()};
  object.owner = std::move(owner);
  return absl::OkStatus();
}

void CopyStream::QueueState(uint32_t fragment) {
  v1::ReplicatedObject& state = objects_.emplace_back().description;
  state.set_kind(v1::ReplicatedObject::STATE);
  state.mutable_head()->set_fragment(fragment);
}

absl::Status CopyStream::QueueLog() {
  log_is_due_ = false;
  const absl::StatusOr<std::string> path = source_.state->CopyLogFor(name_);
  // CheckInPlace waits for a write under way, so that the feed has every change
  // in the copy.
  if (const absl::Status in_place = source_.state->log().CheckInPlace();
      !in_place.ok()) {
    // The copy, or the error, may be of another database.
    return absl::UnavailableError(in_place.message());
  }
  RETURN_IF_ERROR(path.status());
  v1::LogPosition position;
  std::vector<CommitRecord> heads;
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<CommitLog> copy,
                     CommitLog::Open(*path));
    position = copy->Position();
    ASSIGN_OR_RETURN(heads, copy->Heads());
  }
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(*path));
  RETURN_IF_ERROR(RemoveFile(*path));
  auto owner = std::make_shared<const MappedFile>(std::move(file));
  Object& log = objects_.emplace_back();
  log.description.set_kind(v1::ReplicatedObject::LOG);
  *log.description.mutable_position() = position;
  log.parts = {owner->bytes()};
  log.owner = std::move(owner);
  for (const CommitRecord& head : heads) {
    const uint32_t fragment = head.head.fragment();
    ASSIGN_OR_RETURN(const bool has_all,
                     QueueRecords(fragment, head.head.version()));
    if (has_all) continue;
    QueueState(fragment);
    log_is_due_ = true;
  }
  if (!log_is_due_) EndCatchUp(position);
  return absl::OkStatus();
}

absl::Status CopyStream::QueueWhatIsLacking(
    const v1::FollowRequest::Hello& hello) {
  bool is_complete = source_.feed->Continues(hello.position());
  ASSIGN_OR_RETURN(const std::vector<CommitRecord> newest,
                   source_.state->log().Heads());
  for (const CommitRecord& head : newest) {
    // Past changes are sent with their records, so the records must be kept.
    const uint32_t fragment = head.head.fragment();
    std::optional<uint64_t>& held = held_[fragment];
    if (held.has_value()) {
      ASSIGN_OR_RETURN(const std::optional<uint64_t> records,
                       BytesOfRecords(fragment, *held, head.head.version()));
      const uint64_t state =
          BytesOf(PartsOf(source_.heads->Newest(fragment)->contents()));
      if (records.has_value() && *records <= kRecordsPerState * state) continue;
    }
    is_complete = false;
    held.reset();
  }
  if (is_complete) {
    EndCatchUp(hello.position());
    return absl::OkStatus();
  }
  for (uint32_t fragment = 0; fragment < held_.size(); ++fragment) {
    if (!held_[fragment].has_value()) QueueState(fragment);
  }
  log_is_due_ = true;
  return absl::OkStatus();
}

void CopyStream::EndCatchUp(const v1::LogPosition& position) {
  auto change = std::make_shared<v1::LogChange>();
  *change->mutable_position() = position;
  reader_.emplace(source_.feed, position.index());
  change_ = std::move(change);
}

grpc::ByteBuffer CopyStream::NextPiece() {
  Object& object = objects_.front();
  v1::FollowResponse response;
  if (!is_described_) {
    *response.mutable_object() = object.description;
    response.mutable_object()->set_bytes(BytesOf(object.parts));
    is_described_ = true;
    return ToByteBuffer(response);
  }
  Chunk chunk = CutChunk(object.parts[part_], offset_);
  offset_ += chunk.size();
  chunk.offset = std::exchange(object_offset_, object_offset_ + chunk.size());
  return ToByteBuffer(response, v1::FollowResponse::kChunkFieldNumber, chunk,
                      object.owner);
}

std::optional<v1::FragmentHead> CopyStream::NextPublished() {
  if (!source_.feed->IsBegun()) return std::nullopt;
  for (uint32_t fragment = 0; fragment < told_.size(); ++fragment) {
    // The engine installs a version when it is published.
    const v1::FragmentHead head =
        source_.heads->Newest(fragment)->contents().head;
    if (told_[fragment] == head.version()) continue;
    told_[fragment] = head.version();
    return head;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<grpc::ByteBuffer>> CopyStream::Next() {
  absl::StatusOr<std::optional<grpc::ByteBuffer>> next = MakeNext();
  RETURN_IF_ERROR(ForFollower(next.status()));
  return next;
}

absl::StatusOr<std::optional<grpc::ByteBuffer>> CopyStream::MakeNext() {
  if (first_.has_value()) {
    const v1::FollowResponse first = *std::exchange(first_, std::nullopt);
    return ToByteBuffer(first);
  }
  if (auto revoked = source_.feed->revoked(); revoked != revoked_) {
    revoked_ = std::move(revoked);
    v1::FollowResponse response;
    *response.mutable_revoked() = *revoked_;
    return ToByteBuffer(response);
  }
  while (true) {
    while (!objects_.empty()) {
      RETURN_IF_ERROR(Open(objects_.front()));
      const std::vector<absl::string_view>& parts = objects_.front().parts;
      while (part_ < parts.size() && offset_ == parts[part_].size()) {
        ++part_;
        offset_ = 0;
      }
      if (!is_described_ || part_ < parts.size()) return NextPiece();
      objects_.pop_front();
      is_described_ = false;
      part_ = 0;
      object_offset_ = 0;
    }
    if (log_is_due_) {
      RETURN_IF_ERROR(QueueLog());
      continue;
    }
    if (change_ != nullptr) {
      v1::FollowResponse response;
      *response.mutable_change() = *std::exchange(change_, nullptr);
      return ToByteBuffer(response);
    }
    if (const auto published = NextPublished(); published.has_value()) {
      v1::FollowResponse response;
      *response.mutable_published() = *published;
      return ToByteBuffer(response);
    }
    ASSIGN_OR_RETURN(const bool has_more, QueueNext());
    if (!has_more) return std::nullopt;
  }
}

absl::StatusOr<bool> CopyStream::QueueNext() {
  absl::StatusOr<FeedReader::Step> next = reader_->Next();
  if (absl::IsNotFound(next.status())) {
    return absl::UnavailableError(next.status().message());
  }
  RETURN_IF_ERROR(next.status());
  for (LogFeed::AnnouncedRecord& record : next->ahead) {
    QueueRecord(record.head, std::move(record.file));
  }
  for (const v1::FragmentHead& head : next->lacking) {
    if (head.version() > *held_[head.fragment()]) QueueRecord(head);
  }
  change_ = std::move(next->change);
  if (change_ == nullptr) return !next->ahead.empty();
  for (const v1::FragmentHead& head : change_->commits()) {
    uint64_t& held = *held_[head.fragment()];
    held = std::max(held, head.version());
  }
  return true;
}

}  // namespace causeway
