// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The commands of the processes that a supervisor starts: its own, with other
// flags at the end, which count.
#ifndef WORKER_SUPERVISOR_ISLAND_COMMANDS_H_
#define WORKER_SUPERVISOR_ISLAND_COMMANDS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/model/device.h"

namespace causeway {

struct IslandCommandOptions {
  std::vector<std::string> command;
  // The processes on this host, the number of the first one in the island, and
  // the island's processes on all hosts.
  int processes = 1;
  int first_process = 0;
  int island_size = 1;
  std::string leader;
  // The computing threads of all processes together.
  int threads = 1;
  // The devices of all processes; GPUs are shared out.
  std::vector<Device> devices;
  // --trace, or "".
  std::string trace;
};

// Returns a command for each process. INVALID_ARGUMENT: GPUs cannot be shared
// out evenly.
absl::StatusOr<std::vector<std::vector<std::string>>> IslandCommands(
    const IslandCommandOptions& options);

}  // namespace causeway

#endif  // WORKER_SUPERVISOR_ISLAND_COMMANDS_H_
