// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes what a coordinator sends to a follower (proto/replication.proto): first
// what the follower's copy lacks, then each change as it is committed, preceded
// by the records of the merges that the change commits
// (server/replication/feed_reader.h).
//
// A copy that is only behind gets just changes and records. Any other copy gets
// states of fragments, then a copy of the log, then the records of the merges
// between the two. A change without rows says that the copy is complete. None
// of this holds up a round.
//
// Not thread-safe.
#ifndef SERVER_REPLICATION_COPY_STREAM_H_
#define SERVER_REPLICATION_COPY_STREAM_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/os/file.h"
#include "grpcpp/support/byte_buffer.h"
#include "proto/replication.pb.h"
#include "proto/run_config.pb.h"
#include "server/fragment_heads.h"
#include "server/replication/feed_reader.h"
#include "server/replication/log_feed.h"
#include "server/storage/state_directory.h"

namespace causeway {

// A run that can be followed. Its pointers must outlive the streams.
struct FollowedSource {
  std::string run_id;
  uint64_t epoch = 0;
  v1::RunConfig config;
  StateDirectory* state = nullptr;
  FragmentHeads* heads = nullptr;
  LogFeed* feed = nullptr;
};

class CopyStream {
 public:
  // `hello` is the follower's.
  //   FAILED_PRECONDITION  Its copy is of another run.
  // Also returns the errors of Next.
  static absl::StatusOr<CopyStream> Begin(
      const FollowedSource& source, const v1::FollowRequest::Hello& hello);

  // Returns the next message, a v1::FollowResponse; nullopt until there is news
  // (LogFeed::news). After an error, the follower must begin another stream.
  //   UNAVAILABLE         The follower has fallen behind what is kept, or this
  //                       coordinator cannot read its state directory, whatever
  //                       the reason: no copy is damaged by that.
  //   RESOURCE_EXHAUSTED  This coordinator lacks room, as on a full disk.
  absl::StatusOr<std::optional<grpc::ByteBuffer>> Next();

  // Returns whether the messages so far complete the copy. Until then, there is
  // always a next message, which may take long to make.
  bool HasSentCopy() const {
    return reader_.has_value() && objects_.empty() && change_ == nullptr;
  }

 private:
  struct Object {
    v1::ReplicatedObject description;
    // Neither is set before the object is opened. A state is opened when it is
    // its turn, because it would keep an old version in memory until then.
    std::vector<absl::string_view> parts;
    std::shared_ptr<const void> owner;
  };

  CopyStream(const FollowedSource& source, const std::string& name)
      : source_(source), name_(name) {}

  // Return the errors of the state directory as they are.
  absl::Status Prepare(const v1::FollowRequest::Hello& hello);
  absl::StatusOr<std::optional<grpc::ByteBuffer>> MakeNext();
  // Fills held_ with the versions in `hello` that are the run's.
  absl::Status Recognize(const v1::FollowRequest::Hello& hello);
  // Queues a record, which is opened later if no file is given.
  void QueueRecord(const v1::FragmentHead& head,
                   std::shared_ptr<const MappedFile> file = nullptr);
  // Returns the bytes of the records of a fragment after the version `held` up
  // to `version`; nullopt if one is no longer kept.
  absl::StatusOr<std::optional<uint64_t>> BytesOfRecords(
      uint32_t fragment, uint64_t held, uint64_t version) const;
  // Queues the records of a fragment after the copy's version, up to `version`.
  // Returns false, and queues none, if one is no longer kept.
  absl::StatusOr<bool> QueueRecords(uint32_t fragment, uint64_t version);
  // Opens an object that is not open.
  //   UNAVAILABLE  It is a record that is no longer kept.
  absl::Status Open(Object& object);
  // Queues the state of a fragment that is the newest when it is its turn.
  void QueueState(uint32_t fragment);
  // Queues a copy of the log, and the records that it needs. Fragments whose
  // records are no longer kept get new states.
  absl::Status QueueLog();
  absl::Status QueueWhatIsLacking(const v1::FollowRequest::Hello& hello);
  void EndCatchUp(const v1::LogPosition& position);
  // Queues what the feed has for the follower. Returns whether it had anything.
  absl::StatusOr<bool> QueueNext();
  // Returns a published version that the follower was not told of, if any.
  std::optional<v1::FragmentHead> NextPublished();

  grpc::ByteBuffer NextPiece();

  FollowedSource source_;
  std::string name_;
  // By fragment, the version that the copy will have after the queued objects,
  // if any. That of a queued state is set when the state is opened.
  std::vector<std::optional<uint64_t>> held_;
  // By fragment, the newest published version that the follower was told of.
  std::vector<std::optional<uint64_t>> told_;
  // The revoked certificates that the follower was told of; null if none.
  std::shared_ptr<const v1::RevokedCertificates> revoked_;
  // Messages to send, before objects.
  std::optional<v1::FollowResponse> first_;
  std::deque<Object> objects_;
  // The part of the first object being sent, and how many bytes of the part and
  // of the object are sent.
  bool is_described_ = false;
  size_t part_ = 0;
  uint64_t offset_ = 0;
  uint64_t object_offset_ = 0;
  // The change to send after the objects; null if there is none.
  std::shared_ptr<const v1::LogChange> change_;
  // Not set before the copy is complete.
  std::optional<FeedReader> reader_;
  // If true, a log is queued once the objects are sent.
  bool log_is_due_ = false;
};

}  // namespace causeway

#endif  // SERVER_REPLICATION_COPY_STREAM_H_
