// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/grpc_coordinator_client.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/grpc_status.h"
#include "common/status_macros.h"
#include "common/transport/chunk.h"
#include "common/transport/chunk_message.h"
#include "common/transport/grpc_time.h"
#include "common/transport/link_meter.h"
#include "common/transport/pacer.h"
#include "common/transport/tcp_connections.h"
#include "common/turnstile.h"
#include "grpcpp/grpcpp.h"
#include "proto/coordinator.grpc.pb.h"
#include "quantization/encoded_object.h"
#include "worker/sync/bulk_lanes.h"
#include "worker/sync/bulk_stream.h"
#include "worker/sync/call_group.h"

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
  // Between two exchanges the bulk connections have no call. One that has died
  // should be replaced before the next.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Our own back-off decides when to try again.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  // Despite its name also how long a try may take, which is several round trips
  // with HTTP/2's settings and TLS.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  arguments.SetMaxReceiveMessageSize(16 << 20);
  return grpc::CreateCustomChannel(options.address, options.credentials,
                                   arguments);
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
        control_(v1::Coordinator::NewStub(control_channel_)),
        bulk_(NewChannels(options), &calls_),
        up_(options.now),
        down_(options.now) {
    pacer_.SetRate(options.uplink_bytes_per_second);
  }

  absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) override {
    // The first exchange should not have to wait for it.
    bulk_.Connect();
    AwaitConnection(*control_channel_);
    GroupedCall call(&calls_, Timeout(0));
    v1::JoinResponse response;
    RETURN_IF_ERROR(
        Explain(control_->Join(&call.context(), request, &response)));
    absl::MutexLock lock(&mu_);
    coordinator_ = PeerAddress(call.context().peer());
    return response;
  }

  std::unique_ptr<ControlStream> OpenSession() override {
    AwaitConnection(*control_channel_);
    return std::make_unique<GrpcControlStream>(*control_);
  }

  absl::StatusOr<v1::ContributeResponse> Contribute(
      v1::ContributionHeader header, StreamedEncoding& encoding,
      absl::FunctionRef<void()> sent) override {
    // Side by side two uploads would both come later than the first now does.
    Turnstile::Turn turn(&uploads_);
    const LinkMeter::Transfer transfer(&up_);
    const absl::Duration timeout = Timeout(encoding.max_bytes());
    const int count = bulk_.LanesFor(
        encoding.max_bytes(), ChunkBytes(options_.uplink_bytes_per_second));
    const std::unique_ptr<BulkLane> first =
        bulk_.Open(MethodName("Contribute"), timeout);
    Upload upload = {.header = header,
                     .timeout = timeout,
                     .streams = count,
                     .main = first->stream()};
    const bool open = !encoding.complete();
    v1::ContributeRequest request;
    *request.mutable_header() = std::move(header);
    *request.mutable_header()->mutable_object() = encoding.object();
    request.mutable_header()->set_streams(count);
    if (!upload.main.Write(ToByteBuffer(request))) {
      return Broken(upload.main.Finish());
    }
    // Of what was never offered there is nothing to be resumed.
    if (!open) RETURN_IF_ERROR(ReadAnswer(upload));
    ASSIGN_OR_RETURN(const bool all, SendChunks(upload, encoding));
    if (all) {
      if (open || count > 1) {
        v1::ContributeRequest trailer;
        *trailer.mutable_trailer() = encoding.object();
        upload.main.Write(ToByteBuffer(trailer));
      }
      upload.main.WritesDone();
      for (const auto& lane : upload.further) lane->stream().WritesDone();
      turn.End();
      sent();
      // They end as soon as their chunks are there; one that does not would
      // keep the verdict from coming.
      for (const auto& lane : upload.further) {
        RETURN_IF_ERROR(Explain(lane->stream().Finish()));
      }
    }
    if (!upload.answer.has_value()) RETURN_IF_ERROR(ReadAnswer(upload));
    if (upload.decided()) {
      RETURN_IF_ERROR(Explain(upload.main.Finish()));
      return *upload.answer;
    }
    ASSIGN_OR_RETURN(const v1::ContributeResponse verdict,
                     ReadVerdict(upload.main));
    RETURN_IF_ERROR(Explain(upload.main.Finish()));
    return verdict;
  }

  std::unique_ptr<UpdateStream> FetchUpdate(
      const v1::FetchUpdateRequest& request, uint64_t max_bytes,
      const UpdateDownload& download) override {
    v1::FetchUpdateRequest resumed = request;
    resumed.set_offset(download.encoded.received().size());
    return std::make_unique<GrpcUpdateStream>(
        this, OpenDownload("FetchUpdate", resumed, max_bytes), max_bytes,
        resumed);
  }

  absl::Status FetchParameters(const v1::FetchParametersRequest& request,
                               uint64_t max_bytes,
                               ParametersDownload& download) override {
    v1::FetchParametersRequest resumed = request;
    resumed.set_offset(download.bytes.received().size());
    const Lanes lanes = OpenDownload("FetchParameters", resumed, max_bytes);
    RETURN_IF_ERROR(Receive<v1::FetchParametersResponse>(
        lanes, /*waits=*/false, download.bytes,
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
    context.set_deadline(FromNow(absl::Seconds(5)));
    v1::LeaveResponse response;
    return Explain(control_->Leave(&context, request, &response));
  }

  void Shutdown() override { calls_.Cancel(); }

  uint64_t bytes_up() const override { return up_.bytes(); }
  uint64_t bytes_down() const override { return down_.bytes(); }

  void ReportLinks(v1::IslandProgress& progress) const override {
    v1::LinkUse& up = *progress.mutable_uplink();
    up = up_.Use();
    up.set_pace_bytes_per_second(options_.uplink_bytes_per_second);
    *progress.mutable_downlink() = down_.Use();
    std::string coordinator;
    {
      absl::MutexLock lock(&mu_);
      coordinator = coordinator_;
    }
    absl::Duration round_trip = absl::InfiniteDuration();
    uint64_t retransmitted = 0;
    for (const TcpConnection& connection : OpenTcpConnections()) {
      if (connection.peer != coordinator) continue;
      retransmitted += connection.bytes_retransmitted;
      round_trip = std::min(round_trip, connection.round_trip);
    }
    up.set_tcp_bytes_retransmitted(retransmitted);
    if (round_trip < absl::InfiniteDuration()) {
      progress.set_round_trip_seconds(absl::ToDoubleSeconds(round_trip));
    }
  }

 private:
  using Lanes = std::vector<std::unique_ptr<BulkLane>>;

  class GrpcUpdateStream : public UpdateStream {
   public:
    GrpcUpdateStream(GrpcCoordinatorClient* client, Lanes lanes,
                     uint64_t max_bytes, v1::FetchUpdateRequest request)
        : client_(client),
          lanes_(std::move(lanes)),
          max_bytes_(max_bytes),
          request_(std::move(request)) {}

    absl::Status Receive(UpdateDownload& download,
                         absl::FunctionRef<absl::Status()> progress) override {
      return client_->ReceiveUpdate(lanes_, request_, max_bytes_, download,
                                    progress);
    }

   private:
    GrpcCoordinatorClient* const client_;
    const Lanes lanes_;
    const uint64_t max_bytes_;
    const v1::FetchUpdateRequest request_;
  };

  struct Upload {
    bool decided() const {
      return answer.has_value() &&
             answer->verdict() != v1::ContributeResponse::UPLOAD;
    }

    v1::ContributionHeader header;
    absl::Duration timeout;
    // That may share it.
    int streams = 1;
    BulkStream& main;
    Lanes further;
    // To the header; none before it has come.
    std::optional<v1::ContributeResponse> answer;
  };

  static std::vector<std::shared_ptr<grpc::Channel>> NewChannels(
      const GrpcCoordinatorClientOptions& options) {
    std::vector<std::shared_ptr<grpc::Channel>> channels;
    for (int i = 0; i < options.bulk_connections; ++i) {
      channels.push_back(NewChannel(options));
    }
    return channels;
  }

  // Of a call that carries at most `bulk_bytes`.
  absl::Duration Timeout(uint64_t bulk_bytes) const {
    return options_.call_deadline +
           absl::Seconds(static_cast<double>(bulk_bytes) /
                         options_.slowest_bytes_per_second);
  }

  // Smaller where lanes take turns, so that a small object, too, uses several.
  uint64_t ChunkBytes(double bytes_per_second) const {
    constexpr uint64_t kStriped = 256 << 10;
    return std::min(PacedChunkBytes(bytes_per_second),
                    bulk_.connections() > 1 ? kStriped : kMaxChunkBytes);
  }

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

  // A further stream for the upload that `header` has begun.
  std::unique_ptr<BulkLane> OpenUploadLane(const v1::ContributionHeader& header,
                                           absl::Duration timeout) {
    v1::ContributeRequest request;
    v1::UploadLane& lane = *request.mutable_lane();
    *lane.mutable_identity() = header.identity();
    lane.set_fragment(header.fragment());
    lane.set_base_version(header.base_version());
    auto opened = bulk_.Open(MethodName("Contribute"), timeout);
    opened->stream().Write(ToByteBuffer(request));
    return opened;
  }

  // The answer to the header.
  absl::Status ReadAnswer(Upload& upload) const {
    ASSIGN_OR_RETURN(upload.answer, ReadVerdict(upload.main));
    return absl::OkStatus();
  }

  // Sends the encoding from where the answer says, or before there is one from
  // its beginning, as it becomes ready: a chunk over each stream in turn.
  // False if the answer leaves nothing to send, or the main stream is broken,
  // which its next message explains.
  absl::StatusOr<bool> SendChunks(Upload& upload, StreamedEncoding& encoding) {
    const uint64_t chunk_bytes = ChunkBytes(options_.uplink_bytes_per_second);
    uint64_t offset =
        upload.answer.has_value() ? upload.answer->next_offset() : 0;
    // Further streams are let in once the upload is open.
    for (int next = 0;;
         next = upload.answer.has_value() ? (next + 1) % upload.streams : 0) {
      if (!upload.answer.has_value() && upload.main.CanRead()) {
        RETURN_IF_ERROR(ReadAnswer(upload));
      }
      if (upload.decided()) return false;
      const absl::string_view ready = encoding.Await(offset + chunk_bytes);
      if (offset >= ready.size()) return true;
      const Chunk chunk = CutChunk(ready, offset, chunk_bytes);
      Pace(chunk.size());
      if (next > static_cast<int>(upload.further.size())) {
        upload.further.push_back(OpenUploadLane(upload.header, upload.timeout));
      }
      BulkStream& stream =
          next == 0 ? upload.main : upload.further[next - 1]->stream();
      if (!stream.Write(ToByteBuffer(v1::ContributeRequest(),
                                     v1::ContributeRequest::kChunkFieldNumber,
                                     chunk, encoding.owner()))) {
        if (next == 0) return false;
        return Broken(stream.Finish());
      }
      up_.Add(chunk.size(), /*again=*/offset < encoding.sent());
      offset += chunk.size();
      encoding.set_sent(std::max(encoding.sent(), offset));
    }
  }

  // Waits until so many bytes may be sent.
  void Pace(uint64_t bytes) {
    const absl::Time now = options_.now();
    const absl::Duration wait = pacer_.Take(now, bytes) - now;
    if (wait <= absl::ZeroDuration()) return;
    up_.AddPaced(wait);
    calls_.Sleep(wait);
  }

  // Starts one try of a download of at most `max_bytes`, of which
  // `request.offset` have come.
  template <typename Request>
  Lanes OpenDownload(absl::string_view method, Request request,
                     uint64_t max_bytes) {
    const double pace = options_.downlink_bytes_per_second;
    const int count = bulk_.LanesFor(
        max_bytes - std::min(max_bytes, request.offset()), ChunkBytes(pace));
    v1::StreamOptions& stream = *request.mutable_stream();
    stream.set_count(count);
    stream.set_chunk_bytes(static_cast<uint32_t>(ChunkBytes(pace)));
    stream.set_pace_bytes_per_second(pace);
    Lanes lanes;
    for (int i = 0; i < count; ++i) {
      stream.set_index(i);
      lanes.push_back(bulk_.Open(MethodName(method), Timeout(max_bytes)));
      lanes[i]->stream().Write(ToByteBuffer(request));
      lanes[i]->stream().WritesDone();
    }
    return lanes;
  }

  // Receives it into `bytes`, which `describe` makes room in when the first
  // response has come. If the download waits for something, it begins with
  // that.
  template <typename Response>
  absl::Status Receive(
      const Lanes& lanes, bool waits, IncomingBytes& bytes,
      absl::FunctionRef<absl::Status(const Response&)> describe,
      absl::FunctionRef<absl::Status()> progress) {
    std::optional<LinkMeter::Transfer> transfer;
    if (!waits) transfer.emplace(&down_);
    // The next chunk comes over the next lane, until one has no more.
    Response response;
    for (size_t turn = 0;; ++turn) {
      BulkStream& from = lanes[turn % lanes.size()]->stream();
      bool has_chunk = false;
      grpc::ByteBuffer message;
      Chunk chunk;
      while (!has_chunk && from.Read(&message)) {
        if (!transfer.has_value()) transfer.emplace(&down_);
        ASSIGN_OR_RETURN(has_chunk,
                         ParseByteBuffer(message, Response::kChunkFieldNumber,
                                         response, chunk));
        // Each lane describes the object; one will do.
        if (response.has_head() && turn == 0) {
          RETURN_IF_ERROR(describe(response));
        }
      }
      if (!has_chunk) break;
      RETURN_IF_ERROR(bytes.Add(chunk));
      down_.Add(chunk.size());
      RETURN_IF_ERROR(progress());
    }
    for (const std::unique_ptr<BulkLane>& lane : lanes) {
      RETURN_IF_ERROR(Explain(lane->stream().Finish()));
    }
    return bytes.received().size() < bytes.size() ? Incomplete()
                                                  : absl::OkStatus();
  }

  absl::Status ReceiveUpdate(const Lanes& lanes,
                             const v1::FetchUpdateRequest& request,
                             uint64_t max_bytes, UpdateDownload& download,
                             absl::FunctionRef<absl::Status()> progress) {
    RETURN_IF_ERROR(Receive<v1::FetchUpdateResponse>(
        lanes, request.wait(), download.encoded,
        [&](const v1::FetchUpdateResponse& response) -> absl::Status {
          if (request.offset() > 0 &&
              download.object.digest() != response.object().digest()) {
            download = {};
            return absl::AbortedError("the update changed between two tries");
          }
          download.head = response.head();
          download.includes_island = response.includes_island();
          download.island_share = response.island_share();
          download.includes_other = response.includes_other();
          if (!response.has_object()) {
            return absl::NotFoundError(absl::StrCat(
                "the coordinator no longer keeps the update to version ",
                response.head().version()));
          }
          download.object = response.object();
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
  const std::unique_ptr<v1::Coordinator::Stub> control_;
  CallGroup calls_;
  BulkLanes bulk_;
  Turnstile uploads_;
  Pacer pacer_;
  LinkMeter up_;
  LinkMeter down_;

  mutable absl::Mutex mu_;
  // The other end of the connections; empty before the join.
  std::string coordinator_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<CoordinatorClient> NewGrpcCoordinatorClient(
    const GrpcCoordinatorClientOptions& options) {
  return std::make_unique<GrpcCoordinatorClient>(options);
}

}  // namespace causeway
