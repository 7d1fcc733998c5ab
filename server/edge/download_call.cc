// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/transport/chunk.h"
#include "common/transport/chunk_message.h"
#include "common/transport/grpc_status.h"
#include "common/transport/grpc_time.h"
#include "grpcpp/alarm.h"
#include "server/edge/calls.h"
#include "server/edge/upload_turns.h"

namespace causeway {
namespace {

// Bounds the pace from below: in bytes per second, and by the time that a chunk
// takes. A download keeps its object in memory until it ends.
constexpr double kSlowestPace = 1000;
constexpr absl::Duration kLongestChunkTime = absl::Minutes(1);

uint64_t ChunkBytes(const v1::StreamOptions& stream) {
  return stream.chunk_bytes() > 0 ? stream.chunk_bytes() : kMaxChunkBytes;
}

// gRPC calls one method at a time, except OnCancel. News may come on any
// thread.
class DownloadCall : public Call {
 public:
  DownloadCall(BegunCall begun, const DownloadHost& host, DownloadOpener open)
      : Call(std::move(begun)), host_(host), open_(std::move(open)) {
    Read(&request_);
  }

  void OnRead(bool ok) override {
    if (!ok) return Finish(ToGrpcStatus(absl::CancelledError("no request")));
    // Listen before the first try, so that nothing in between is missed.
    listener_ = host_.news->Add([this] { OnNews(); });
    host_.openers->Run([this] { Try(); });
  }

  void OnWritten(bool ok) override {
    if (!ok) return Finish(ToGrpcStatus(absl::CancelledError("client gone")));
    *host_.bytes_sent += sending_;
    if (offset_ >= download_.bytes.size()) {
      NoteSent();
      return Finish(grpc::Status::OK);
    }
    download_.description->Clear();
    WriteChunk();
  }

  void OnCancel() override {
    {
      absl::MutexLock lock(&mu_);
      cancelled_ = true;
      // A call that is over does not wait for the pacer.
      if (alarm_ != nullptr) alarm_->Cancel();
      if (state_ != State::kWaiting) return;
      state_ = State::kOpened;
    }
    Finish(ToGrpcStatus(absl::CancelledError("client gone")));
  }

  void OnEnd() override { host_.news->Remove(listener_); }

 private:
  enum class State {
    // The request is read, or Try runs or is about to run.
    kTrying,
    // There was nothing to send; the call waits for news, or for its end.
    kWaiting,
    // The download is under way, or the call is ending.
    kOpened,
  };

  void OnNews() {
    absl::MutexLock lock(&mu_);
    news_ = true;
    if (state_ != State::kWaiting) return;
    state_ = State::kTrying;
    host_.openers->Run([this] { Try(); });
  }

  void Try() {
    while (true) {
      {
        absl::MutexLock lock(&mu_);
        news_ = false;
      }
      absl::StatusOr<std::unique_ptr<Download>> download = open_(request_);
      absl::Status end = download.status();
      {
        absl::MutexLock lock(&mu_);
        if (cancelled_) end = absl::CancelledError("client gone");
        if (end.ok() && *download == nullptr) {
          if (news_) continue;
          state_ = State::kWaiting;
          return;
        }
        state_ = State::kOpened;
      }
      if (!end.ok()) return Finish(ToGrpcStatus(end));
      return Begin(std::move(**download));
    }
  }

  void Begin(Download download) {
    download_ = std::move(download);
    const v1::StreamOptions& stream = download_.stream;
    chunk_bytes_ = ChunkBytes(stream);
    streams_ = std::max(1u, stream.count());
    // The caller may have more bytes of an update that another coordinator has
    // made again, shorter: the description tells.
    offset_ = std::min<uint64_t>(download_.offset, download_.bytes.size()) +
              stream.index() * chunk_bytes_;
    if (IsLight() && offset_ < download_.bytes.size()) return WriteChunk();
    // Send the description ahead of the first chunk: an island that has waited
    // measures the link from here on.
    buffer_ = ToByteBuffer(*download_.description);
    Write(&buffer_);
  }

  void WriteChunk() {
    Chunk chunk = CutChunk(download_.bytes, offset_, chunk_bytes_);
    std::shared_ptr<const void> owner = download_.owner;
    const std::shared_ptr<std::string> memory =
        download_.compress != nullptr
            ? download_.compress->Allocate(chunk.size())
            : nullptr;
    if (memory != nullptr) {
      chunk = CompressChunk(chunk, *memory);
      if (chunk.compression != 0) owner = memory;
    }
    buffer_ = ToByteBuffer(*download_.description, download_.chunk_field, chunk,
                           std::move(owner));
    sending_ = chunk.size();
    offset_ += streams_ * chunk_bytes_;
    const absl::Duration wait = download_.link->Take(sending_);
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
    if (!IsLight() || offset_ < download_.bytes.size()) {
      return Write(&buffer_, sending_);
    }
    *host_.bytes_sent += sending_;
    NoteSent();
    WriteAndFinish(&buffer_, sending_);
  }

  bool IsCancelled() {
    absl::MutexLock lock(&mu_);
    return cancelled_;
  }

  // Returns whether there are so few bytes that description, chunk and the end
  // of the call are sent together.
  bool IsLight() const {
    constexpr size_t kLightBytes = 64 << 10;
    return download_.bytes.size() < kLightBytes;
  }

  void NoteSent() {
    if (download_.sent != nullptr) download_.sent();
  }

  const DownloadHost host_;
  const DownloadOpener open_;
  grpc::ByteBuffer request_;
  uint64_t listener_ = 0;

  absl::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kTrying;
  // Whether there was news since the last try began.
  bool news_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  // The alarm of the next chunk.
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mu_);

  // Valid once the download is opened, as are the fields below.
  Download download_;
  uint64_t chunk_bytes_ = 0;
  uint64_t streams_ = 1;
  // The offset of this stream's next chunk.
  uint64_t offset_ = 0;
  // The bytes of data in the message that is being written.
  uint64_t sending_ = 0;
  grpc::ByteBuffer buffer_;
};

}  // namespace

absl::Status CheckDownload(const v1::StreamOptions& stream) {
  if (stream.count() > SharedUploads::kMaxStreams ||
      stream.index() >= std::max(1u, stream.count())) {
    return absl::InvalidArgumentError(
        absl::StrCat("stream ", stream.index(), " of ", stream.count(),
                     " is asked for; allowed: at most ",
                     SharedUploads::kMaxStreams, ", counted from 0"));
  }
  if (stream.chunk_bytes() > kMaxChunkBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk_bytes is ", stream.chunk_bytes(), "; at most ",
                     kMaxChunkBytes, " are allowed"));
  }
  const double pace = stream.pace_bytes_per_second();
  const double slowest =
      std::max(kSlowestPace, static_cast<double>(ChunkBytes(stream)) /
                                 absl::ToDoubleSeconds(kLongestChunkTime));
  if (pace != 0 && !(pace >= slowest)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pace_bytes_per_second is ", pace, "; with chunks of ",
        ChunkBytes(stream), " bytes 0, or ", slowest, " and more, is allowed"));
  }
  return absl::OkStatus();
}

Call* NewDownloadCall(BegunCall begun, const DownloadHost& host,
                      DownloadOpener open) {
  return new DownloadCall(std::move(begun), host, std::move(open));
}

}  // namespace causeway
