// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "common/transport/chunk.h"
#include "common/transport/chunk_message.h"
#include "proto/coordinator.grpc.pb.h"
#include "quantization/encoded_object.h"
#include "server/coordinator_session.h"

namespace causeway {
namespace {

grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context,
                                      const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// One upload: header, verdict, chunks, trailer if the header was open, verdict.
// A stream that breaks leaves the bytes in staging, for the next one to go on
// from.
class ContributeReactor
    : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit ContributeReactor(Engine* engine) : engine_(engine) {
    StartRead(&received_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      return Finish(ToGrpcStatus(absl::CancelledError(
          "the upload ended before its last chunk or its trailer; resume it")));
    }
    const absl::Status taken = has_header_ ? Take() : Begin();
    if (!taken.ok()) Finish(ToGrpcStatus(taken));
  }

  void OnWriteDone(bool ok) override {
    if (!ok || finished_) {
      return Finish(ok ? grpc::Status::OK
                       : ToGrpcStatus(absl::CancelledError("client gone")));
    }
    StartRead(&received_);
  }

  void OnDone() override { delete this; }

 private:
  static constexpr int kChunkField = v1::ContributeRequest::kChunkFieldNumber;

  absl::Status Begin() {
    v1::ContributeRequest request;
    RETURN_IF_ERROR(ParseByteBuffer(received_, request));
    if (!request.has_header()) {
      return absl::InvalidArgumentError("the first message must be the header");
    }
    has_header_ = true;
    header_ = std::move(*request.mutable_header());
    key_ = KeyOf(header_);
    ASSIGN_OR_RETURN(const v1::ContributeResponse response,
                     engine_->Offer(header_));
    // An upload that broke off after its last byte has nothing left to send.
    if (response.verdict() == v1::ContributeResponse::UPLOAD &&
        !IsOpen(header_.object()) &&
        response.next_offset() == header_.object().encoded_bytes()) {
      return Complete();
    }
    Answer(response);
    return absl::OkStatus();
  }

  // A chunk or the trailer.
  absl::Status Take() {
    v1::ContributeRequest fields;
    Chunk chunk;
    ASSIGN_OR_RETURN(const bool has_chunk,
                     ParseByteBuffer(received_, kChunkField, fields, chunk));
    if (has_chunk == fields.has_trailer() || fields.has_header()) {
      return absl::InvalidArgumentError(
          "after the header chunks follow, one in each message, and the "
          "trailer");
    }
    if (fields.has_trailer()) {
      *header_.mutable_object() = std::move(*fields.mutable_trailer());
      return Complete();
    }
    ASSIGN_OR_RETURN(const bool complete, engine_->Append(key_, chunk));
    if (complete) return Complete();
    StartRead(&received_);
    return absl::OkStatus();
  }

  absl::Status Complete() {
    ASSIGN_OR_RETURN(const v1::ContributeResponse response,
                     engine_->Complete(header_));
    Answer(response);
    return absl::OkStatus();
  }

  void Answer(const v1::ContributeResponse& response) {
    finished_ = response.verdict() != v1::ContributeResponse::UPLOAD;
    sent_ = ToByteBuffer(response);
    StartWrite(&sent_);
  }

  Engine* const engine_;
  grpc::ByteBuffer received_;
  grpc::ByteBuffer sent_;
  v1::ContributionHeader header_;
  ContributionKey key_;
  bool has_header_ = false;
  // The verdict that is being written is the last one.
  bool finished_ = false;
};

// Streams stored bytes from an offset on. `Response` has a chunk field; the
// first response also carries what `Describe` set.
template <typename Response, typename Stored>
class DownloadReactor : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  DownloadReactor(Engine* engine, absl::StatusOr<Stored> stored,
                  uint64_t offset, void (*describe)(const Stored&, Response&))
      : engine_(engine), offset_(offset) {
    if (stored.ok() && offset > stored->bytes.size()) {
      stored = absl::InvalidArgumentError(
          absl::StrCat("offset ", offset, " is beyond the object's ",
                       stored->bytes.size(), " bytes"));
    }
    if (!stored.ok()) {
      Finish(ToGrpcStatus(stored.status()));
      return;
    }
    stored_ = *std::move(stored);
    Response description;
    describe(stored_, description);
    Write(description);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(ToGrpcStatus(absl::CancelledError("client gone")));
    engine_->CountSent(sending_);
    if (offset_ == stored_.bytes.size()) return Finish(grpc::Status::OK);
    Write({});
  }

  void OnDone() override { delete this; }

 private:
  void Write(const Response& description) {
    sending_ = 0;
    if (offset_ < stored_.bytes.size()) {
      const Chunk chunk = CutChunk(stored_.bytes, offset_);
      buffer_ = ToByteBuffer(description, Response::kChunkFieldNumber, chunk,
                             stored_.owner);
      sending_ = chunk.size();
      offset_ += sending_;
    } else {
      buffer_ = ToByteBuffer(description);
    }
    StartWrite(&buffer_);
  }

  Engine* const engine_;
  Stored stored_;
  // Of the next chunk.
  uint64_t offset_;
  // Bytes of data in the message that is being written.
  uint64_t sending_ = 0;
  grpc::ByteBuffer buffer_;
};

// The calls with bulk data are raw: their reactors see byte buffers.
using Generated = v1::Coordinator;
using RawCoordinatorService = Generated::WithRawCallbackMethod_Contribute<
    Generated::WithRawCallbackMethod_FetchParameters<
        Generated::WithRawCallbackMethod_FetchUpdate<
            Generated::WithCallbackMethod_Join<
                Generated::WithCallbackMethod_Session<
                    Generated::WithCallbackMethod_Leave<
                        Generated::Service>>>>>>;

class CoordinatorService : public RawCoordinatorService {
 public:
  explicit CoordinatorService(Engine* engine) : engine_(engine) {}

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override {
    absl::StatusOr<v1::JoinResponse> joined = engine_->Join(*request);
    if (joined.ok()) *response = *std::move(joined);
    return FinishUnary(context, joined.status());
  }

  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionResponse>* Session(
      grpc::CallbackServerContext*) override {
    return NewSessionReactor(engine_);
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Contribute(
      grpc::CallbackServerContext*) override {
    return new ContributeReactor(engine_);
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* FetchParameters(
      grpc::CallbackServerContext*, const grpc::ByteBuffer* bytes) override {
    v1::FetchParametersRequest request;
    auto stored = Open(*bytes, request, &Engine::OpenParameters);
    return new DownloadReactor<v1::FetchParametersResponse, OpenedParameters>(
        engine_, std::move(stored), request.offset(),
        [](const OpenedParameters& stored,
           v1::FetchParametersResponse& response) {
          *response.mutable_head() = stored.head;
          response.set_total_bytes(stored.bytes.size());
        });
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* FetchUpdate(
      grpc::CallbackServerContext*, const grpc::ByteBuffer* bytes) override {
    v1::FetchUpdateRequest request;
    auto stored = Open(*bytes, request, &Engine::OpenUpdate);
    return new DownloadReactor<v1::FetchUpdateResponse, OpenedUpdate>(
        engine_, std::move(stored), request.offset(),
        [](const OpenedUpdate& stored, v1::FetchUpdateResponse& response) {
          *response.mutable_head() = stored.head;
          *response.mutable_object() = stored.object;
          response.set_includes_island(stored.includes_island);
        });
  }

  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request,
                                  v1::LeaveResponse*) override {
    return FinishUnary(context, engine_->Leave(*request));
  }

 private:
  // Reads `bytes` into `request` and opens what it asks for.
  template <typename Request, typename Stored>
  absl::StatusOr<Stored> Open(
      grpc::ByteBuffer bytes, Request& request,
      absl::StatusOr<Stored> (Engine::*open)(const Request&)) {
    RETURN_IF_ERROR(ParseByteBuffer(bytes, request));
    return (engine_->*open)(request);
  }

  Engine* const engine_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewCoordinatorService(Engine* engine) {
  return std::make_unique<CoordinatorService>(engine);
}

}  // namespace causeway
