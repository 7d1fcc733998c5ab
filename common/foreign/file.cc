// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/foreign/file.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

// The beginning of a pointer, by git-lfs's specification.
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

namespace {

constexpr int kMostLevels = 64;

// Returns whether brackets outside of strings are nested too deep.
bool IsTooDeep(absl::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      // An escaped quotation mark ends no string.
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMostLevels) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseForeignJson(absl::string_view text) {
  if (IsTooDeep(text)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its JSON is nested deeper than ", kMostLevels, " levels"));
  }
  nlohmann::json json = nlohmann::json::parse(text.begin(), text.end(), nullptr,
                                              /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  return absl::InvalidArgumentError(
      json.is_discarded() ? "it is not JSON" : "it is not a JSON object");
}

}  // namespace causeway
