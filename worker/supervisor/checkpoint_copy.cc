// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/checkpoint_copy.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/as_bytes.h"
#include "common/status_macros.h"
#include "common/transport/chunk.h"
#include "glog/logging.h"
#include "worker/collective/rank_secret.h"
#include "worker/island_checkpoint.h"

namespace causeway {
namespace {

// A mirror looks for a new checkpoint at this interval.
constexpr absl::Duration kLook = absl::Milliseconds(500);
// Each side waits this long for the other's next bytes. A lost host is silent,
// and must not keep its replacement waiting.
constexpr absl::Duration kPatience = absl::Seconds(5);
constexpr absl::Duration kFetchPatience = absl::Seconds(10);
// A receiver reads small pieces, which arrive in time at any sensible rate.
constexpr uint64_t kReadBytes = 16 << 10;

// A mirror gives this name when it connects.
constexpr char kName[] = "checkpoint";

enum class Wish : uint64_t { kKeep, kRemove, kFetch };

// A mirror's message, before the bytes of the file, and the keeper's answer.
struct Message {
  Wish wish = Wish::kKeep;
  uint64_t bytes = 0;
};

std::string FileIn(const std::string& directory) {
  return absl::StrCat(directory, "/", kIslandCheckpointFile);
}

absl::Status Write(absl::string_view bytes, const Clock& now,
                   SecureSocket& socket) {
  return socket.WriteAll(bytes, now() + kPatience, now);
}

absl::Status Write(const Message& message, const Clock& now,
                   SecureSocket& socket) {
  const absl::Span<const char> bytes = AsBytes(absl::MakeSpan(&message, 1));
  return Write(absl::string_view(bytes.data(), bytes.size()), now, socket);
}

absl::StatusOr<Message> ReadMessage(const Clock& now, SecureSocket& socket) {
  Message message;
  RETURN_IF_ERROR(socket.ReadAll(AsBytes(absl::MakeSpan(&message, 1)),
                                 now() + kPatience, now));
  return message;
}

// Replaces the file at `path` by the next `bytes` bytes.
absl::Status ReadIntoFile(uint64_t bytes, const std::string& path,
                          const Clock& now, SecureSocket& socket) {
  ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::Create(path));
  std::vector<char> chunk(kReadBytes);
  while (bytes > 0) {
    const auto part = absl::MakeSpan(chunk).first(std::min(bytes, kReadBytes));
    RETURN_IF_ERROR(socket.ReadAll(part, now() + kPatience, now));
    RETURN_IF_ERROR(writer.Append(absl::string_view(part.data(), part.size())));
    bytes -= part.size();
  }
  return writer.Publish();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointKeeper>> CheckpointKeeper::Start(
    const CheckpointCopyOptions& options) {
  RETURN_IF_ERROR(CreateDirectory(options.directory));
  ASSIGN_OR_RETURN(FileLock lock,
                   FileLock::Acquire(absl::StrCat(options.directory, "/lock")));
  RETURN_IF_ERROR(RemoveUnfinishedCheckpoints(options.directory));
  ASSIGN_OR_RETURN(
      std::unique_ptr<SecureListener> listener,
      SecureListener::Listen(options.address, KeyOfSecret(options.secret),
                             options.now));
  // The constructor is private, so std::make_unique cannot call it.
  return std::unique_ptr<CheckpointKeeper>(
      new CheckpointKeeper(options, std::move(lock), std::move(listener)));
}

CheckpointKeeper::CheckpointKeeper(CheckpointCopyOptions options, FileLock lock,
                                   std::unique_ptr<SecureListener> listener)
    : options_(std::move(options)),
      lock_(std::move(lock)),
      listener_(std::move(listener)),
      thread_([this] { Run(); }) {}

CheckpointKeeper::~CheckpointKeeper() {
  listener_->Stop();
  thread_.join();
  if (remove_at_end_) RemoveFile(FileIn(options_.directory)).IgnoreError();
}

void CheckpointKeeper::Run() {
  while (true) {
    const auto socket = listener_->Accept(absl::InfiniteFuture());
    if (!socket.ok()) return;
    const absl::Status served = Serve(**socket);
    LOG_IF(WARNING, !served.ok())
        << "cannot receive or send a copy of the island's checkpoint: "
        << served.message();
  }
}

absl::Status CheckpointKeeper::Serve(SecureSocket& socket) const {
  const Clock& now = options_.now;
  const std::string path = FileIn(options_.directory);
  ASSIGN_OR_RETURN(const Message message, ReadMessage(now, socket));
  if (message.wish == Wish::kKeep) {
    RETURN_IF_ERROR(ReadIntoFile(message.bytes, path, now, socket));
    return Write(Message{}, now, socket);
  }
  if (message.wish == Wish::kRemove) {
    RETURN_IF_ERROR(RemoveFileIfThere(path));
    return Write(Message{}, now, socket);
  }
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (!file.ok() && !absl::IsNotFound(file.status())) return file.status();
  absl::string_view rest = file.ok() ? file->bytes() : "";
  RETURN_IF_ERROR(Write(Message{.bytes = rest.size()}, now, socket));
  for (; !rest.empty();
       rest.remove_prefix(std::min<size_t>(rest.size(), kMaxChunkBytes))) {
    RETURN_IF_ERROR(Write(rest.substr(0, kMaxChunkBytes), now, socket));
  }
  return absl::OkStatus();
}

absl::Status FetchCheckpoint(const CheckpointCopyOptions& options) {
  const std::string path = FileIn(options.directory);
  if (MappedFile::Open(path).ok()) return absl::OkStatus();
  RETURN_IF_ERROR(CreateDirectory(options.directory));
  ASSIGN_OR_RETURN(
      const auto socket,
      SecureSocket::Connect(options.address, KeyOfSecret(options.secret), kName,
                            options.now() + kFetchPatience, options.now));
  RETURN_IF_ERROR(Write(Message{.wish = Wish::kFetch}, options.now, *socket));
  ASSIGN_OR_RETURN(const Message answer, ReadMessage(options.now, *socket));
  if (answer.bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(ReadIntoFile(answer.bytes, path, options.now, *socket));
  LOG(INFO) << "took the island's checkpoint from its copy at "
            << options.address;
  return absl::OkStatus();
}

CheckpointMirror::CheckpointMirror(CheckpointCopyOptions options)
    : options_(std::move(options)) {
  pacer_.SetRate(options_.bytes_per_second);
  thread_ = std::thread([this] { Run(); });
}

CheckpointMirror::~CheckpointMirror() {
  stop_.Notify();
  thread_.join();
  if (!Newest().has_value()) Follow().IgnoreError();
}

std::optional<CheckpointMirror::Version> CheckpointMirror::Newest() const {
  struct stat file = {};
  if (stat(FileIn(options_.directory).c_str(), &file) != 0) return std::nullopt;
  return Version(file.st_ino,
                 absl::ToUnixNanos(absl::TimeFromTimespec(file.st_mtim)));
}

absl::Status CheckpointMirror::Follow() {
  const std::optional<Version> newest = Newest();
  if (newest == copied_) return absl::OkStatus();
  // Until the keeper answers, its version is unknown: it may have a copy from
  // before this supervisor's start.
  copied_ = Version();
  ASSIGN_OR_RETURN(const auto socket,
                   SecureSocket::ConnectOnce(
                       options_.address, KeyOfSecret(options_.secret), kName,
                       options_.now() + kPatience, options_.now));
  if (newest.has_value()) {
    ASSIGN_OR_RETURN(const MappedFile file,
                     MappedFile::Open(FileIn(options_.directory)));
    RETURN_IF_ERROR(Send(file.bytes(), *socket));
  } else {
    RETURN_IF_ERROR(
        Write(Message{.wish = Wish::kRemove}, options_.now, *socket));
  }
  RETURN_IF_ERROR(ReadMessage(options_.now, *socket).status());
  copied_ = newest;
  return absl::OkStatus();
}

absl::Status CheckpointMirror::Send(absl::string_view file,
                                    SecureSocket& socket) {
  RETURN_IF_ERROR(Write(Message{.bytes = file.size()}, options_.now, socket));
  const uint64_t most = PacedChunkBytes(options_.bytes_per_second);
  while (!file.empty()) {
    const absl::string_view chunk = file.substr(0, most);
    const absl::Time when = pacer_.Take(options_.now(), chunk.size());
    if (stop_.WaitForNotificationWithTimeout(when - options_.now())) {
      return absl::CancelledError("the supervisor ends");
    }
    RETURN_IF_ERROR(Write(chunk, options_.now, socket));
    file.remove_prefix(chunk.size());
  }
  return absl::OkStatus();
}

void CheckpointMirror::Run() {
  bool works = true;
  while (!stop_.WaitForNotificationWithTimeout(kLook)) {
    const absl::Status followed = Follow();
    const bool worked = std::exchange(works, followed.ok());
    LOG_IF(WARNING, worked && !works && !stop_.HasBeenNotified())
        << "cannot copy the island's checkpoint to " << options_.address << ": "
        << followed.message();
  }
}

}  // namespace causeway
