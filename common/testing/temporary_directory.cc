// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/testing/temporary_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/os/file.h"
#include "common/status_macros.h"

namespace causeway {

absl::StatusOr<TemporaryDirectory> TemporaryDirectory::Make(
    absl::string_view prefix) {
  std::error_code error;
  const std::filesystem::path parent =
      std::filesystem::temp_directory_path(error);
  if (error) {
    return ErrnoStatus(error.value(), "use the directory for temporary files",
                       parent.string());
  }
  std::string path = absl::StrCat(parent.string(), "/", prefix, "-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return ErrnoStatus(errno, "make directory", path);
  }
  return TemporaryDirectory(std::move(path), /*keep=*/false);
}

absl::StatusOr<TemporaryDirectory> TemporaryDirectory::MakeUnless(
    const std::string& wanted, absl::string_view prefix) {
  if (wanted.empty()) return Make(prefix);
  RETURN_IF_ERROR(CreateDirectory(wanted));
  return TemporaryDirectory(wanted, /*keep=*/true);
}

TemporaryDirectory::TemporaryDirectory(std::string path, bool keep)
    : path_(std::move(path)), keep_(keep) {}

TemporaryDirectory::TemporaryDirectory(TemporaryDirectory&& other)
    : path_(other.path_), keep_(std::exchange(other.keep_, true)) {}

TemporaryDirectory::~TemporaryDirectory() {
  if (keep_) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace causeway
