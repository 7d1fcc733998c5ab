// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A coordinator that follows another one, or takes part in the elections of its
// run, as a process.
#ifndef SERVER_FOLLOW_H_
#define SERVER_FOLLOW_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/run_config.pb.h"
#include "server/election/election.h"
#include "server/replication/follower.h"
#include "server/serve_options.h"

namespace causeway {

// Follows the coordinator at `leader`, and leads the run once asked to, or at
// once if the state directory has taken it over before. Follows again once
// another coordinator leads. With `promote`, leads at once if the state
// directory has a run; `leader` may then be empty. A start that leads at once
// has `config`, if given; any other, the configuration that the run had last.
absl::Status RunFollower(ServeOptions options, const std::string& leader,
                         bool promote,
                         const std::optional<v1::RunConfig>& config);

// Leads the run while elected, and otherwise follows its leader.
absl::Status RunElected(ServeOptions options, const v1::RunConfig& config,
                        Election& election);

}  // namespace causeway

#endif  // SERVER_FOLLOW_H_
