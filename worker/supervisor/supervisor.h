// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Starts an island's processes on this host and keeps them alive.
//
// An island's ranks end together: when one dies, the others notice and end,
// too, on all hosts. So each host's supervisor starts its own ranks again, and
// they meet at rank 0 as at the first start. A rank that is stuck is killed,
// which makes it dead. Rank 0 takes the island up from its checkpoint, or else
// from the run's parameters.
#ifndef WORKER_SUPERVISOR_SUPERVISOR_H_
#define WORKER_SUPERVISOR_SUPERVISOR_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "worker/supervisor/rank_watch.h"

namespace causeway {

// The exit code of an island that must not be started again before someone has
// looked at it, because it fails again and again or computes wrong numbers: of
// its supervisors, and of the processes that know.
inline constexpr int kGaveUpExitCode = 3;

// What the supervisor does about a rank that is dead or stuck.
enum class RankFaultAction {
  // Reports it. The island ends if the rank is dead.
  kDetect,
  // Reports also what it would do.
  kDecide,
  // Kills a rank that is stuck, and starts the island's ranks again.
  kAct,
};

struct SupervisorOptions {
  // Makes the commands for the next start, one for each process.
  std::function<absl::StatusOr<std::vector<std::vector<std::string>>>()>
      commands;
  // The number of the first process in the island, and the island's processes
  // on all hosts.
  int first_process = 0;
  int island_size = 1;
  RankFaultAction action = RankFaultAction::kDetect;
  // Says that the island can go on without a process. One that ends before it
  // has a rank is then started again alone, now and then.
  bool has_spares = false;
  // Says that process 0 is such a process, too, because another one leads the
  // island if that does not.
  bool has_successors = false;
  WatchLimits limits;
  // See RestartBudget.
  absl::Duration first_pause = absl::Seconds(1);
  // The folder of the system's files, which tell if memory has run out.
  std::string root;
  // The exit code of a process that has left the run because it was told to.
  int interrupted_exit_code = 0;
  Clock now;
  // Called often while no rank is known to be dead or stuck, with whether the
  // island has joined. May be null.
  std::function<void(bool has_joined)> all_is_well;
};

struct SupervisionEnd {
  // The code of the island's process 0 if it is one of the processes, otherwise
  // the highest; or kGaveUpExitCode.
  int exit_code = 0;
  // Says whether the island has ended in order, and goes on from no recent
  // checkpoint.
  bool is_over = false;
};

// Runs the processes until they end in order, or until they fail and are not to
// be started again, as after kGaveUpExitCode. Passes termination signals on.
// `main` calls it, with the signals blocked (common/os/daemon.h).
absl::StatusOr<SupervisionEnd> Supervise(const SupervisorOptions& options);

}  // namespace causeway

#endif  // WORKER_SUPERVISOR_SUPERVISOR_H_
