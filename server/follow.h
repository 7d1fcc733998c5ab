// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A coordinator that follows another one, as a process.
#ifndef SERVER_FOLLOW_H_
#define SERVER_FOLLOW_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/replication/follower.h"
#include "server/serve_options.h"

namespace causeway {

// Opens the state directory for a follower.
absl::StatusOr<std::unique_ptr<Follower>> OpenFollower(
    const ServeOptions& options);

// Serves a follower, once it knows its run, until `is_over` returns true; calls
// it every 100 ms. Returns false if a signal came. Sets options.address to the
// port that it listens on.
absl::StatusOr<bool> ServeFollower(
    ServeOptions& options, Follower& follower,
    const std::function<absl::StatusOr<bool>()>& is_over);

// Follows the coordinator at `leader`, and leads the run once asked to. With
// `promote`, takes the run over at once if the state directory has a copy;
// `leader` may then be empty.
absl::Status RunFollower(ServeOptions options, const std::string& leader,
                         bool promote);

}  // namespace causeway

#endif  // SERVER_FOLLOW_H_
