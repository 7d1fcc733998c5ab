// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/os/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {
namespace {

absl::StatusCode CodeOfErrno(int error_number) {
  switch (error_number) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::StatusCode::kResourceExhausted;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case EINVAL:
      return absl::StatusCode::kInvalidArgument;
    case EIO:
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kInternal;
  }
}

// Calls open(2) again when a signal interrupts it.
int OpenRetrying(const std::string& path, int flags, mode_t mode = 0) {
  int descriptor;
  do {
    descriptor = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

absl::Status WriteAll(int descriptor, absl::string_view bytes,
                      const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "write", path);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// Reads to the end of the file from the descriptor's position.
absl::StatusOr<std::string> ReadAll(int descriptor, const std::string& path) {
  std::string content;
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = read(descriptor, buffer, sizeof(buffer));
    if (count < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "read", path);
    }
    if (count == 0) return content;
    content.append(buffer, static_cast<size_t>(count));
  }
}

// Returns the path to rename a new file to so that `path` names it. A link
// stays, and its target is replaced. Refuses anything but files, since a rename
// would replace even a device, such as /dev/null.
absl::StatusOr<std::string> ReplaceablePath(const std::string& path) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0) return path;
  if (!S_ISREG(found.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot replace ", path, ": it is not a file; name a file to write"));
  }
  if (lstat(path.c_str(), &found) != 0 || !S_ISLNK(found.st_mode)) return path;
  char* target = realpath(path.c_str(), nullptr);
  if (target == nullptr) return ErrnoStatus(errno, "follow", path);
  const absl::Cleanup release = [target] { free(target); };
  return target;
}

}  // namespace

absl::Status ErrnoStatus(int error_number, absl::string_view action,
                         absl::string_view path) {
  return absl::Status(CodeOfErrno(error_number),
                      absl::StrCat("cannot ", action, " ", path, ": ",
                                   std::strerror(error_number)));
}

std::string ParentDirectory(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const int descriptor = OpenRetrying(path, O_RDONLY);
  if (descriptor < 0) return ErrnoStatus(errno, "open", path);
  const auto closer = absl::MakeCleanup([=] { close(descriptor); });
  return ReadAll(descriptor, path);
}

absl::Status RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) != 0) return ErrnoStatus(errno, "remove", path);
  return absl::OkStatus();
}

absl::Status RemoveFileIfThere(const std::string& path) {
  const absl::Status removed = RemoveFile(path);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

absl::StatusOr<std::vector<std::string>> ListDirectory(
    const std::string& path) {
  DIR* directory = opendir(path.c_str());
  if (directory == nullptr) return ErrnoStatus(errno, "list", path);
  const auto closer = absl::MakeCleanup([=] { closedir(directory); });
  std::vector<std::string> names;
  while (true) {
    // Only errno distinguishes the end of the directory from a failure.
    errno = 0;
    const dirent* entry = readdir(directory);
    if (entry == nullptr) break;
    const absl::string_view name(entry->d_name);
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return ErrnoStatus(errno, "list", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status CreateDirectory(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) != 0) {
    if (errno != EEXIST) return ErrnoStatus(errno, "create directory", path);
    struct stat status;
    if (stat(path.c_str(), &status) != 0) {
      return ErrnoStatus(errno, "inspect", path);
    }
    if (!S_ISDIR(status.st_mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " exists and is not a directory"));
    }
  }
  return SyncDirectory(ParentDirectory(path));
}

absl::Status SyncDirectory(const std::string& path) {
  const int descriptor = OpenRetrying(path, O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) return ErrnoStatus(errno, "open directory", path);
  const auto closer = absl::MakeCleanup([=] { close(descriptor); });
  if (fsync(descriptor) != 0) return ErrnoStatus(errno, "sync", path);
  return absl::OkStatus();
}

absl::Status SyncFile(const std::string& path) {
  const int descriptor = OpenRetrying(path, O_RDONLY);
  if (descriptor < 0) return ErrnoStatus(errno, "open", path);
  const auto closer = absl::MakeCleanup([=] { close(descriptor); });
  if (fsync(descriptor) != 0) return ErrnoStatus(errno, "sync", path);
  return absl::OkStatus();
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const int descriptor = OpenRetrying(path, O_RDONLY | O_NONBLOCK);
  if (descriptor < 0) return ErrnoStatus(errno, "open", path);
  // The mapping outlives the descriptor.
  const auto closer = absl::MakeCleanup([=] { close(descriptor); });
  struct stat status;
  if (fstat(descriptor, &status) != 0) {
    return ErrnoStatus(errno, "inspect", path);
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a regular file"));
  }
  const size_t size = static_cast<size_t>(status.st_size);
  if (size == 0) return MappedFile(path, absl::string_view());
  void* address = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) return ErrnoStatus(errno, "map", path);
  return MappedFile(path,
                    absl::string_view(static_cast<const char*>(address), size));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(std::exchange(other.bytes_, absl::string_view())) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

absl::StatusOr<AtomicFileWriter> AtomicFileWriter::Create(
    const std::string& path, WriteStageHook hook, mode_t mode) {
  ASSIGN_OR_RETURN(std::string file, ReplaceablePath(path));
  // The process id distinguishes two processes that write the same file.
  std::string temporary_path = absl::StrCat(file, kTemporaryMarker, getpid());
  const int descriptor =
      OpenRetrying(temporary_path, O_RDWR | O_CREAT | O_TRUNC, mode);
  if (descriptor < 0) return ErrnoStatus(errno, "create", temporary_path);
  return AtomicFileWriter(std::move(file), std::move(temporary_path),
                          descriptor, std::move(hook));
}

AtomicFileWriter::AtomicFileWriter(std::string path, std::string temporary_path,
                                   int descriptor, WriteStageHook hook)
    : path_(std::move(path)),
      temporary_path_(std::move(temporary_path)),
      descriptor_(descriptor),
      hook_(std::move(hook)) {}

AtomicFileWriter::AtomicFileWriter(AtomicFileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_path_(std::exchange(other.temporary_path_, std::string())),
      descriptor_(std::exchange(other.descriptor_, -1)),
      hook_(std::move(other.hook_)),
      bytes_written_(other.bytes_written_),
      handed_over_(other.handed_over_) {}

AtomicFileWriter::~AtomicFileWriter() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_path_.empty()) unlink(temporary_path_.c_str());
}

absl::Status AtomicFileWriter::Append(absl::string_view bytes) {
  CHECK_GE(descriptor_, 0) << "append to a committed file: " << path_;
  RETURN_IF_ERROR(WriteAll(descriptor_, bytes, temporary_path_));
  bytes_written_ += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

absl::Status AtomicFileWriter::AppendWithWriteback(absl::string_view bytes) {
  constexpr size_t kPieceBytes = 1 << 20;
  while (!bytes.empty()) {
    const absl::string_view piece = bytes.substr(0, kPieceBytes);
    RETURN_IF_ERROR(Append(piece));
    bytes.remove_prefix(piece.size());
    if (bytes_written_ - handed_over_ < int64_t{kPieceBytes}) continue;
    StartWriteback();
    handed_over_ = bytes_written_;
  }
  return absl::OkStatus();
}

absl::Status AtomicFileWriter::Overwrite(int64_t offset,
                                         absl::string_view bytes) {
  CHECK_GE(descriptor_, 0) << "write to a committed file: " << path_;
  CHECK_LE(offset + static_cast<int64_t>(bytes.size()), bytes_written_)
      << path_;
  while (!bytes.empty()) {
    const ssize_t written =
        pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, "write", temporary_path_);
    offset += written;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

void AtomicFileWriter::StartWriteback() const {
  // This is only a hint, which some file systems do not support.
  sync_file_range(descriptor_, 0, 0, SYNC_FILE_RANGE_WRITE);
}

absl::Status AtomicFileWriter::Commit() {
  return CommitAll(absl::MakeSpan(this, 1));
}

absl::Status AtomicFileWriter::CommitAll(absl::Span<AtomicFileWriter> writers) {
  if (writers.empty()) return absl::OkStatus();
  for (AtomicFileWriter& writer : writers) RETURN_IF_ERROR(writer.Sync());
  for (AtomicFileWriter& writer : writers) RETURN_IF_ERROR(writer.Rename());
  RETURN_IF_ERROR(SyncDirectory(ParentDirectory(writers[0].path_)));
  for (AtomicFileWriter& writer : writers) {
    RETURN_IF_ERROR(writer.Reached(WriteStage::kDirectorySynced));
  }
  return absl::OkStatus();
}

absl::Status AtomicFileWriter::Sync() {
  CHECK_GE(descriptor_, 0) << "second commit of " << path_;
  RETURN_IF_ERROR(Reached(WriteStage::kWritten));
  if (fsync(descriptor_) != 0) {
    return ErrnoStatus(errno, "sync", temporary_path_);
  }
  RETURN_IF_ERROR(Close());
  return Reached(WriteStage::kSynced);
}

absl::Status AtomicFileWriter::Publish() {
  CHECK_GE(descriptor_, 0) << "second commit of " << path_;
  RETURN_IF_ERROR(Reached(WriteStage::kWritten));
  RETURN_IF_ERROR(Close());
  return Rename();
}

absl::Status AtomicFileWriter::Close() {
  // Some network file systems report a failed write only here.
  if (close(std::exchange(descriptor_, -1)) != 0) {
    return ErrnoStatus(errno, "close", temporary_path_);
  }
  return absl::OkStatus();
}

absl::Status AtomicFileWriter::Rename() {
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", temporary_path_, " to"),
                       path_);
  }
  temporary_path_.clear();
  return Reached(WriteStage::kRenamed);
}

absl::Status WriteFileAtomically(const std::string& path,
                                 absl::Span<const absl::string_view> pieces,
                                 WriteStageHook hook, mode_t mode,
                                 Durability durability) {
  ASSIGN_OR_RETURN(AtomicFileWriter writer,
                   AtomicFileWriter::Create(path, std::move(hook), mode));
  for (const absl::string_view piece : pieces) {
    RETURN_IF_ERROR(writer.Append(piece));
  }
  return durability == Durability::kDurable ? writer.Commit()
                                            : writer.Publish();
}

// Entries are reused, and never freed, so that a child can read the list that
// its parent was changing.
struct FileLock::Entry {
  static constexpr int kFree = -1;
  // The lock is the parent's.
  static constexpr int kLost = -2;

  std::atomic<int> descriptor;
  Entry* next;
};

std::atomic<FileLock::Entry*> FileLock::entries_ = nullptr;

FileLock::Entry* FileLock::Register(int descriptor) {
  [[maybe_unused]] static const bool registered = [] {
    CHECK_EQ(pthread_atfork(nullptr, nullptr, &FileLock::ForgetAll), 0);
    return true;
  }();
  for (Entry* entry = entries_; entry != nullptr; entry = entry->next) {
    int free = Entry::kFree;
    if (entry->descriptor.compare_exchange_strong(free, descriptor)) {
      return entry;
    }
  }
  auto* const entry = new Entry{descriptor, entries_};
  while (!entries_.compare_exchange_weak(entry->next, entry)) continue;
  return entry;
}

void FileLock::ForgetAll() {
  for (Entry* entry = entries_; entry != nullptr; entry = entry->next) {
    if (entry->descriptor < 0) continue;
    close(entry->descriptor);
    entry->descriptor = Entry::kLost;
  }
}

absl::StatusOr<FileLock> FileLock::Acquire(const std::string& path) {
  const int descriptor = OpenRetrying(path, O_RDWR | O_CREAT, 0644);
  if (descriptor < 0) return ErrnoStatus(errno, "open", path);
  FileLock lock(Register(descriptor));
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock", path);
    ASSIGN_OR_RETURN(std::string holder, ReadAll(descriptor, path));
    absl::StripAsciiWhitespace(&holder);
    // The holder writes its id just after it got the lock, so the file may be
    // empty.
    if (holder.empty()) holder = "unknown";
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is locked by pid ", holder));
  }
  if (ftruncate(descriptor, 0) != 0) return ErrnoStatus(errno, "write", path);
  // Containers that share a folder may have the same process ids.
  char host[65] = {};
  gethostname(host, sizeof(host) - 1);
  RETURN_IF_ERROR(
      WriteAll(descriptor, absl::StrCat(getpid(), " on ", host, "\n"), path));
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept
    : entry_(std::exchange(other.entry_, nullptr)) {}

FileLock::~FileLock() {
  if (entry_ == nullptr) return;
  const int descriptor = entry_->descriptor.exchange(Entry::kFree);
  if (descriptor < 0) return;
  // A child being forked now may keep the file open.
  flock(descriptor, LOCK_UN);
  close(descriptor);
}

}  // namespace causeway
