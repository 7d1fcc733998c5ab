// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervisor/island_commands.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace causeway {

absl::StatusOr<std::vector<std::vector<std::string>>> IslandCommands(
    const IslandCommandOptions& options) {
  const auto devices = static_cast<int>(options.devices.size());
  const bool has_gpus = !options.devices[0].is_host();
  if (has_gpus && devices % options.processes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--supervise=", options.processes, " cannot share ",
                     devices, " GPUs out evenly"));
  }
  const int gpus = devices / options.processes;
  std::vector<std::vector<std::string>> commands;
  for (int i = 0; i < options.processes; ++i) {
    const int number = options.first_process + i;
    std::vector<std::string>& command = commands.emplace_back(options.command);
    command.insert(
        command.end(),
        {"--supervise=0", absl::StrCat("--island_size=", options.island_size),
         absl::StrCat("--island_rank=", number),
         absl::StrCat("--island_leader=", options.leader),
         absl::StrCat("--threads=",
                      std::max(1, options.threads / options.processes))});
    if (!options.trace.empty()) {
      command.push_back(absl::StrCat("--trace=", options.trace, ".", number));
    }
    if (!has_gpus) continue;
    std::string list;
    for (int gpu = i * gpus; gpu < (i + 1) * gpus; ++gpu) {
      absl::StrAppend(&list, list.empty() ? "cuda:" : ",",
                      options.devices[gpu].index);
    }
    command.push_back(absl::StrCat("--device=", list));
  }
  return commands;
}

}  // namespace causeway
