// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A coordinator that takes part in the elections of its run, as a process.
#ifndef SERVER_ELECTED_H_
#define SERVER_ELECTED_H_

#include "absl/status/status.h"
#include "proto/run_config.pb.h"
#include "server/election/election.h"
#include "server/serve_options.h"

namespace causeway {

// Leads the run, or follows the coordinator that does, in turns.
absl::Status RunElected(ServeOptions options, const v1::RunConfig& config,
                        Election& election);

}  // namespace causeway

#endif  // SERVER_ELECTED_H_
