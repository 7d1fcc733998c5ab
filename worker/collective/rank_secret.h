// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The secret that the processes of an island share.
#ifndef WORKER_COLLECTIVE_RANK_SECRET_H_
#define WORKER_COLLECTIVE_RANK_SECRET_H_

#include <string>

#include "absl/status/statusor.h"

namespace causeway {

// Returns the file's bytes without white space at the end, which editors add.
//   INVALID_ARGUMENT  They are fewer than 32: somebody might guess them.
//   NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE  See ReadFile.
absl::StatusOr<std::string> ReadRankSecret(const std::string& path);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_RANK_SECRET_H_
