// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Detects that a file that this process has open was removed, moved or
// replaced, so that its path no longer names it.
#ifndef SERVER_STORAGE_FILE_IDENTITY_H_
#define SERVER_STORAGE_FILE_IDENTITY_H_

#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/os/file.h"

namespace causeway {

class FileIdentity {
 public:
  static absl::StatusOr<FileIdentity> Of(const std::string& path) {
    struct stat file;
    if (stat(path.c_str(), &file) != 0) {
      return ErrnoStatus(errno, "inspect", path);
    }
    return FileIdentity(path, file);
  }

  // FAILED_PRECONDITION if the path names no file, or another one.
  absl::Status Check() const {
    struct stat file;
    const bool found = stat(path_.c_str(), &file) == 0;
    // A file that cannot be inspected now may still be there.
    if (!found && errno != ENOENT && errno != ENOTDIR) return absl::OkStatus();
    if (found && file.st_dev == device_ && file.st_ino == number_) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " was ", found ? "replaced" : "removed",
                     " while the coordinator uses it"));
  }

 private:
  FileIdentity(std::string path, const struct stat& file)
      : path_(std::move(path)), device_(file.st_dev), number_(file.st_ino) {}

  std::string path_;
  dev_t device_;
  ino_t number_;
};

}  // namespace causeway

#endif  // SERVER_STORAGE_FILE_IDENTITY_H_
