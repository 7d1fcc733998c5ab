// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Files that other people have made: models, tokenizers, texts, run files.
// Nothing but a regular file is read, so that no program waits for a pipe or
// reads a device without end, and a pointer that Git LFS has left in a file's
// place is called by its name.
//
// Errors, beside those of MappedFile::Open:
//   INVALID_ARGUMENT  It is a pipe, a device or the like, a pointer of Git LFS,
//                     or too large. The message says what to do.
#ifndef COMMON_FOREIGN_FILE_H_
#define COMMON_FOREIGN_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/file.h"

namespace causeway {

// The most that files of text have, beside those that are mapped.
inline constexpr uint64_t kMostForeignBytes = 64 << 20;

absl::StatusOr<MappedFile> OpenForeignFile(const std::string& path);

// Returns the whole content.
absl::StatusOr<std::string> ReadForeignFile(
    const std::string& path, uint64_t most_bytes = kMostForeignBytes);

}  // namespace causeway

#endif  // COMMON_FOREIGN_FILE_H_
