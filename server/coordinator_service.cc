// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/coordinator_service.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/grpc_status.h"
#include "proto/coordinator.grpc.pb.h"
#include "quantization/chunk.h"
#include "server/coordinator_session.h"

namespace causeway {
namespace {

grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context,
                                      const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// One upload: header, verdict, chunks, verdict. A stream that breaks leaves the
// bytes in staging, for the next one to go on from.
class ContributeReactor
    : public grpc::ServerBidiReactor<v1::ContributeRequest,
                                     v1::ContributeResponse> {
 public:
  explicit ContributeReactor(Engine* engine) : engine_(engine) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      return Finish(ToGrpcStatus(absl::CancelledError(
          "the upload ended before its last chunk; resume it")));
    }
    if (!has_header_) return Begin();
    if (!request_.has_chunk()) {
      return Finish(ToGrpcStatus(absl::InvalidArgumentError(
          "after the header only chunks may follow")));
    }
    const absl::StatusOr<bool> complete =
        engine_->Append(KeyOf(header_), request_.chunk());
    if (!complete.ok()) return Finish(ToGrpcStatus(complete.status()));
    if (!*complete) return StartRead(&request_);
    Complete();
  }

  void OnWriteDone(bool ok) override {
    if (!ok || finished_) {
      return Finish(ok ? grpc::Status::OK
                       : ToGrpcStatus(absl::CancelledError("client gone")));
    }
    StartRead(&request_);
  }

  void OnDone() override { delete this; }

 private:
  void Begin() {
    if (!request_.has_header()) {
      return Finish(ToGrpcStatus(
          absl::InvalidArgumentError("the first message must be the header")));
    }
    has_header_ = true;
    header_ = request_.header();
    Answer(engine_->Offer(header_));
    // An upload that broke off after its last byte has nothing left to send.
  }

  void Complete() { Answer(engine_->Complete(header_)); }

  void Answer(const absl::StatusOr<v1::ContributeResponse>& answer) {
    if (!answer.ok()) return Finish(ToGrpcStatus(answer.status()));
    response_ = *answer;
    if (response_.verdict() == v1::ContributeResponse::UPLOAD &&
        response_.next_offset() == header_.object().encoded_bytes()) {
      return Complete();
    }
    finished_ = response_.verdict() != v1::ContributeResponse::UPLOAD;
    StartWrite(&response_);
  }

  Engine* const engine_;
  v1::ContributeRequest request_;
  v1::ContributeResponse response_;
  v1::ContributionHeader header_;
  bool has_header_ = false;
  // The verdict that is being written is the last one.
  bool finished_ = false;
};

// Streams stored bytes from an offset on. `Response` has a chunk field; the
// first response also carries what `Describe` set.
template <typename Response, typename Stored>
class DownloadReactor : public grpc::ServerWriteReactor<Response> {
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
      this->Finish(ToGrpcStatus(stored.status()));
      return;
    }
    stored_ = *std::move(stored);
    describe(stored_, response_);
    Write();
  }

  void OnWriteDone(bool ok) override {
    if (!ok)
      return this->Finish(ToGrpcStatus(absl::CancelledError("client gone")));
    engine_->CountSent(response_.chunk().data().size());
    if (offset_ == stored_.bytes.size()) return this->Finish(grpc::Status::OK);
    response_.Clear();
    Write();
  }

  void OnDone() override { delete this; }

 private:
  void Write() {
    if (offset_ < stored_.bytes.size()) {
      *response_.mutable_chunk() = MakeChunk(stored_.bytes, offset_);
      offset_ += response_.chunk().data().size();
    }
    this->StartWrite(&response_);
  }

  Engine* const engine_;
  Stored stored_;
  uint64_t offset_;
  Response response_;
};

class CoordinatorService : public v1::Coordinator::CallbackService {
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

  grpc::ServerBidiReactor<v1::ContributeRequest, v1::ContributeResponse>*
  Contribute(grpc::CallbackServerContext*) override {
    return new ContributeReactor(engine_);
  }

  grpc::ServerWriteReactor<v1::FetchParametersResponse>* FetchParameters(
      grpc::CallbackServerContext*,
      const v1::FetchParametersRequest* request) override {
    return new DownloadReactor<v1::FetchParametersResponse, OpenedParameters>(
        engine_, engine_->OpenParameters(*request), request->offset(),
        [](const OpenedParameters& stored,
           v1::FetchParametersResponse& response) {
          *response.mutable_head() = stored.head;
          response.set_total_bytes(stored.bytes.size());
        });
  }

  grpc::ServerWriteReactor<v1::FetchUpdateResponse>* FetchUpdate(
      grpc::CallbackServerContext*,
      const v1::FetchUpdateRequest* request) override {
    return new DownloadReactor<v1::FetchUpdateResponse, OpenedUpdate>(
        engine_, engine_->OpenUpdate(*request), request->offset(),
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
  Engine* const engine_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewCoordinatorService(Engine* engine) {
  return std::make_unique<CoordinatorService>(engine);
}

}  // namespace causeway
