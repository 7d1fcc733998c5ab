// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// FetchUpdate and FetchParameters, of a coordinator and of a follower: send
// stored bytes in paced chunks.
#ifndef SERVER_EDGE_DOWNLOAD_CALL_H_
#define SERVER_EDGE_DOWNLOAD_CALL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/listeners.h"
#include "common/status_macros.h"
#include "common/transport/chunk.h"
#include "common/transport/chunk_message.h"
#include "common/transport/grpc_status.h"
#include "common/transport/grpc_time.h"
#include "grpcpp/alarm.h"
#include "grpcpp/grpcpp.h"
#include "proto/coordinator.pb.h"
#include "server/edge/call.h"
#include "server/edge/disk_threads.h"
#include "server/edge/island_links.h"
#include "server/opened.h"

namespace causeway {

// The sender. Its pointers must outlive the calls.
struct DownloadServer {
  // The news after which waiting downloads try again.
  Listeners* news = nullptr;
  std::atomic<uint64_t>* bytes_sent = nullptr;
  // Downloads are opened on these threads.
  DiskThreads* openers = nullptr;
  IslandLinks* links = nullptr;
  // Returns the address of a follower from which an island in `region` should
  // fetch instead, or "". May be null.
  std::function<std::string(const std::string& region,
                            const std::string& island)>
      find_near;
};

// Checks the options of a download. INVALID_ARGUMENT says which value is out of
// range.
absl::Status CheckDownload(const v1::StreamOptions& stream);

// Returns the size of all chunks but the last.
uint64_t ChunkBytes(const v1::StreamOptions& stream);

// One stream of a download. gRPC calls one method at a time, except OnCancel.
// News may come on any thread.
template <typename Request, typename Response>
class DownloadCall : public Call {
 public:
  // Opens the object that a request asks for, or returns an error if it cannot
  // be had. Returns nullopt if it does not exist yet; the call then tries again
  // at the next news.
  using Opener = std::function<absl::StatusOr<std::optional<Opened<Response>>>(
      const Request&)>;
  // Called when a stream has sent its part.
  using Sent = std::function<void(const v1::FragmentHead&)>;

  // `sent` may be null.
  DownloadCall(BegunCall begun, const DownloadServer& server, Opener open,
               Sent sent)
      : Call(std::move(begun)),
        server_(server),
        open_(std::move(open)),
        sent_(std::move(sent)) {
    Read(&received_);
  }

  void OnRead(bool ok) override {
    if (!ok) return Finish(ToGrpcStatus(absl::CancelledError("no request")));
    // Listen before the first try, so that no news is missed.
    listener_ = server_.news->Add([this] { OnNews(); });
    server_.openers->Run([this] { Try(); });
  }

  void OnWritten(bool ok) override {
    if (!ok) return Finish(ToGrpcStatus(absl::CancelledError("client gone")));
    *server_.bytes_sent += sending_;
    if (offset_ >= stored_.bytes.size()) {
      NoteSent();
      return Finish(grpc::Status::OK);
    }
    message_.Clear();
    WriteChunk();
  }

  void OnCancel() override {
    {
      absl::MutexLock lock(&mu_);
      cancelled_ = true;
      // A cancelled call does not wait for the pacer.
      if (alarm_ != nullptr) alarm_->Cancel();
      if (state_ != State::kWaiting) return;
      state_ = State::kOpened;
    }
    Finish(ToGrpcStatus(absl::CancelledError("client gone")));
  }

  void OnEnd() override { server_.news->Remove(listener_); }

 private:
  enum class State {
    // The request is read, or Try runs or is about to run.
    kTrying,
    // There was nothing to send; the call waits for news or its end.
    kWaiting,
    // The download is under way, or the call is ending.
    kOpened,
  };

  void OnNews() {
    absl::MutexLock lock(&mu_);
    news_ = true;
    if (state_ != State::kWaiting) return;
    state_ = State::kTrying;
    server_.openers->Run([this] { Try(); });
  }

  void Try() {
    while (true) {
      {
        absl::MutexLock lock(&mu_);
        news_ = false;
      }
      const absl::StatusOr<bool> is_there = Open();
      absl::Status end = is_there.status();
      {
        absl::MutexLock lock(&mu_);
        if (cancelled_) end = absl::CancelledError("client gone");
        if (end.ok() && !*is_there) {
          if (news_) continue;
          state_ = State::kWaiting;
          return;
        }
        state_ = State::kOpened;
      }
      if (!end.ok()) return Finish(ToGrpcStatus(end));
      return Begin();
    }
  }

  // Opens what is asked for. Returns false if it does not exist yet.
  absl::StatusOr<bool> Open() {
    // Each try checks again whether the caller may ask.
    RETURN_IF_ERROR(received_.Valid()
                        ? ParseRequest(caller(), received_, request_)
                        : caller().Check(request_));
    received_.Clear();
    ASSIGN_OR_RETURN(auto opened, open_(request_));
    if (!opened.has_value()) return false;
    const v1::StreamOptions& stream = request_.stream();
    RETURN_IF_ERROR(CheckDownload(stream));
    stored_ = *std::move(opened);
    message_ = stored_.response;
    const std::string& island = request_.identity().island_id();
    if (server_.find_near != nullptr && !stored_.bytes.empty()) {
      message_.set_follower(server_.find_near(request_.region(), island));
    }
    if (!message_.follower().empty()) {
      stored_.bytes = "";
      sent_ = nullptr;
    }
    // Encodings of updates are compressed already.
    if constexpr (std::is_same_v<Request, v1::FetchParametersRequest>) {
      if (request_.compress()) compress_ = &server_.links->compressed_chunks();
    }
    link_ = server_.links->Get(island);
    link_->BeginDownload(stream.pace_bytes_per_second(), caller().peer());
    return true;
  }

  void Begin() {
    const v1::StreamOptions& stream = request_.stream();
    chunk_bytes_ = ChunkBytes(stream);
    streams_ = std::max(1u, stream.count());
    // The caller may have more bytes than the update, if another coordinator
    // made it again, shorter: the description tells it.
    offset_ = std::min<uint64_t>(request_.offset(), stored_.bytes.size()) +
              stream.index() * chunk_bytes_;
    if (IsLight() && offset_ < stored_.bytes.size()) return WriteChunk();
    // Send the description ahead of the first chunk: an island that has waited
    // starts to measure the link with it.
    buffer_ = ToByteBuffer(message_);
    Write(&buffer_);
  }

  void WriteChunk() {
    Chunk chunk = CutChunk(stored_.bytes, offset_, chunk_bytes_);
    std::shared_ptr<const void> owner = stored_.owner;
    const std::shared_ptr<std::string> memory =
        compress_ != nullptr ? compress_->Allocate(chunk.size()) : nullptr;
    if (memory != nullptr) {
      chunk = CompressChunk(chunk, *memory);
      if (chunk.compression != 0) owner = memory;
    }
    buffer_ = ToByteBuffer(message_, Response::kChunkFieldNumber, chunk,
                           std::move(owner));
    sending_ = chunk.size();
    offset_ += streams_ * chunk_bytes_;
    const absl::Duration wait = link_->Take(sending_);
    if (wait <= absl::ZeroDuration()) return SendChunk();
    absl::MutexLock lock(&mu_);
    // Use a new alarm each time: the last one's callback may still be running.
    alarm_ = std::make_unique<grpc::Alarm>();
    // SendChunk locks mu_ first, so it finds the alarm set.
    alarm_->Set(FromNow(cancelled_ ? absl::ZeroDuration() : wait),
                [this](bool) { SendChunk(); });
  }

  void SendChunk() {
    if (IsCancelled()) {
      return Finish(ToGrpcStatus(absl::CancelledError("client gone")));
    }
    if (!IsLight() || offset_ < stored_.bytes.size()) {
      return Write(&buffer_, sending_);
    }
    *server_.bytes_sent += sending_;
    NoteSent();
    WriteAndFinish(&buffer_, sending_);
  }

  bool IsCancelled() {
    absl::MutexLock lock(&mu_);
    return cancelled_;
  }

  // Returns whether there are few enough bytes to send description, chunk and
  // the end of the call together.
  bool IsLight() const {
    constexpr size_t kLightBytes = 64 << 10;
    return stored_.bytes.size() < kLightBytes;
  }

  void NoteSent() {
    if (sent_ != nullptr) sent_(stored_.response.head());
  }

  const DownloadServer server_;
  const Opener open_;
  // May be null.
  Sent sent_;
  grpc::ByteBuffer received_;
  Request request_;
  uint64_t listener_ = 0;

  absl::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kTrying;
  // Is true if there was news since the last try began.
  bool news_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mu_);

  // This field and those below are valid once the download is opened.
  Opened<Response> stored_;
  // The next message, without its chunk. The first message describes the
  // download; the others have only a chunk.
  Response message_;
  std::shared_ptr<IslandLink> link_;
  // The memory for compressed chunks. Null if chunks are sent uncompressed.
  CompressedChunks* compress_ = nullptr;
  uint64_t chunk_bytes_ = 0;
  uint64_t streams_ = 1;
  // The offset of this stream's next chunk.
  uint64_t offset_ = 0;
  // The bytes of data in the message being written.
  uint64_t sending_ = 0;
  grpc::ByteBuffer buffer_;
};

// Sends the download that `open` returns for a request, or ends with its error.
template <typename Request, typename Response>
Method SendStored(
    DownloadServer server,
    typename DownloadCall<Request, Response>::Opener open,
    typename DownloadCall<Request, Response>::Sent sent = nullptr) {
  return [=](BegunCall begun) {
    return new DownloadCall<Request, Response>(std::move(begun), server, open,
                                               sent);
  };
}

}  // namespace causeway

#endif  // SERVER_EDGE_DOWNLOAD_CALL_H_
