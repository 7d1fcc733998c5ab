// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A directory for the time that a test or a measurement takes. Not thread-safe.
#ifndef COMMON_TEMPORARY_DIRECTORY_H_
#define COMMON_TEMPORARY_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace causeway {

class TemporaryDirectory {
 public:
  // A new one, below that of the system ($TMPDIR or /tmp), whose name begins
  // with `prefix`. Errors as in common/file.h.
  static absl::StatusOr<TemporaryDirectory> Make(absl::string_view prefix);
  // The directory `wanted`, which is made if it is missing and kept; a new one
  // if `wanted` is empty.
  static absl::StatusOr<TemporaryDirectory> MakeUnless(
      const std::string& wanted, absl::string_view prefix);

  TemporaryDirectory(TemporaryDirectory&& other);
  TemporaryDirectory& operator=(TemporaryDirectory&& other) = delete;
  // Removes it with all that is in it, unless it is to be kept.
  ~TemporaryDirectory();

  const std::string& path() const { return path_; }
  void Keep() { keep_ = true; }

 private:
  TemporaryDirectory(std::string path, bool keep);

  std::string path_;
  bool keep_;
};

}  // namespace causeway

#endif  // COMMON_TEMPORARY_DIRECTORY_H_
