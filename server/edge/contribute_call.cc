// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/status_macros.h"
#include "common/transport/chunk.h"
#include "common/transport/chunk_message.h"
#include "common/transport/field_limits.h"
#include "common/transport/grpc_status.h"
#include "proto/coordinator.pb.h"
#include "quantization/encoded_object.h"
#include "server/edge/calls.h"

namespace causeway {
namespace {

// Serves one upload or one of its further streams. An upload is a header, which
// may bring the first chunk, a verdict, chunks, a trailer if the header was
// open or announced further streams, and a verdict. A further stream is a lane
// and chunks. If a stream breaks, its bytes stay in staging, and the next
// stream resumes there.
//
// gRPC calls one method at a time, except for OnCancel and, in an upload of one
// stream, OnRead: the next message is read while one is being taken. A turn
// (server/edge/upload_turns.h) may come on another stream's thread while
// nothing else is under way here.
class ContributeCall : public Call {
 public:
  ContributeCall(BegunCall begun, Engine* engine, SharedUploads* uploads)
      : Call(std::move(begun)), engine_(engine), uploads_(uploads) {
    Read(&received_);
  }

  void OnRead(bool ok) override {
    if (reads_ahead_) return OnReadAhead(ok);
    if (!ok) return EndOfStream();
    const absl::Status taken = role_ == Role::kUnknown ? Begin() : Take();
    if (!taken.ok()) Fail(taken);
  }

  void OnWritten(bool ok) override {
    if (!ok) return Finish(ToGrpcStatus(absl::CancelledError("client gone")));
    reads_ahead_ = Turns() == nullptr;
    Read(reads_ahead_ ? &ahead_[0] : &received_);
  }

  void OnCancel() override {
    std::shared_ptr<UploadTurns> turns;
    {
      absl::MutexLock lock(&mu_);
      cancelled_ = true;
      turns = turns_;
    }
    // Nothing else ends a stream that waits for its turn.
    if (turns != nullptr) turns->Break(Gone());
  }

  void OnEnd() override {
    if (!read_all_) CountAsBrokenOff();
    const std::shared_ptr<UploadTurns> turns = Turns();
    if (role_ == Role::kUpload && turns != nullptr) {
      uploads_->Close(key_, turns);
    }
  }

 private:
  static constexpr int kChunkField = v1::ContributeRequest::kChunkFieldNumber;

  enum class Role { kUnknown, kUpload, kLane };

  static absl::Status Gone() {
    return absl::CancelledError("the island has given up the upload");
  }

  absl::Status Begin() {
    v1::ContributeRequest request;
    const absl::StatusOr<bool> has_chunk = ParseByteBuffer(
        received_, v1::ContributeRequest::kFirstChunkFieldNumber, request,
        chunk_);
    RETURN_IF_ERROR(CheckRequest(caller(), request, has_chunk.status()));
    if (request.has_lane()) return BeginLane(request.lane());
    if (!request.has_header()) {
      return absl::InvalidArgumentError(
          "the first message must be the header or a lane");
    }
    role_ = Role::kUpload;
    header_ = std::move(*request.mutable_header());
    key_ = KeyOf(header_);
    ASSIGN_OR_RETURN(v1::ContributeResponse response, engine_->Offer(header_));
    if (response.verdict() == v1::ContributeResponse::UPLOAD) {
      if (*has_chunk && response.next_offset() == 0) {
        RETURN_IF_ERROR(engine_->Append(key_, chunk_).status());
        response.set_next_offset(chunk_.size());
      }
      // An upload of one chunk, or one that broke off after its last byte, has
      // nothing left to send.
      if (!IsOpen(header_.object()) &&
          response.next_offset() == header_.object().encoded_bytes()) {
        Complete();
        return absl::OkStatus();
      }
      if (header_.streams() > 1) {
        ASSIGN_OR_RETURN(
            auto turns,
            uploads_->Open(key_, response.next_offset(), header_.streams()));
        SetTurns(std::move(turns));
      }
    }
    Answer(response);
    return absl::OkStatus();
  }

  absl::Status BeginLane(const v1::UploadLane& lane) {
    v1::ContributionHeader header;
    *header.mutable_identity() = lane.identity();
    header.set_fragment(lane.fragment());
    header.set_base_version(lane.base_version());
    if (lane.identity().run_id() != engine_->run_id()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the lane is for run \"", lane.identity().run_id(),
          "\"; this coordinator holds \"", engine_->run_id(), "\""));
    }
    key_ = KeyOf(header);
    ASSIGN_OR_RETURN(auto turns, uploads_->Join(key_));
    SetTurns(std::move(turns));
    role_ = Role::kLane;
    Read(&received_);
    return absl::OkStatus();
  }

  // Reads a chunk into chunk_, or the trailer into header_. Returns true for
  // the trailer.
  absl::StatusOr<bool> Parse(grpc::ByteBuffer& message) {
    v1::ContributeRequest fields;
    ASSIGN_OR_RETURN(const bool has_chunk,
                     ParseByteBuffer(message, kChunkField, fields, chunk_));
    const bool is_trailer = fields.has_trailer() && role_ == Role::kUpload;
    if (has_chunk == is_trailer || fields.has_header() || fields.has_lane()) {
      return absl::InvalidArgumentError(
          "after a header, only chunks, one per message, and a trailer may "
          "follow; after a lane, only chunks");
    }
    if (is_trailer) {
      RETURN_IF_ERROR(CheckFieldLimits(fields));
      *header_.mutable_object() = std::move(*fields.mutable_trailer());
    }
    return is_trailer;
  }

  // Takes a message of an upload of several streams when its turn comes.
  absl::Status Take() {
    ASSIGN_OR_RETURN(const bool is_trailer, Parse(received_));
    Turns()->Await(
        is_trailer ? header_.object().encoded_bytes() : chunk_.offset,
        [this, is_trailer](const absl::Status& turn) {
          const absl::Status taken = turn.ok() ? TakeInTurn(is_trailer) : turn;
          if (!taken.ok()) Fail(taken);
        });
    return absl::OkStatus();
  }

  absl::Status TakeInTurn(bool is_trailer) {
    if (is_trailer) {
      Complete();
      return absl::OkStatus();
    }
    const uint64_t end = chunk_.offset + chunk_.size();
    RETURN_IF_ERROR(engine_->Append(key_, chunk_).status());
    // Another thread may delete this after Read.
    const std::shared_ptr<UploadTurns> turns = Turns();
    Read(&received_);
    turns->Advance(end);
    return absl::OkStatus();
  }

  // Lets the thread that is taking messages, if any, also take this one, so
  // that messages are taken in order.
  void OnReadAhead(bool ok) {
    {
      absl::MutexLock lock(&mu_);
      if (ok) {
        ++arrived_;
      } else {
        ended_ = true;
      }
      if (taking_) return;
      taking_ = true;
    }
    TakeAhead();
  }

  void TakeAhead() {
    for (; IsAnotherToTake(); ++taken_) {
      Read(&ahead_[(taken_ + 1) % 2]);
      grpc::ByteBuffer& message = ahead_[taken_ % 2];
      const absl::StatusOr<bool> last = TakeAlone(message);
      // Free the memory for reuse while it is in the cache.
      message.Clear();
      if (!last.ok()) Fail(last.status());
      if (!last.ok() || *last) return;
    }
  }

  // Returns false if the calling thread must take no more messages.
  bool IsAnotherToTake() {
    {
      absl::MutexLock lock(&mu_);
      if (taken_ < arrived_) return true;
      if (!ended_) {
        taking_ = false;
        return false;
      }
    }
    EndOfStream();
    return false;
  }

  // Takes a message of an upload of one stream. Returns true if it was the
  // last.
  absl::StatusOr<bool> TakeAlone(grpc::ByteBuffer& message) {
    ASSIGN_OR_RETURN(const bool is_trailer, Parse(message));
    if (!is_trailer) {
      ASSIGN_OR_RETURN(const bool complete, engine_->Append(key_, chunk_));
      if (!complete) return false;
    }
    Complete();
    return true;
  }

  void EndOfStream() {
    read_all_ = true;
    if (role_ == Role::kLane) return Finish(grpc::Status::OK);
    Finish(ToGrpcStatus(absl::CancelledError(
        "the upload ended before its last chunk or its trailer; resume it")));
  }

  // Ends the call on a thread that may wait for the disk: a contribution that
  // goes into the quarantine is kept there. Nothing else happens here
  // meanwhile.
  void Complete() {
    read_all_ = true;
    threads()->Run([this] {
      const absl::StatusOr<v1::ContributeResponse> response =
          engine_->Complete(header_);
      if (!response.ok()) return Fail(response.status());
      Answer(*response);
    });
  }

  void Answer(const v1::ContributeResponse& response) {
    sent_ = ToByteBuffer(response);
    if (response.verdict() == v1::ContributeResponse::UPLOAD) {
      Write(&sent_);
    } else {
      WriteAndFinish(&sent_);
    }
  }

  void SetTurns(std::shared_ptr<UploadTurns> turns) {
    bool cancelled;
    {
      absl::MutexLock lock(&mu_);
      turns_ = turns;
      cancelled = cancelled_;
    }
    if (cancelled) turns->Break(Gone());
  }

  std::shared_ptr<UploadTurns> Turns() {
    absl::MutexLock lock(&mu_);
    return turns_;
  }

  // An error in one stream of an upload ends all its streams.
  void Fail(const absl::Status& status) {
    const std::shared_ptr<UploadTurns> turns = Turns();
    Finish(ToGrpcStatus(status));
    if (turns != nullptr) turns->Break(status);
  }

  Engine* const engine_;
  SharedUploads* const uploads_;
  Role role_ = Role::kUnknown;
  grpc::ByteBuffer received_;
  // Used in turns: one is read into while the other is taken.
  grpc::ByteBuffer ahead_[2];
  grpc::ByteBuffer sent_;
  v1::ContributionHeader header_;
  ContributionKey key_;
  // Points into the message being taken.
  Chunk chunk_;
  // Is true if messages are read into ahead_: after the header, in an upload of
  // one stream.
  bool reads_ahead_ = false;
  // Is true once this call expects no more messages.
  bool read_all_ = false;

  absl::Mutex mu_;
  // Null if the upload has only one stream.
  std::shared_ptr<UploadTurns> turns_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  // The number of messages that arrived in ahead_, and whether it is final.
  uint64_t arrived_ ABSL_GUARDED_BY(mu_) = 0;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  // Say whether a thread is taking messages, and how many were taken; only that
  // thread uses the count.
  bool taking_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t taken_ = 0;
};

}  // namespace

Call* NewContributeCall(BegunCall begun, Engine* engine,
                        SharedUploads* uploads) {
  return new ContributeCall(std::move(begun), engine, uploads);
}

}  // namespace causeway
