// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Starts an island's processes on this host and keeps them alive.
//
// An island's ranks end together: when one dies, the others on all hosts notice
// and end, too. Then each host's supervisor starts its own ranks again, and
// they meet at rank 0 as at the first start. A stuck rank is killed. Rank 0
// continues from the island's checkpoint, or else from the run's parameters.
#ifndef WORKER_SUPERVISOR_SUPERVISOR_H_
#define WORKER_SUPERVISOR_SUPERVISOR_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "worker/supervisor/rank_watch.h"

namespace causeway {

// Supervisors, and processes that know, exit with this code if the island must
// not be started again before someone has looked at it, because it fails again
// and again or computes wrong numbers.
inline constexpr int kGaveUpExitCode = 3;

// The supervisor's action on a rank that is dead or stuck.
enum class RankFaultAction {
  // Reports it. The island ends if the rank is dead.
  kDetect,
  // Also reports what it would do.
  kDecide,
  // Kills a stuck rank, and starts the island's ranks again.
  kAct,
};

struct SupervisorOptions {
  // Makes the commands for the next start, one for each process. An error ends
  // the first start; later starts are tried again.
  std::function<absl::StatusOr<std::vector<std::vector<std::string>>>()>
      commands;
  // The first process's number in the island, and the number of the island's
  // processes on all hosts.
  int first_process = 0;
  int island_size = 1;
  RankFaultAction action = RankFaultAction::kDetect;
  // Is true if the island can continue without a process. A process that ends
  // before it has a rank is then started again alone, after a pause.
  bool has_spares = false;
  // Is true if that holds for process 0, too, because another process can lead
  // the island.
  bool has_successors = false;
  WatchLimits limits;
  // See RestartBudget.
  absl::Duration first_pause = absl::Seconds(1);
  // The root folder of the system's files that tell whether memory has run out.
  std::string root;
  // The exit code of a process that has left the run on request.
  int interrupted_exit_code = 0;
  Clock now;
  // Called often while no rank is known to be dead or stuck. May be null.
  std::function<void(bool has_joined)> all_is_well;
};

struct SupervisionEnd {
  // The code of the island's process 0 if it is one of these processes,
  // otherwise the highest; or kGaveUpExitCode.
  int exit_code = 0;
  // Is true if the island has ended in order, and no later start needs the
  // recent checkpoint.
  bool is_over = false;
};

// Runs the processes until they end in order, or fail and must not be started
// again, as after kGaveUpExitCode. Forwards termination signals. `main` calls
// it, with the signals blocked (common/os/daemon.h). Fails only if it cannot
// start the processes for the first time.
absl::StatusOr<SupervisionEnd> Supervise(const SupervisorOptions& options);

}  // namespace causeway

#endif  // WORKER_SUPERVISOR_SUPERVISOR_H_
