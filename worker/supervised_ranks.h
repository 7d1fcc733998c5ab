// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// causeway-worker --supervise: runs worker/supervisor as the flags say.
#ifndef WORKER_SUPERVISED_RANKS_H_
#define WORKER_SUPERVISED_RANKS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/device.h"

namespace causeway {

// Returns the command of each process: `arguments`, and flags at the end that
// override earlier ones. Process 0 listens at `leader`. The GPUs in `devices`
// and --threads are divided among the processes.
//   INVALID_ARGUMENT  The GPUs cannot be divided evenly.
absl::StatusOr<std::vector<std::vector<std::string>>> IslandCommands(
    const std::vector<std::string>& arguments,
    const std::vector<Device>& devices, const std::string& leader);

// Runs the processes of --supervise, with this process's `arguments`. Returns
// the exit code. Errors are those of Supervise, IslandCommands and FindDevices.
absl::StatusOr<int> SuperviseRanks(std::vector<std::string> arguments);

}  // namespace causeway

#endif  // WORKER_SUPERVISED_RANKS_H_
