// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A directory that lives as long as a test or a measurement. Not thread-safe.
#ifndef COMMON_TESTING_TEMPORARY_DIRECTORY_H_
#define COMMON_TESTING_TEMPORARY_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace causeway {

class TemporaryDirectory {
 public:
  // Makes a new directory below the system's ($TMPDIR or /tmp); its name begins
  // with `prefix`. Errors as in common/os/file.h.
  static absl::StatusOr<TemporaryDirectory> Make(absl::string_view prefix);
  // Uses the directory `wanted`, which it makes if missing and does not remove;
  // makes a new one if `wanted` is empty.
  static absl::StatusOr<TemporaryDirectory> MakeUnless(
      const std::string& wanted, absl::string_view prefix);

  TemporaryDirectory(TemporaryDirectory&& other);
  TemporaryDirectory& operator=(TemporaryDirectory&& other) = delete;
  // Removes the directory with its contents, unless it is kept.
  ~TemporaryDirectory();

  const std::string& path() const { return path_; }
  void Keep() { keep_ = true; }

 private:
  TemporaryDirectory(std::string path, bool keep);

  std::string path_;
  bool keep_;
};

}  // namespace causeway

#endif  // COMMON_TESTING_TEMPORARY_DIRECTORY_H_
