// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/bulk_transfers.h"

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/trace.h"
#include "common/transport/chunk.h"
#include "common/transport/chunk_message.h"
#include "proto/coordinator.grpc.pb.h"

namespace causeway {
namespace {

// Links paced to this many bytes per second or more get parameters
// uncompressed. A coordinator compresses 600 MB/s on each connection
// (docs/benchmarks.md, "Parameters for a joiner").
constexpr double kFastestCompressed = 250e6;

// The bytes of a chunk if lanes take turns, so that a small object also uses
// several lanes.
constexpr uint64_t kSmallChunk = 256 << 10;

// The bytes of a follower's chunk, which must come within
// NearFollower::kPatience although all lanes of all downloads share the link.
constexpr uint64_t kFollowerChunk = 64 << 10;

// The largest encoding that goes whole with its header. Coordinators of earlier
// versions take a first message of up to kMaxFieldBytes.
constexpr uint64_t kBesideHeader = kMaxFieldBytes - (4 << 10);

std::string MethodName(absl::string_view method) {
  return absl::StrCat("/", v1::Coordinator::service_full_name(), "/", method);
}
std::string MethodOf(const v1::FetchUpdateRequest&) {
  return MethodName("FetchUpdate");
}
std::string MethodOf(const v1::FetchParametersRequest&) {
  return MethodName("FetchParameters");
}

absl::Status Incomplete(absl::string_view peer) {
  return absl::UnavailableError(absl::StrCat(peer, " ended the stream early"));
}

const std::string& DigestOf(const v1::FetchUpdateResponse& update) {
  return update.object().digest();
}
const std::string& DigestOf(const v1::FetchParametersResponse& parameters) {
  return parameters.head().digest();
}

// Returns the size in bytes of the object that a response describes.
absl::StatusOr<uint64_t> SizeOf(const v1::FetchUpdateResponse& update) {
  if (update.has_object()) return update.object().encoded_bytes();
  return absl::NotFoundError(
      absl::StrCat("the coordinator no longer keeps the update to version ",
                   update.head().version()));
}
absl::StatusOr<uint64_t> SizeOf(const v1::FetchParametersResponse& parameters) {
  return parameters.total_bytes();
}

}  // namespace

struct BulkTransfers::Upload {
  bool decided() const {
    return answer.has_value() &&
           answer->verdict() != v1::ContributeResponse::UPLOAD;
  }

  v1::ContributionHeader header;
  absl::Duration timeout;
  // The number of streams that may share the upload.
  int streams = 1;
  BulkStream& main;
  Lanes further;
  // The answer to the header, once it has arrived.
  std::optional<v1::ContributeResponse> answer;
};

class BulkTransfers::UpdateTransfer : public UpdateStream {
 public:
  UpdateTransfer(BulkTransfers* transfers, Incoming incoming,
                 uint64_t max_bytes, v1::FetchUpdateRequest request)
      : transfers_(transfers),
        incoming_(std::move(incoming)),
        max_bytes_(max_bytes),
        request_(std::move(request)) {}

  absl::Status Receive(UpdateDownload& download,
                       absl::FunctionRef<absl::Status()> progress) override {
    std::optional<TraceSpan> span;
    span.emplace("await update", request_.fragment());
    return transfers_->ReceiveWhole(
        incoming_, request_, max_bytes_, download,
        [&] { span.emplace("download", request_.fragment()); }, progress);
  }

 private:
  BulkTransfers* const transfers_;
  const Incoming incoming_;
  const uint64_t max_bytes_;
  const v1::FetchUpdateRequest request_;
};

BulkTransfers::BulkTransfers(
    const GrpcCoordinatorClientOptions& options,
    std::vector<std::shared_ptr<grpc::Channel>> channels, CallGroup* calls)
    : options_(options),
      calls_(calls),
      bulk_(std::move(channels), calls),
      near_(options, calls),
      up_(LinkMeter::Counts::kOutgoing, options.now),
      down_(LinkMeter::Counts::kArrived, options.now) {
  pacer_.SetRate(options.uplink_bytes_per_second);
}

v1::LinkUse BulkTransfers::UplinkUse() const {
  v1::LinkUse use = up_.Use();
  use.set_pace_bytes_per_second(pacer_.rate());
  return use;
}

uint64_t BulkTransfers::ChunkBytes(double bytes_per_second) const {
  return std::min(PacedChunkBytes(bytes_per_second),
                  bulk_.connections() > 1 ? kSmallChunk : kMaxChunkBytes);
}

absl::StatusOr<v1::ContributeResponse> BulkTransfers::Contribute(
    v1::ContributionHeader header, StreamedEncoding& encoding,
    absl::Duration round_trip, absl::FunctionRef<void()> sent) {
  // Uploads take turns: the first arrives earlier than if two shared the link.
  std::optional<TraceSpan> span;
  span.emplace("turn", header.fragment());
  std::optional<absl::MutexLock> turn(&uploads_);
  span.emplace("offer", header.fragment());
  const LinkMeter::Transfer transfer(&up_, round_trip);
  const absl::Duration timeout = CallTimeout(options_, encoding.max_bytes());
  const uint64_t chunk_bytes = ChunkBytes(options_.uplink_bytes_per_second);
  const int count = bulk_.LanesFor(encoding.max_bytes(), chunk_bytes);
  const bool is_light =
      encoding.max_bytes() <= std::min(kBesideHeader, chunk_bytes) &&
      encoding.sent() == 0;
  if (is_light) {
    encoding.Await(encoding.max_bytes());
    RETURN_IF_ERROR(encoding.status());
    Pace(encoding.object().encoded_bytes());
  }
  const std::unique_ptr<BulkLane> first =
      bulk_.OpenOne(MethodName("Contribute"), timeout);
  Upload upload = {.header = std::move(header),
                   .timeout = timeout,
                   .streams = count,
                   .main = first->stream()};
  const bool open = !encoding.complete();
  if (!SendHeader(upload, encoding, /*with_chunk=*/is_light)) {
    return Broken(upload.main.Finish());
  }
  if (is_light) {
    turn.reset();
    span.emplace("verdict", upload.header.fragment());
    sent();
  }
  // An object that was never offered cannot be resumed, so its answer can wait.
  if (!open) RETURN_IF_ERROR(ReadAnswer(upload));
  span.emplace("upload", upload.header.fragment());
  ASSIGN_OR_RETURN(const bool all, SendChunks(upload, encoding));
  // The call breaks off, because part of an encoding is useless.
  RETURN_IF_ERROR(encoding.status());
  if (all) {
    if (open || count > 1) {
      v1::ContributeRequest trailer;
      *trailer.mutable_trailer() = encoding.object();
      upload.main.WriteLast(ToByteBuffer(trailer));
    } else {
      upload.main.WritesDone();
    }
    for (const auto& lane : upload.further) lane->stream().WritesDone();
    span.emplace("verdict", upload.header.fragment());
    if (!is_light) {
      turn.reset();
      sent();
    }
    // These streams end as soon as their chunks are received; the verdict comes
    // no earlier.
    for (const auto& lane : upload.further) {
      RETURN_IF_ERROR(
          CallStatus(CoordinatorName(options_), lane->stream().Finish()));
    }
  }
  if (!upload.answer.has_value()) RETURN_IF_ERROR(ReadAnswer(upload));
  if (upload.decided()) {
    RETURN_IF_ERROR(
        CallStatus(CoordinatorName(options_), upload.main.Finish()));
    return *upload.answer;
  }
  ASSIGN_OR_RETURN(const v1::ContributeResponse verdict,
                   ReadVerdict(upload.main));
  RETURN_IF_ERROR(CallStatus(CoordinatorName(options_), upload.main.Finish()));
  return verdict;
}

// Sends the header and, if `with_chunk`, all of the encoding with it. Returns
// false if the stream is broken.
bool BulkTransfers::SendHeader(Upload& upload, StreamedEncoding& encoding,
                               bool with_chunk) {
  v1::ContributeRequest request;
  *request.mutable_header() = upload.header;
  *request.mutable_header()->mutable_object() = encoding.object();
  request.mutable_header()->set_streams(upload.streams);
  if (!with_chunk) return upload.main.Write(ToByteBuffer(request));
  const Chunk chunk = CutChunk(encoding.Await(0), 0);
  if (!upload.main.Write(
          ToByteBuffer(request, v1::ContributeRequest::kFirstChunkFieldNumber,
                       chunk, encoding.owner()))) {
    return false;
  }
  up_.Add(chunk.size());
  encoding.set_sent(chunk.size());
  return true;
}

// A stream that ended early is not a success, whatever its status.
absl::Status BulkTransfers::Broken(const grpc::Status& status) const {
  if (status.ok()) return Incomplete(CoordinatorName(options_));
  return CallStatus(CoordinatorName(options_), status);
}

absl::StatusOr<v1::ContributeResponse> BulkTransfers::ReadVerdict(
    BulkStream& stream) const {
  grpc::ByteBuffer message;
  if (!stream.Read(&message)) return Broken(stream.Finish());
  v1::ContributeResponse response;
  RETURN_IF_ERROR(ParseByteBuffer(message, response));
  return response;
}

absl::Status BulkTransfers::ReadAnswer(Upload& upload) const {
  ASSIGN_OR_RETURN(upload.answer, ReadVerdict(upload.main));
  return absl::OkStatus();
}

// Opens a further stream for the upload that `header` has begun.
std::unique_ptr<BulkLane> BulkTransfers::OpenUploadLane(
    const v1::ContributionHeader& header, absl::Duration timeout) {
  v1::ContributeRequest request;
  v1::UploadLane& lane = *request.mutable_lane();
  *lane.mutable_identity() = header.identity();
  lane.set_fragment(header.fragment());
  lane.set_base_version(header.base_version());
  auto opened = bulk_.OpenOne(MethodName("Contribute"), timeout);
  opened->stream().Write(ToByteBuffer(request));
  return opened;
}

// Sends the encoding as it becomes ready, a chunk over each stream in turn:
// from the answer's offset or, before the answer has come, from the beginning.
// Returns false if the answer leaves nothing to send, or if the main stream is
// broken; reading from it then says why.
absl::StatusOr<bool> BulkTransfers::SendChunks(Upload& upload,
                                               StreamedEncoding& encoding) {
  const uint64_t chunk_bytes = ChunkBytes(options_.uplink_bytes_per_second);
  uint64_t offset =
      upload.answer.has_value() ? upload.answer->next_offset() : 0;
  // The coordinator admits further streams once the upload is open.
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

// Waits until `bytes` bytes may be sent.
void BulkTransfers::Pace(uint64_t bytes) {
  const absl::Time now = options_.now();
  const absl::Duration wait = pacer_.Take(now, bytes) - now;
  if (wait <= absl::ZeroDuration()) return;
  up_.AddPaced(wait);
  calls_->Sleep(wait);
}

std::unique_ptr<UpdateStream> BulkTransfers::FetchUpdate(
    const v1::FetchUpdateRequest& request, uint64_t max_bytes,
    const UpdateDownload& download) {
  v1::FetchUpdateRequest resumed = request;
  resumed.set_offset(download.bytes.received().size());
  resumed.set_region(near_.region());
  Incoming incoming = OpenDownload(resumed, max_bytes);
  incoming.waits = request.wait();
  return std::make_unique<UpdateTransfer>(this, std::move(incoming), max_bytes,
                                          resumed);
}

absl::Status BulkTransfers::FetchParameters(
    const v1::FetchParametersRequest& request, uint64_t max_bytes,
    ParametersDownload& download) {
  v1::FetchParametersRequest resumed = request;
  resumed.set_offset(download.bytes.received().size());
  resumed.set_region(near_.region());
  return ReceiveWhole(
      OpenDownload(resumed, max_bytes), resumed, max_bytes, download, [] {},
      [] { return absl::OkStatus(); });
}

// Starts a try to download at most `max_bytes`, of which `request.offset` have
// arrived, from `near` or, if `near` is null, from the coordinator.
template <typename Request>
BulkTransfers::Incoming BulkTransfers::OpenDownload(Request request,
                                                    uint64_t max_bytes,
                                                    NearFollower::Link* near) {
  const double pace = options_.downlink_bytes_per_second;
  const bool is_near = near != nullptr;
  BulkLanes& lanes = is_near ? near->lanes : bulk_;
  const uint64_t chunk_bytes =
      is_near ? std::min(ChunkBytes(pace), kFollowerChunk) : ChunkBytes(pace);
  const int count = lanes.LanesFor(
      max_bytes - std::min(max_bytes, request.offset()), chunk_bytes);
  v1::StreamOptions& stream = *request.mutable_stream();
  stream.set_count(count);
  stream.set_chunk_bytes(static_cast<uint32_t>(chunk_bytes));
  stream.set_pace_bytes_per_second(pace);
  Incoming incoming;
  incoming.peer = is_near ? absl::StrCat("the follower at ", near->address)
                          : CoordinatorName(options_);
  if (is_near) incoming.patience = NearFollower::kPatience;
  if constexpr (std::is_same_v<Request, v1::FetchParametersRequest>) {
    request.set_compress(pace < kFastestCompressed);
  }
  incoming.lanes =
      lanes.Open(MethodOf(request), CallTimeout(options_, max_bytes), count);
  for (int i = 0; i < count; ++i) {
    stream.set_index(i);
    incoming.lanes[i]->stream().WriteLast(ToByteBuffer(request));
  }
  return incoming;
}

// Receives a download into `bytes`, in which `describe` makes room at the first
// response. A download that waits is metered from its first chunk on, because
// it is unknown when that set out.
template <typename Response>
absl::Status BulkTransfers::Receive(
    const Incoming& incoming, IncomingBytes& bytes,
    absl::FunctionRef<absl::Status(const Response&)> describe,
    absl::FunctionRef<absl::Status()> progress) {
  std::optional<LinkMeter::Transfer> transfer;
  if (!incoming.waits) transfer.emplace(&down_);
  // Chunks come over each lane in turn, until one has no more.
  Response response;
  size_t turn = 0;
  for (;; ++turn) {
    BulkStream& from = incoming.lanes[turn % incoming.lanes.size()]->stream();
    bool has_chunk = false;
    grpc::ByteBuffer message;
    Chunk chunk;
    while (!has_chunk && from.Read(&message, incoming.patience)) {
      ASSIGN_OR_RETURN(has_chunk,
                       ParseByteBuffer(message, Response::kChunkFieldNumber,
                                       response, chunk));
      // Every lane describes the object; one description is enough.
      if (response.has_head() && turn == 0) {
        RETURN_IF_ERROR(describe(response));
      }
    }
    if (!has_chunk) break;
    RETURN_IF_ERROR(bytes.Add(chunk));
    down_.Add(chunk.size());
    if (!transfer.has_value() && turn + 1 >= incoming.lanes.size()) {
      transfer.emplace(&down_);
    }
    RETURN_IF_ERROR(progress());
  }
  // The lane without further chunks says why; a broken lane does not wait for
  // the others.
  for (size_t i = 0; i < incoming.lanes.size(); ++i, ++turn) {
    RETURN_IF_ERROR(CallStatus(
        incoming.peer,
        incoming.lanes[turn % incoming.lanes.size()]->stream().Finish()));
  }
  return bytes.received().size() < bytes.size() ? Incomplete(incoming.peer)
                                                : absl::OkStatus();
}

// Receives the remaining bytes of `request` from a follower or, if that fails,
// from the coordinator.
template <typename Request, typename Response>
absl::Status BulkTransfers::ReceiveFrom(
    const std::string& follower, Request request, uint64_t max_bytes,
    Download<Response>& download, absl::FunctionRef<absl::Status()> progress) {
  const auto check = [&](const Response& response) {
    return response.head().digest() == download.description.head().digest()
               ? absl::OkStatus()
               : absl::DataLossError("it has another version");
  };
  request.clear_region();
  request.set_offset(download.bytes.received().size());
  const std::shared_ptr<NearFollower::Link> link = near_.Connect(follower);
  absl::Status progressed;
  const absl::Status received = Receive<Response>(
      OpenDownload(request, max_bytes, link.get()), download.bytes, check,
      [&] { return progressed = progress(); });
  near_.Ended(follower, received);
  if (received.ok() || !progressed.ok()) return received;
  request.set_offset(download.bytes.received().size());
  return Receive<Response>(OpenDownload(request, max_bytes), download.bytes,
                           check, progress);
}

// Receives and verifies the object that `request` has asked for. Calls
// `described` once the coordinator has described it.
template <typename Request, typename Response>
absl::Status BulkTransfers::ReceiveWhole(
    const Incoming& incoming, const Request& request, uint64_t max_bytes,
    Download<Response>& download, absl::FunctionRef<void()> described,
    absl::FunctionRef<absl::Status()> progress) {
  std::string follower;
  absl::Status received = Receive<Response>(
      incoming, download.bytes,
      [&](const Response& response) -> absl::Status {
        described();
        if (request.offset() > 0 &&
            DigestOf(download.description) != DigestOf(response)) {
          download = {};
          return absl::AbortedError(absl::StrCat(
              "fragment ", request.fragment(), " changed between two tries"));
        }
        download.description = response;
        ASSIGN_OR_RETURN(const uint64_t size, SizeOf(response));
        // The bound protects against a broken or hostile coordinator.
        if (size > max_bytes) {
          return absl::InvalidArgumentError(
              absl::StrCat("the coordinator announces an object of ", size,
                           " bytes; it can have at most ", max_bytes));
        }
        if (download.bytes.received().empty()) {
          download.bytes = IncomingBytes(size);
        }
        follower = response.follower();
        return absl::OkStatus();
      },
      progress);
  if (!received.ok() && !follower.empty()) {
    received = ReceiveFrom(follower, request, max_bytes, download, progress);
  }
  RETURN_IF_ERROR(received);
  // A broken coordinator may describe the same bytes with another size.
  ASSIGN_OR_RETURN(const uint64_t size, SizeOf(download.description));
  if (download.bytes.received().size() == size &&
      download.bytes.digest() == DigestOf(download.description)) {
    return absl::OkStatus();
  }
  const absl::Status damaged = absl::DataLossError(
      absl::StrCat("fragment ", request.fragment(),
                   " arrived damaged: its digest differs; fetching it again"));
  if (!follower.empty()) near_.Ended(follower, damaged);
  download = {};
  return damaged;
}

}  // namespace causeway
