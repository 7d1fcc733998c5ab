// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_OUTER_LOOP_RETRY_H_
#define WORKER_OUTER_LOOP_RETRY_H_

#include "absl/status/status.h"
#include "absl/strings/match.h"

namespace causeway {

// Returns whether a later try of the same call to the coordinator may succeed.
inline bool IsRetryable(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kCancelled:
      return true;
    default:
      return false;
  }
}

// Returns whether `status` says that nothing is left to train: the
// coordinator's refusal of a join, or the end of the island after it. The code
// alone does not say so (docs/protocol.md).
inline bool SaysRunIsFinished(const absl::Status& status) {
  return (absl::IsFailedPrecondition(status) || absl::IsCancelled(status)) &&
         absl::StrContains(status.message(), " is finished: ");
}

// Returns whether a contribution was refused because its version was lost with
// the coordinator that had made it. Such a replica has not diverged, though
// diverged ones get the same code (docs/protocol.md).
inline bool SaysVersionIsLost(const absl::Status& status) {
  return absl::IsOutOfRange(status) &&
         absl::StrContains(status.message(), " was lost with ");
}

}  // namespace causeway

#endif  // WORKER_OUTER_LOOP_RETRY_H_
