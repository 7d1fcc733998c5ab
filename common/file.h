// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Files as the rest of the project wants them: every failure is a Status that
// names the path and what the system said, and a file is either wholly there
// under its name or not there at all.
//
// Durability: AtomicFileWriter writes to a temporary name in the same
// directory, calls fsync(2), renames over the final name and calls fsync(2) on
// the directory. After Commit() has returned OK, the file survives a power
// loss; a crash before that leaves the old file (or none) and at most a
// temporary file, whose name contains kTemporaryMarker.
//
// Error codes, from errno: ENOENT NOT_FOUND; EACCES, EPERM, EROFS
// PERMISSION_DENIED; ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE, ENOMEM
// RESOURCE_EXHAUSTED; EEXIST ALREADY_EXISTS; ENOTDIR, EISDIR, ENAMETOOLONG,
// ELOOP, EINVAL INVALID_ARGUMENT; EIO DATA_LOSS; everything else INTERNAL.
//
// All functions block on the disk. Objects are not thread-safe; functions are.
#ifndef COMMON_FILE_H_
#define COMMON_FILE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace causeway {

// "cannot <action> <path>: <what the system says>", with the code for
// `error_number` as listed above.
absl::Status ErrnoStatus(int error_number, absl::string_view action,
                         absl::string_view path);

// The directory part of `path`; "." if it has none.
std::string ParentDirectory(absl::string_view path);

// The whole content. For small files; see MappedFile for large ones.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// NOT_FOUND if there is no such file.
absl::Status RemoveFile(const std::string& path);

// Names of the entries, sorted, without "." and "..".
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

// Makes one directory and makes its entry durable. An existing directory is
// fine; INVALID_ARGUMENT if `path` is something else.
absl::Status CreateDirectory(const std::string& path);

// Makes the entries of a directory (creations, renames) durable.
absl::Status SyncDirectory(const std::string& path);

// A file in memory, read-only, without a copy. It stays readable when the file
// is removed or replaced by a rename. A process that *truncates* the file makes
// later reads raise SIGBUS: map only files that are replaced, never rewritten.
class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Valid as long as this object, also across moves of it. Page-aligned.
  absl::string_view bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, absl::string_view bytes)
      : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  absl::string_view bytes_;
};

// How far AtomicFileWriter::Commit has come.
enum class WriteStage {
  // All bytes were handed to the system; none need be on the disk.
  kWritten,
  // The bytes are on the disk under the temporary name.
  kSynced,
  // The file has its name, which need not be on the disk.
  kRenamed,
  // Durable.
  kDirectorySynced,
};

// Called when `stage` of writing `path` has been reached. An error ends the
// write there, with that error. For tests that inject faults and crashes.
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

  static absl::StatusOr<AtomicFileWriter> Create(const std::string& path,
                                                 WriteStageHook hook = nullptr);

  AtomicFileWriter(AtomicFileWriter&& other) noexcept;
  AtomicFileWriter& operator=(AtomicFileWriter&&) = delete;
  ~AtomicFileWriter();

  absl::Status Append(absl::string_view bytes);

  // The other way: makes the file `bytes` long (more than 0), reserves its
  // place on the disk and maps it, to be written in place. Zeros at first.
  // Valid until Commit or the end of the writer. Call at most once, and not
  // with Append.
  //   RESOURCE_EXHAUSTED  the disk has no room; later there is nothing to fail.
  absl::StatusOr<absl::Span<char>> Map(int64_t bytes);

  // Makes the file durable and visible. Call at most once; nothing may be
  // appended afterwards. When it fails, the file may or may not be at `path`.
  absl::Status Commit();

  int64_t bytes_written() const { return bytes_written_; }

 private:
  AtomicFileWriter(std::string path, std::string temporary_path, int descriptor,
                   WriteStageHook hook);

  absl::Status Reached(WriteStage stage) const;
  void Unmap();

  std::string path_;
  // Empty once the file has been renamed or moved from.
  std::string temporary_path_;
  // -1 once closed.
  int descriptor_;
  WriteStageHook hook_;
  // Empty unless mapped.
  absl::Span<char> mapped_;
  int64_t bytes_written_ = 0;
};

// Writes the concatenation of `pieces`, which is never made in memory.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::Span<const absl::string_view> pieces,
                                 WriteStageHook hook = nullptr);

// An exclusive advisory lock (flock(2)) on a file, made if missing, that holds
// the owner's process id as text. Released by the destructor or by the end of
// the process, however it ends. The file itself stays.
class FileLock {
 public:
  // Does not wait: FAILED_PRECONDITION if somebody holds the lock, with the
  // holder's process id in the message.
  static absl::StatusOr<FileLock> Acquire(const std::string& path);

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
};

}  // namespace causeway

#endif  // COMMON_FILE_H_
