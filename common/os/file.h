// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// File operations whose failures are Statuses that name the path and the
// system's error. A written file is either complete under its name or not there
// at all.
//
// Durability: AtomicFileWriter writes to a temporary name in the same
// directory, calls fsync(2), renames the file to its final name and calls
// fsync(2) on the directory. After Commit() has returned OK, the file survives
// a power loss; a crash before that leaves the old file (or none) and at most a
// temporary file, whose name contains kTemporaryMarker.
//
// Error codes, from errno: ENOENT NOT_FOUND; EACCES, EPERM, EROFS
// PERMISSION_DENIED; ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE, ENOMEM
// RESOURCE_EXHAUSTED; EEXIST ALREADY_EXISTS; ENOTDIR, EISDIR, ENAMETOOLONG,
// ELOOP, EINVAL INVALID_ARGUMENT; EIO DATA_LOSS; everything else INTERNAL.
//
// All functions block on the disk. Objects are not thread-safe; functions are.
#ifndef COMMON_OS_FILE_H_
#define COMMON_OS_FILE_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace causeway {

// Returns "cannot <action> <path>: <what the system says>", with the code for
// `error_number` as listed above.
absl::Status ErrnoStatus(int error_number, absl::string_view action,
                         absl::string_view path);

// Returns the directory part of `path`, or "." if it has none.
std::string ParentDirectory(absl::string_view path);

// Returns the whole content. Use MappedFile for large files.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Removes the file. NOT_FOUND if there is none.
absl::Status RemoveFile(const std::string& path);
// Removes the file if there is one.
absl::Status RemoveFileIfThere(const std::string& path);

// Returns the names of the entries, sorted, without "." and "..".
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

// Creates one directory and makes its entry durable. An existing directory is
// fine; INVALID_ARGUMENT if `path` is something else. The umask applies to
// `mode`.
absl::Status CreateDirectory(const std::string& path, mode_t mode = 0755);

// Makes the entries of a directory (creations, renames) durable.
absl::Status SyncDirectory(const std::string& path);

// Makes the content of a file durable. NOT_FOUND if there is none. After an
// error, the content is not durable even if a later call succeeds.
absl::Status SyncFile(const std::string& path);

// A file mapped into memory, read-only and without a copy. It stays readable
// when the file is removed or replaced by a rename. A process that *truncates*
// the file makes later reads raise SIGBUS: map only files that are replaced,
// never rewritten.
class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // The content, page-aligned. Valid as long as this object or the one it was
  // moved to.
  absl::string_view bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, absl::string_view bytes)
      : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  absl::string_view bytes_;
};

// The progress of AtomicFileWriter::Commit.
enum class WriteStage {
  // The system has all bytes; the disk may have none.
  kWritten,
  // The disk has the bytes under the temporary name.
  kSynced,
  // The file has its final name; the disk may not have that yet.
  kRenamed,
  // The file and its name are durable.
  kDirectorySynced,
};

// Called when the write of `path` has reached `stage`. An error ends the write
// there, with that error. Tests inject faults and crashes with it.
using WriteStageHook =
    std::function<absl::Status(WriteStage stage, const std::string& path)>;

// Writes a file piece by piece.
//
//   ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::Create(path));
//   RETURN_IF_ERROR(writer.Append(header));
//   RETURN_IF_ERROR(writer.Append(body));
//   RETURN_IF_ERROR(writer.Commit());
//
// Without a successful Commit the destructor removes the temporary file and
// leaves whatever was at `path` untouched.
class AtomicFileWriter {
 public:
  static constexpr absl::string_view kTemporaryMarker = ".tmp-";

  // The umask applies to `mode`.
  static absl::StatusOr<AtomicFileWriter> Create(const std::string& path,
                                                 WriteStageHook hook = nullptr,
                                                 mode_t mode = 0644);

  AtomicFileWriter(AtomicFileWriter&& other) noexcept;
  AtomicFileWriter& operator=(AtomicFileWriter&&) = delete;
  ~AtomicFileWriter();

  absl::Status Append(absl::string_view bytes);

  // Appends, and starts the writeback of each MiB as it comes.
  absl::Status AppendWithWriteback(absl::string_view bytes);

  // Writes over what was appended at `offset` of the file.
  absl::Status Overwrite(int64_t offset, absl::string_view bytes);

  // Lets the system begin to write the appended bytes to the disk, so that
  // Commit waits less.
  void StartWriteback() const;

  // Makes the file durable and visible. Call at most once; nothing may be
  // appended afterwards. When it fails, the file may or may not be at `path`.
  absl::Status Commit();

  // Commits several files of one directory, which is synced once.
  static absl::Status CommitAll(absl::Span<AtomicFileWriter> writers);

  // The alternative to Commit: makes the file visible at once, but not durable.
  // It survives the end of the process. After a power loss the file may be
  // missing, or have any part of its content.
  absl::Status Publish();

  // Returns the path of the file until it is committed or published.
  const std::string& temporary_path() const { return temporary_path_; }

  int64_t bytes_written() const { return bytes_written_; }

 private:
  AtomicFileWriter(std::string path, std::string temporary_path, int descriptor,
                   WriteStageHook hook);

  absl::Status Reached(WriteStage stage) const {
    return hook_ == nullptr ? absl::OkStatus() : hook_(stage, path_);
  }
  absl::Status Sync();
  absl::Status Close();
  absl::Status Rename();

  std::string path_;
  // Empty once the file has been renamed or moved from.
  std::string temporary_path_;
  // -1 once closed.
  int descriptor_;
  WriteStageHook hook_;
  int64_t bytes_written_ = 0;
  // The bytes whose writeback AppendWithWriteback has started.
  int64_t handed_over_ = 0;
};

// Says whether AtomicFileWriter's Commit or its Publish ends a new file.
enum class Durability { kDurable, kVisible };

// Writes the concatenation of `pieces` without building it in memory.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::Span<const absl::string_view> pieces,
                                 WriteStageHook hook = nullptr,
                                 mode_t mode = 0644,
                                 Durability durability = Durability::kDurable);
// Writes a file that only its owner may read.
inline absl::Status WriteSecretAtomically(const std::string& path,
                                          absl::string_view content) {
  return WriteFileAtomically(path, {content}, nullptr, 0600);
}

// An exclusive advisory lock (flock(2)) on a file that holds the owner's
// process id as text. The file is created if it is missing, and stays. The lock
// is released by the destructor and by any end of the process, because forked
// children do not hold it.
class FileLock {
 public:
  // Does not wait. FAILED_PRECONDITION if another process holds the lock; the
  // message has that process's id and machine.
  static absl::StatusOr<FileLock> Acquire(const std::string& path);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  struct Entry;

  explicit FileLock(Entry* entry) : entry_(entry) {}

  // Enters a descriptor into the list of all locks.
  static Entry* Register(int descriptor);
  // Closes the descriptors of all locks, in a child.
  static void ForgetAll();

  static std::atomic<Entry*> entries_;
  // Null if it was moved from.
  Entry* entry_;
};

}  // namespace causeway

#endif  // COMMON_OS_FILE_H_
