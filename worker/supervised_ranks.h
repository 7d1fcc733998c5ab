// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// causeway-worker --supervise: the flags of worker/supervisor.
#ifndef WORKER_SUPERVISED_RANKS_H_
#define WORKER_SUPERVISED_RANKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/device.h"

namespace causeway {

// Returns the command of each process: `arguments`, with other flags at the
// end, which count. The process 0 that comes next listens at `leader`. GPUs of
// `devices`, and --threads, are shared out.
//   INVALID_ARGUMENT  the GPUs cannot be shared out evenly.
absl::StatusOr<std::vector<std::vector<std::string>>> IslandCommands(
    const std::vector<std::string>& arguments,
    const std::vector<Device>& devices, const std::string& leader);

// Runs the processes that --supervise asks for, with the `arguments` of this
// process. Returns the exit code. Errors are those of Supervise,
// IslandCommands and FindDevices.
absl::StatusOr<int> SuperviseRanks(std::vector<std::string> arguments);

}  // namespace causeway

#endif  // WORKER_SUPERVISED_RANKS_H_
