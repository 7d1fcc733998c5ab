// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "server/download_reactor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/grpc_status.h"
#include "common/transport/chunk.h"
#include "common/transport/chunk_message.h"
#include "common/transport/grpc_time.h"
#include "grpcpp/alarm.h"
#include "server/upload_turns.h"

namespace causeway {
namespace {

// Bytes per second. Slower, a chunk would take minutes.
constexpr double kSlowestPace = 1000;

class DownloadReactor : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  DownloadReactor(Engine* engine, absl::StatusOr<Download> download)
      : engine_(engine) {
    if (!download.ok()) {
      Finish(ToGrpcStatus(download.status()));
      return;
    }
    download_ = *std::move(download);
    const v1::StreamOptions& stream = download_.stream;
    chunk_bytes_ =
        stream.chunk_bytes() > 0 ? stream.chunk_bytes() : kMaxChunkBytes;
    streams_ = std::max(1u, stream.count());
    offset_ = download_.offset + stream.index() * chunk_bytes_;
    Write();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(ToGrpcStatus(absl::CancelledError("client gone")));
    engine_->CountSent(sending_);
    if (offset_ >= download_.bytes.size()) return Finish(grpc::Status::OK);
    download_.description->Clear();
    Write();
  }

  void OnDone() override { delete this; }

 private:
  // The next message; the first one may come without a chunk.
  void Write() {
    sending_ = 0;
    if (offset_ >= download_.bytes.size()) {
      buffer_ = ToByteBuffer(*download_.description);
      return StartWrite(&buffer_);
    }
    const Chunk chunk = CutChunk(download_.bytes, offset_, chunk_bytes_);
    buffer_ = ToByteBuffer(*download_.description, download_.chunk_field, chunk,
                           download_.owner);
    sending_ = chunk.size();
    offset_ += streams_ * chunk_bytes_;
    const absl::Duration wait = download_.link->Take(sending_);
    if (wait <= absl::ZeroDuration()) return StartWrite(&buffer_);
    // A new one each time: the callback of the last may not have returned yet.
    alarm_ = std::make_unique<grpc::Alarm>();
    alarm_->Set(FromNow(wait), [this](bool) { StartWrite(&buffer_); });
  }

  Engine* const engine_;
  Download download_;
  uint64_t chunk_bytes_ = 0;
  uint64_t streams_ = 1;
  // Of this stream's next chunk.
  uint64_t offset_ = 0;
  // Bytes of data in the message that is being written.
  uint64_t sending_ = 0;
  grpc::ByteBuffer buffer_;
  std::unique_ptr<grpc::Alarm> alarm_;
};

}  // namespace

absl::Status CheckDownload(uint64_t size, uint64_t offset,
                           const v1::StreamOptions& stream) {
  if (offset > size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "offset ", offset, " is beyond the object's ", size, " bytes"));
  }
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
  if (pace != 0 && !(pace >= kSlowestPace)) {
    return absl::InvalidArgumentError(absl::StrCat("pace_bytes_per_second is ",
                                                   pace, "; allowed: 0, or ",
                                                   kSlowestPace, " and more"));
  }
  return absl::OkStatus();
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* NewDownloadReactor(
    Engine* engine, absl::StatusOr<Download> download) {
  return new DownloadReactor(engine, std::move(download));
}

}  // namespace causeway
