// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervised_ranks.h"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/service_manager.h"
#include "common/status_macros.h"
#include "worker/collective/tcp_rendezvous.h"
#include "worker/flags.h"
#include "worker/model/device.h"
#include "worker/supervisor/island_commands.h"
#include "worker/supervisor/supervisor.h"

ABSL_DECLARE_FLAG(std::string, trace);

namespace causeway {
namespace {

// Returns the address at which the next process 0 listens.
absl::StatusOr<std::string> Leader(const Clock& now) {
  const std::string leader = absl::GetFlag(FLAGS_island_leader);
  if (leader != kAnyLoopbackPort) return leader;
  ASSIGN_OR_RETURN(const std::unique_ptr<RendezvousServer> server,
                   RendezvousServer::Start({.address = leader, .now = now}));
  return server->address();
}

}  // namespace

absl::StatusOr<int> SuperviseRanks(std::vector<std::string> arguments) {
  std::error_code error;
  arguments[0] = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return absl::InternalError(
        absl::StrCat("cannot find this program: ", error.message()));
  }
  ASSIGN_OR_RETURN(const DeviceChoice choice,
                   ParseDevices(absl::GetFlag(FLAGS_device)));
  IslandCommandOptions commands{
      .command = std::move(arguments),
      .processes = absl::GetFlag(FLAGS_supervise),
      .first_process = absl::GetFlag(FLAGS_island_rank),
      .island_size = absl::GetFlag(FLAGS_island_size),
      .threads = ThreadsOfAll(),
      .trace = absl::GetFlag(FLAGS_trace)};
  ASSIGN_OR_RETURN(commands.devices, FindDevices(choice));
  const Clock now = SteadyWallClock();
  ServiceManager manager(now);
  // systemd listens to its own child only.
  unsetenv("NOTIFY_SOCKET");
  bool is_ready = false;
  return Supervise(
      {.commands =
           [&]() -> absl::StatusOr<std::vector<std::vector<std::string>>> {
         ASSIGN_OR_RETURN(commands.leader, Leader(now));
         return IslandCommands(commands);
       },
       .first_process = commands.first_process,
       .island_size = commands.island_size,
       .action = *OnRankFault(),
       .limits = {.least = absl::Seconds(absl::GetFlag(FLAGS_hang_floor)),
                  .most = absl::Seconds(absl::GetFlag(FLAGS_hang_ceiling)),
                  .silence = absl::Seconds(absl::GetFlag(FLAGS_hang_floor))},
       .interrupted_exit_code = absl::GetFlag(FLAGS_interrupted_exit_code),
       .now = now,
       .all_is_well =
           [&](bool has_joined) {
             if (has_joined && !std::exchange(is_ready, true)) manager.Ready();
             manager.Alive();
           }});
}

}  // namespace causeway
