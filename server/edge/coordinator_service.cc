// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/edge/coordinator_service.h"

#include <utility>

#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "common/transport/chunk_message.h"
#include "common/transport/tcp_connections.h"
#include "proto/coordinator.grpc.pb.h"
#include "server/edge/contribute_reactor.h"
#include "server/edge/download_reactor.h"
#include "server/edge/session_reactor.h"
#include "server/edge/upload_turns.h"

namespace causeway {
namespace {

grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context,
                                      const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

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
  CoordinatorService(Engine* engine, IslandLinks* links)
      : engine_(engine), links_(links) {}

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
    return NewContributeReactor(engine_, &uploads_);
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* FetchParameters(
      grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* bytes) override {
    return Send<v1::FetchParametersRequest, v1::FetchParametersResponse>(
        *context, *bytes,
        [this](const v1::FetchParametersRequest& request) {
          return engine_->OpenParameters(request);
        },
        [](const OpenedParameters& stored,
           v1::FetchParametersResponse& response) {
          *response.mutable_head() = stored.head;
          response.set_total_bytes(stored.bytes.size());
        });
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* FetchUpdate(
      grpc::CallbackServerContext* context,
      const grpc::ByteBuffer* bytes) override {
    return Send<v1::FetchUpdateRequest, v1::FetchUpdateResponse>(
        *context, *bytes,
        [this](const v1::FetchUpdateRequest& request) {
          return engine_->OpenUpdate(request);
        },
        [](const OpenedUpdate& stored, v1::FetchUpdateResponse& response) {
          *response.mutable_head() = stored.head;
          if (stored.object.has_value()) {
            *response.mutable_object() = *stored.object;
          }
          response.set_includes_island(stored.includes_island);
          response.set_island_share(stored.island_share);
          response.set_other_tokens(stored.other_tokens);
          response.set_other_inner_steps(stored.other_inner_steps);
        });
  }

  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request,
                                  v1::LeaveResponse*) override {
    return FinishUnary(context, engine_->Leave(*request));
  }

 private:
  absl::StatusOr<bool> IsAwaited(const v1::FetchUpdateRequest& request) const {
    return engine_->IsAwaited(request);
  }
  static absl::StatusOr<bool> IsAwaited(const v1::FetchParametersRequest&) {
    return false;
  }
  // Encodings are compressed already.
  static bool IsCompressed(const v1::FetchUpdateRequest&) { return false; }
  static bool IsCompressed(const v1::FetchParametersRequest& request) {
    return request.compress();
  }

  // Sends what `open` gives for the request in `bytes`, once it is there; the
  // first response is as `describe` fills it in.
  template <typename Request, typename Response, typename Open,
            typename Describe>
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Send(
      const grpc::CallbackServerContext& context, grpc::ByteBuffer bytes,
      Open open, Describe describe) {
    Request request;
    const absl::Status parsed = ParseByteBuffer(bytes, request);
    return NewDownloadReactor(
        engine_,
        [this, parsed, request = std::move(request), open, describe,
         peer = PeerAddress(
             context.peer())]() -> absl::StatusOr<std::unique_ptr<Download>> {
          RETURN_IF_ERROR(parsed);
          ASSIGN_OR_RETURN(const bool awaited, IsAwaited(request));
          if (awaited) return std::unique_ptr<Download>();
          ASSIGN_OR_RETURN(const auto stored, open(request));
          RETURN_IF_ERROR(CheckDownload(stored.bytes.size(), request.offset(),
                                        request.stream()));
          auto description = std::make_unique<Response>();
          describe(stored, *description);
          auto download = std::make_unique<Download>(
              Download{.description = std::move(description),
                       .chunk_field = Response::kChunkFieldNumber,
                       .bytes = stored.bytes,
                       .owner = stored.owner,
                       .offset = request.offset(),
                       .compress = IsCompressed(request),
                       .stream = request.stream(),
                       .link = links_->Get(request.identity().island_id())});
          download->link->BeginDownload(
              request.stream().pace_bytes_per_second(), peer);
          return download;
        });
  }

  Engine* const engine_;
  IslandLinks* const links_;
  SharedUploads uploads_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewCoordinatorService(Engine* engine,
                                                     IslandLinks* links) {
  return std::make_unique<CoordinatorService>(engine, links);
}

}  // namespace causeway
