// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/foreign/file.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

// How a pointer begins, by git-lfs's specification.
constexpr absl::string_view kPointer = "version https://git-lfs.github.com/";

}  // namespace

absl::StatusOr<MappedFile> OpenForeignFile(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  if (!absl::StartsWith(file.bytes(), kPointer)) return file;
  return absl::InvalidArgumentError(absl::StrCat(
      path,
      " is a pointer of Git LFS, and the file itself was not fetched: "
      "run `git lfs pull` in its repository"));
}

absl::StatusOr<std::string> ReadForeignFile(const std::string& path,
                                            uint64_t most_bytes) {
  ASSIGN_OR_RETURN(const MappedFile file, OpenForeignFile(path));
  if (file.bytes().size() <= most_bytes) return std::string(file.bytes());
  return absl::InvalidArgumentError(
      absl::StrCat(path, " has ", file.bytes().size(),
                   " bytes; a file of its kind has at most ", most_bytes));
}

}  // namespace causeway
