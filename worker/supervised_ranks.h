// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// causeway-worker --supervise: the flags of worker/supervisor.
#ifndef WORKER_SUPERVISED_RANKS_H_
#define WORKER_SUPERVISED_RANKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace causeway {

// Runs the processes that --supervise asks for, with the `arguments` of this
// process. Returns the exit code. Errors are those of Supervise,
// IslandCommands and FindDevices.
absl::StatusOr<int> SuperviseRanks(std::vector<std::string> arguments);

}  // namespace causeway

#endif  // WORKER_SUPERVISED_RANKS_H_
