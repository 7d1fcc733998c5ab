// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/grpc_coordinator_client.h"

#include <atomic>
#include <limits>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/checksum.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "grpcpp/grpcpp.h"
#include "proto/coordinator.grpc.pb.h"
#include "quantization/chunk.h"
#include "quantization/encoded_object.h"

namespace causeway {
namespace {

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  // A connection per channel: without this gRPC shares one between channels
  // to the same address.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Our own back-off decides when to try again.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  arguments.SetMaxReceiveMessageSize(16 << 20);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

// How long a call waits for its connection before it fails and says why.
constexpr absl::Duration kConnectWait = absl::Seconds(2);

// gRPC notices that a connection is up only while somebody waits on its
// channel. Our pauses between tries wait on nothing, so without this a
// coordinator that is back would be found seconds later, by chance.
void AwaitConnection(grpc::Channel& channel) {
  channel.WaitForConnected(absl::ToChronoTime(absl::Now() + kConnectWait));
}

class GrpcControlStream : public ControlStream {
 public:
  explicit GrpcControlStream(v1::Coordinator::Stub& stub)
      : stream_(stub.Session(&context_)) {}

  bool Write(const v1::SessionRequest& request) override {
    return stream_->Write(request);
  }
  bool Read(v1::SessionResponse* response) override {
    return stream_->Read(response);
  }
  absl::Status Finish() override { return FromGrpcStatus(stream_->Finish()); }
  void Cancel() override { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  const std::unique_ptr<
      grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>>
      stream_;
};

class GrpcCoordinatorClient : public CoordinatorClient {
 public:
  explicit GrpcCoordinatorClient(const GrpcCoordinatorClientOptions& options)
      : options_(options),
        control_channel_(NewChannel(options.address)),
        bulk_channel_(NewChannel(options.address)),
        control_(v1::Coordinator::NewStub(control_channel_)),
        bulk_(v1::Coordinator::NewStub(bulk_channel_)) {}

  absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) override {
    AwaitConnection(*control_channel_);
    Call call(*this, 0);
    RETURN_IF_ERROR(call.status());
    v1::JoinResponse response;
    RETURN_IF_ERROR(
        Explain(control_->Join(&call.context(), request, &response)));
    return response;
  }

  std::unique_ptr<ControlStream> OpenSession() override {
    AwaitConnection(*control_channel_);
    return std::make_unique<GrpcControlStream>(*control_);
  }

  absl::StatusOr<v1::ContributeResponse> Contribute(
      const v1::ContributionHeader& header,
      absl::string_view encoded) override {
    AwaitConnection(*bulk_channel_);
    Call call(*this, encoded.size());
    RETURN_IF_ERROR(call.status());
    const auto stream = bulk_->Contribute(&call.context());
    v1::ContributeRequest request;
    *request.mutable_header() = header;
    v1::ContributeResponse response;
    if (!stream->Write(request) || !stream->Read(&response)) {
      return Broken(stream->Finish());
    }
    if (response.verdict() != v1::ContributeResponse::UPLOAD) {
      RETURN_IF_ERROR(Explain(stream->Finish()));
      return response;
    }
    for (uint64_t offset = response.next_offset(); offset < encoded.size();
         offset += request.chunk().data().size()) {
      *request.mutable_chunk() = MakeChunk(encoded, offset);
      if (!stream->Write(request)) break;  // Finish says why.
      bytes_up_ += request.chunk().data().size();
    }
    stream->WritesDone();
    const bool answered = stream->Read(&response);
    const grpc::Status status = stream->Finish();
    if (!answered || !status.ok()) return Broken(status);
    return response;
  }

  absl::Status FetchUpdate(const v1::FetchUpdateRequest& request,
                           UpdateDownload& download) override {
    AwaitConnection(*bulk_channel_);
    Call call(*this, download.object.encoded_bytes());
    RETURN_IF_ERROR(call.status());
    v1::FetchUpdateRequest resumed = request;
    resumed.set_offset(download.received);
    const auto stream = bulk_->FetchUpdate(&call.context(), resumed);
    v1::FetchUpdateResponse response;
    while (stream->Read(&response)) {
      if (response.has_head()) {
        if (download.received > 0 &&
            download.object.digest() != response.object().digest()) {
          download = {};
          return absl::AbortedError("the update changed between two tries");
        }
        if (response.object().encoded_bytes() > kMaxObjectBytes) {
          return TooLarge(response.object().encoded_bytes());
        }
        download.head = response.head();
        download.object = response.object();
        download.includes_island = response.includes_island();
        download.encoded.resize(response.object().encoded_bytes());
      }
      RETURN_IF_ERROR(
          Take(response.chunk(), download.encoded, download.received));
    }
    RETURN_IF_ERROR(Explain(stream->Finish()));
    if (download.received < download.encoded.size()) return Incomplete();
    const absl::Status verified =
        VerifyEncoding(download.object, download.encoded);
    if (!verified.ok()) download = {};
    return verified;
  }

  absl::Status FetchParameters(const v1::FetchParametersRequest& request,
                               ParametersDownload& download) override {
    AwaitConnection(*bulk_channel_);
    Call call(*this, download.bytes.size());
    RETURN_IF_ERROR(call.status());
    v1::FetchParametersRequest resumed = request;
    resumed.set_offset(download.received);
    const auto stream = bulk_->FetchParameters(&call.context(), resumed);
    v1::FetchParametersResponse response;
    while (stream->Read(&response)) {
      if (response.has_head()) {
        if (response.total_bytes() > kMaxObjectBytes) {
          return TooLarge(response.total_bytes());
        }
        download.head = response.head();
        download.bytes.resize(response.total_bytes());
      }
      RETURN_IF_ERROR(
          Take(response.chunk(), download.bytes, download.received));
    }
    RETURN_IF_ERROR(Explain(stream->Finish()));
    if (download.received < download.bytes.size()) return Incomplete();
    if (Digest128(download.bytes) != download.head.digest()) {
      const absl::Status lost = absl::DataLossError(absl::StrCat(
          "the parameters of fragment ", request.fragment(), " at version ",
          request.version(), " do not match their digest; fetching them anew"));
      download = {};
      return lost;
    }
    return absl::OkStatus();
  }

  absl::Status Leave(const v1::LeaveRequest& request) override {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
    v1::LeaveResponse response;
    return Explain(control_->Leave(&context, request, &response));
  }

  void Shutdown() override {
    absl::MutexLock lock(&mu_);
    shut_down_ = true;
    for (grpc::ClientContext* context : active_) context->TryCancel();
  }

  uint64_t bytes_up() const override { return bytes_up_; }
  uint64_t bytes_down() const override { return bytes_down_; }

 private:
  // Bounds what a broken or hostile coordinator can make us allocate.
  static constexpr uint64_t kMaxObjectBytes = uint64_t{1} << 40;

  // A call that Shutdown can cancel, with a deadline for `bulk_bytes`.
  class Call {
   public:
    Call(GrpcCoordinatorClient& client, uint64_t bulk_bytes) : client_(client) {
      context_.set_deadline(absl::ToChronoTime(
          absl::Now() + client.options_.call_deadline +
          absl::Seconds(static_cast<double>(bulk_bytes) /
                        client.options_.slowest_bytes_per_second)));
      absl::MutexLock lock(&client_.mu_);
      if (client_.shut_down_) {
        status_ = absl::CancelledError("the client is shut down");
      }
      client_.active_.insert(&context_);
    }
    ~Call() {
      absl::MutexLock lock(&client_.mu_);
      client_.active_.erase(&context_);
    }
    grpc::ClientContext& context() { return context_; }
    const absl::Status& status() const { return status_; }

   private:
    GrpcCoordinatorClient& client_;
    grpc::ClientContext context_;
    absl::Status status_;
  };

  absl::Status Explain(const grpc::Status& status) const {
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      return absl::UnavailableError(
          absl::StrCat("cannot reach the coordinator at ", options_.address,
                       ": ", status.error_message()));
    }
    return FromGrpcStatus(status);
  }

  // A stream that ended early must not pass for a success.
  absl::Status Broken(const grpc::Status& status) const {
    if (status.ok()) return Incomplete();
    return Explain(status);
  }

  static absl::Status Incomplete() {
    return absl::UnavailableError("the coordinator ended the stream early");
  }

  static absl::Status TooLarge(uint64_t bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the coordinator announces an object of ", bytes,
                     " bytes; at most ", kMaxObjectBytes, " are accepted"));
  }

  // Puts `chunk` at `received`, after what came in earlier tries.
  absl::Status Take(const v1::Chunk& chunk, std::string& object,
                    uint64_t& received) {
    if (chunk.data().empty()) return absl::OkStatus();
    ChunkAssembler assembler(absl::MakeSpan(object), received);
    RETURN_IF_ERROR(assembler.Add(chunk));
    received = assembler.next_offset();
    bytes_down_ += chunk.data().size();
    return absl::OkStatus();
  }

  const GrpcCoordinatorClientOptions options_;
  const std::shared_ptr<grpc::Channel> control_channel_;
  const std::shared_ptr<grpc::Channel> bulk_channel_;
  const std::unique_ptr<v1::Coordinator::Stub> control_;
  const std::unique_ptr<v1::Coordinator::Stub> bulk_;
  std::atomic<uint64_t> bytes_up_ = 0;
  std::atomic<uint64_t> bytes_down_ = 0;
  absl::Mutex mu_;
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
  std::set<grpc::ClientContext*> active_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<CoordinatorClient> NewGrpcCoordinatorClient(
    const GrpcCoordinatorClientOptions& options) {
  return std::make_unique<GrpcCoordinatorClient>(options);
}

}  // namespace causeway
