// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The encoded bytes of quarantined contributions, each in the file
// quarantine/ID of the state directory. An entry without a readable file cannot
// be admitted.
//
// Not thread-safe for the same id.
#ifndef SERVER_STORAGE_QUARANTINE_STORE_H_
#define SERVER_STORAGE_QUARANTINE_STORE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace causeway {

class QuarantineStore {
 public:
  explicit QuarantineStore(const std::string& state_directory)
      : path_(state_directory + "/quarantine") {}

  absl::Status Write(uint64_t id, absl::string_view encoded) const;
  // Returns NOT_FOUND if there is none.
  absl::StatusOr<std::string> Read(uint64_t id) const;
  // Does nothing if there is none.
  absl::Status Remove(uint64_t id) const;

 private:
  std::string File(uint64_t id) const;

  const std::string path_;
};

}  // namespace causeway

#endif  // SERVER_STORAGE_QUARANTINE_STORE_H_
