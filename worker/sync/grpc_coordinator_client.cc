// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/grpc_coordinator_client.h"

#include <atomic>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "common/transport/chunk.h"
#include "common/transport/chunk_message.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "proto/coordinator.grpc.pb.h"
#include "quantization/encoded_object.h"
#include "worker/sync/bulk_stream.h"

namespace causeway {
namespace {

std::shared_ptr<grpc::Channel> NewChannel(
    const GrpcCoordinatorClientOptions& options) {
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
  return grpc::CreateCustomChannel(options.address, options.credentials,
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

std::string MethodName(absl::string_view method) {
  return absl::StrCat("/", v1::Coordinator::service_full_name(), "/", method);
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
        control_channel_(NewChannel(options)),
        bulk_channel_(NewChannel(options)),
        control_(v1::Coordinator::NewStub(control_channel_)),
        bulk_(bulk_channel_) {}

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
      v1::ContributionHeader header, StreamedEncoding& encoding) override {
    AwaitConnection(*bulk_channel_);
    Call call(*this, encoding.max_bytes());
    RETURN_IF_ERROR(call.status());
    BulkStream stream(bulk_, MethodName("Contribute"), &call.context());
    const bool open = !encoding.complete();
    v1::ContributeRequest request;
    *request.mutable_header() = std::move(header);
    *request.mutable_header()->mutable_object() = encoding.object();
    if (!stream.Write(ToByteBuffer(request))) return Broken(stream.Finish());
    // The beginning can be encoded while the answer is on its way.
    encoding.Await(kMaxChunkBytes);
    ASSIGN_OR_RETURN(v1::ContributeResponse response, ReadVerdict(stream));
    if (response.verdict() != v1::ContributeResponse::UPLOAD) {
      RETURN_IF_ERROR(Explain(stream.Finish()));
      return response;
    }
    if (SendChunks(stream, encoding, response.next_offset()) && open) {
      v1::ContributeRequest trailer;
      *trailer.mutable_trailer() = encoding.object();
      stream.Write(ToByteBuffer(trailer));
    }
    stream.WritesDone();
    ASSIGN_OR_RETURN(response, ReadVerdict(stream));
    RETURN_IF_ERROR(Explain(stream.Finish()));
    return response;
  }

  absl::Status FetchUpdate(
      const v1::FetchUpdateRequest& request, uint64_t max_bytes,
      UpdateDownload& download,
      absl::FunctionRef<absl::Status()> progress) override {
    v1::FetchUpdateRequest resumed = request;
    resumed.set_offset(download.encoded.received().size());
    RETURN_IF_ERROR(Download<v1::FetchUpdateResponse>(
        "FetchUpdate", resumed, max_bytes, download.encoded,
        [&](const v1::FetchUpdateResponse& response) -> absl::Status {
          if (resumed.offset() > 0 &&
              download.object.digest() != response.object().digest()) {
            download = {};
            return absl::AbortedError("the update changed between two tries");
          }
          download.head = response.head();
          download.object = response.object();
          download.includes_island = response.includes_island();
          return MakeRoom(response.object().encoded_bytes(), max_bytes,
                          download.encoded);
        },
        progress));
    const absl::Status verified =
        CheckArrival(download.object, download.encoded.received().size(),
                     download.encoded.digest());
    if (!verified.ok()) download = {};
    return verified;
  }

  absl::Status FetchParameters(const v1::FetchParametersRequest& request,
                               uint64_t max_bytes,
                               ParametersDownload& download) override {
    v1::FetchParametersRequest resumed = request;
    resumed.set_offset(download.bytes.received().size());
    RETURN_IF_ERROR(Download<v1::FetchParametersResponse>(
        "FetchParameters", resumed, max_bytes, download.bytes,
        [&](const v1::FetchParametersResponse& response) {
          download.head = response.head();
          return MakeRoom(response.total_bytes(), max_bytes, download.bytes);
        },
        [] { return absl::OkStatus(); }));
    if (download.bytes.digest() != download.head.digest()) {
      download = {};
      return absl::DataLossError(absl::StrCat(
          "the parameters of fragment ", request.fragment(), " at version ",
          request.version(), " do not match their digest; fetching them anew"));
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

  // Of a Contribute stream.
  absl::StatusOr<v1::ContributeResponse> ReadVerdict(BulkStream& stream) const {
    grpc::ByteBuffer message;
    if (!stream.Read(&message)) return Broken(stream.Finish());
    v1::ContributeResponse response;
    RETURN_IF_ERROR(ParseByteBuffer(message, response));
    return response;
  }

  // Sends the encoding from `offset` on as it becomes ready. False if the
  // stream broke; then its Finish says why.
  bool SendChunks(BulkStream& stream, StreamedEncoding& encoding,
                  uint64_t offset) {
    while (true) {
      const absl::string_view ready = encoding.Await(offset + kMaxChunkBytes);
      if (offset >= ready.size()) return true;
      const Chunk chunk = CutChunk(ready, offset);
      if (!stream.Write(ToByteBuffer(v1::ContributeRequest(),
                                     v1::ContributeRequest::kChunkFieldNumber,
                                     chunk, encoding.owner()))) {
        return false;
      }
      offset += chunk.size();
      bytes_up_ += chunk.size();
    }
  }

  // One try of a download of at most `max_bytes` into `bytes`, which `describe`
  // makes room in when the first response has come.
  template <typename Response, typename Request>
  absl::Status Download(
      absl::string_view method, const Request& request, uint64_t max_bytes,
      IncomingBytes& bytes,
      absl::FunctionRef<absl::Status(const Response&)> describe,
      absl::FunctionRef<absl::Status()> progress) {
    AwaitConnection(*bulk_channel_);
    Call call(*this, max_bytes);
    RETURN_IF_ERROR(call.status());
    BulkStream stream(bulk_, MethodName(method), &call.context());
    stream.Write(ToByteBuffer(request));
    stream.WritesDone();
    grpc::ByteBuffer message;
    Response response;
    Chunk chunk;
    while (stream.Read(&message)) {
      ASSIGN_OR_RETURN(const bool has_chunk,
                       ParseByteBuffer(message, Response::kChunkFieldNumber,
                                       response, chunk));
      if (response.has_head()) RETURN_IF_ERROR(describe(response));
      if (!has_chunk) continue;
      RETURN_IF_ERROR(bytes.Add(chunk));
      bytes_down_ += chunk.size();
      RETURN_IF_ERROR(progress());
    }
    RETURN_IF_ERROR(Explain(stream.Finish()));
    return bytes.received().size() < bytes.size() ? Incomplete()
                                                  : absl::OkStatus();
  }

  // Room for an object of `size` bytes, unless `bytes` is part of it already.
  // The bound is against what a broken or hostile coordinator announces.
  static absl::Status MakeRoom(uint64_t size, uint64_t max_bytes,
                               IncomingBytes& bytes) {
    if (size > max_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("the coordinator announces an object of ", size,
                       " bytes; it can have at most ", max_bytes));
    }
    if (bytes.received().empty()) bytes = IncomingBytes(size);
    return absl::OkStatus();
  }

  const GrpcCoordinatorClientOptions options_;
  const std::shared_ptr<grpc::Channel> control_channel_;
  const std::shared_ptr<grpc::Channel> bulk_channel_;
  const std::unique_ptr<v1::Coordinator::Stub> control_;
  grpc::GenericStub bulk_;
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
