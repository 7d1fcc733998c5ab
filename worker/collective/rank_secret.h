// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The secret that the processes of an island share, and the keys by which they
// authenticate each other (worker/collective/secure_socket.h).
#ifndef WORKER_COLLECTIVE_RANK_SECRET_H_
#define WORKER_COLLECTIVE_RANK_SECRET_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace causeway {

// Returns the file's bytes without trailing white space, which editors add.
//   INVALID_ARGUMENT  There are fewer than 32, which might be guessed.
//   NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE  See ReadFile.
absl::StatusOr<std::string> ReadRankSecret(const std::string& path);

inline constexpr size_t kRankKeyBytes = 32;
// Returns a key that depends on all bytes of `secret`.
std::string KeyOfSecret(absl::string_view secret);
std::string RandomKey();

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_RANK_SECRET_H_
