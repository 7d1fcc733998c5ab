// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads files that other people have made: models, tokenizers, texts, run
// files. Only regular files are read, so that no program waits for a pipe or
// reads a device without end. A pointer that Git LFS has left in a file's place
// gets an error of its own.
//
// Errors, beside those of MappedFile::Open:
//   INVALID_ARGUMENT  It is a pointer of Git LFS, too large, or not a regular
//                     file. The message says what to do.
#ifndef COMMON_FOREIGN_FILE_H_
#define COMMON_FOREIGN_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/os/file.h"
#include "nlohmann/json.hpp"

namespace causeway {

// The largest size of text files that are not mapped.
inline constexpr uint64_t kMostForeignBytes = 64 << 20;

absl::StatusOr<MappedFile> OpenForeignFile(const std::string& path);

// Returns the whole content.
absl::StatusOr<std::string> ReadForeignFile(
    const std::string& path, uint64_t most_bytes = kMostForeignBytes);

// JSON that other people have written.

// Parses a JSON object. Limits the nesting, because the library handles values
// by recursion and could overflow the stack.
//   INVALID_ARGUMENT  The text is not a JSON object, or nested deeper than 64
//                     levels.
absl::StatusOr<nlohmann::json> ParseForeignJson(absl::string_view text);

}  // namespace causeway

#endif  // COMMON_FOREIGN_FILE_H_
