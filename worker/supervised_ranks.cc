// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/supervised_ranks.h"

#include <algorithm>
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
#include "common/os/file.h"
#include "common/os/service_manager.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "worker/collective/crew.h"
#include "worker/collective/rank_secret.h"
#include "worker/collective/tcp_rendezvous.h"
#include "worker/flags.h"
#include "worker/island_checkpoint.h"
#include "worker/model/device.h"
#include "worker/supervisor/checkpoint_copy.h"
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

// The copies of the island's checkpoint that this host keeps, and those that it
// sends to another host.
struct CheckpointCopies {
  std::unique_ptr<CheckpointKeeper> keeper;
  std::unique_ptr<CheckpointMirror> mirror;
};

absl::StatusOr<CheckpointCopies> StartCopies(const Clock& now) {
  CheckpointCopyOptions options{
      .directory = absl::GetFlag(FLAGS_recent_checkpoint_dir),
      .bytes_per_second = absl::GetFlag(FLAGS_copy_mbit_s) * 1e6 / 8,
      .now = now};
  const std::string secret_file = absl::GetFlag(FLAGS_rank_secret_file);
  if (!secret_file.empty()) {
    ASSIGN_OR_RETURN(options.secret, ReadRankSecret(secret_file));
  }
  CheckpointCopies copies;
  options.address = absl::GetFlag(FLAGS_keep_checkpoint_copy);
  if (!options.address.empty()) {
    CheckpointCopyOptions kept = options;
    RETURN_IF_ERROR(CreateDirectory(options.directory));
    kept.directory = CheckpointCopyDirectory();
    ASSIGN_OR_RETURN(copies.keeper, CheckpointKeeper::Start(kept));
  }
  options.address = absl::GetFlag(FLAGS_copy_checkpoint_to);
  if (!options.address.empty() && MayLead()) {
    const absl::Status fetched = FetchCheckpoint(options);
    LOG_IF(WARNING, !fetched.ok())
        << "cannot fetch a copy of the island's checkpoint: "
        << fetched.message();
    copies.mirror = std::make_unique<CheckpointMirror>(options);
  }
  return copies;
}

// Removes this host's recent checkpoint, which may be left from a time when it
// led the island.
absl::Status RemoveOwnCheckpoint() {
  const std::string recent = absl::GetFlag(FLAGS_recent_checkpoint_dir);
  if (!HasSuccessors() || !MayLead() || recent.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto store, IslandCheckpointStore::Open(recent));
  return store->Remove();
}

}  // namespace

absl::StatusOr<std::vector<std::vector<std::string>>> IslandCommands(
    const std::vector<std::string>& arguments,
    const std::vector<Device>& devices, const std::string& leader) {
  const int processes = absl::GetFlag(FLAGS_supervise);
  const auto count = static_cast<int>(devices.size());
  const bool has_gpus = !devices[0].is_host();
  if (has_gpus && count % processes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--supervise=", processes, " cannot share ", count, " GPUs evenly"));
  }
  const int gpus = count / processes;
  const std::string trace = absl::GetFlag(FLAGS_trace);
  std::vector<std::vector<std::string>> commands(processes, arguments);
  for (int i = 0; i < processes; ++i) {
    const int number = absl::GetFlag(FLAGS_island_rank) + i;
    const auto add = [&command = commands[i]](const auto&... parts) {
      command.push_back(absl::StrCat(parts...));
    };
    add("--supervise=0");
    add("--island_size=", absl::GetFlag(FLAGS_island_size));
    add("--island_rank=", number);
    add("--island_leader=", leader);
    add("--threads=", std::max(1, ThreadsOfAll() / processes));
    if (!trace.empty()) add("--trace=", trace, ".", number);
    if (!has_gpus) continue;
    std::string list;
    for (int gpu = i * gpus; gpu < (i + 1) * gpus; ++gpu) {
      absl::StrAppend(&list, list.empty() ? "cuda:" : ",", devices[gpu].index);
    }
    add("--device=", list);
  }
  return commands;
}

absl::StatusOr<int> SuperviseRanks(std::vector<std::string> arguments) {
  std::error_code error;
  arguments[0] = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return absl::InternalError(
        absl::StrCat("cannot find this program: ", error.message()));
  }
  ASSIGN_OR_RETURN(const DeviceChoice choice,
                   ParseDevices(absl::GetFlag(FLAGS_device)));
  ASSIGN_OR_RETURN(const std::vector<Device> devices, FindDevices(choice));
  const Clock now = SteadyWallClock();
  ASSIGN_OR_RETURN(const CheckpointCopies copies, StartCopies(now));
  ServiceManager manager(now);
  // systemd accepts messages from its own child only.
  unsetenv("NOTIFY_SOCKET");
  const CrewRules rules = IslandCrewRules();
  bool is_ready = false;
  const absl::StatusOr<SupervisionEnd> end = Supervise(
      {.commands =
           [&]() -> absl::StatusOr<std::vector<std::vector<std::string>>> {
         ASSIGN_OR_RETURN(const std::string leader, Leader(now));
         return IslandCommands(arguments, devices, leader);
       },
       .first_process = rules.leader,
       .island_size = rules.size,
       .action = *OnRankFault(),
       .has_spares = rules.least < rules.size ||
                     rules.leader + absl::GetFlag(FLAGS_supervise) > rules.size,
       .has_successors = HasSuccessors(),
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
  RETURN_IF_ERROR(end.status());
  if (end->is_over) {
    if (copies.keeper != nullptr) copies.keeper->RemoveAtEnd();
    RETURN_IF_ERROR(RemoveOwnCheckpoint());
  }
  return end->exit_code;
}

}  // namespace causeway
