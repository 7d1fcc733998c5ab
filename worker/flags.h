// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The flags of causeway-worker; `causeway-worker --help` describes them.
#ifndef WORKER_FLAGS_H_
#define WORKER_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "worker/collective/crew.h"
#include "worker/collective/succession.h"
#include "worker/supervisor/supervisor.h"

ABSL_DECLARE_FLAG(std::string, coordinator);
ABSL_DECLARE_FLAG(std::string, island);
ABSL_DECLARE_FLAG(std::vector<std::string>, data);
ABSL_DECLARE_FLAG(std::string, device);
ABSL_DECLARE_FLAG(std::optional<bool>, anchors_on_device);
ABSL_DECLARE_FLAG(int, threads);
ABSL_DECLARE_FLAG(int, ranks);
ABSL_DECLARE_FLAG(int, island_size);
ABSL_DECLARE_FLAG(int, island_rank);
ABSL_DECLARE_FLAG(std::string, island_leader);
ABSL_DECLARE_FLAG(std::string, rank_host);
ABSL_DECLARE_FLAG(std::string, rank_secret_file);
ABSL_DECLARE_FLAG(bool, rank_encryption);
ABSL_DECLARE_FLAG(double, rank_timeout);
ABSL_DECLARE_FLAG(int, supervise);
ABSL_DECLARE_FLAG(double, leave_out_slow);
ABSL_DECLARE_FLAG(double, hang_floor);
ABSL_DECLARE_FLAG(double, hang_ceiling);
ABSL_DECLARE_FLAG(std::string, tls);
ABSL_DECLARE_FLAG(std::string, join);
ABSL_DECLARE_FLAG(std::string, join_file);
ABSL_DECLARE_FLAG(std::string, tls_ca);
ABSL_DECLARE_FLAG(std::string, tls_cert);
ABSL_DECLARE_FLAG(std::string, tls_key);
ABSL_DECLARE_FLAG(std::string, region);
ABSL_DECLARE_FLAG(int, bulk_connections);
ABSL_DECLARE_FLAG(double, uplink_mbit_s);
ABSL_DECLARE_FLAG(double, downlink_mbit_s);
ABSL_DECLARE_FLAG(double, simulated_step_seconds);
ABSL_DECLARE_FLAG(std::optional<uint32_t>, overlap_steps);
ABSL_DECLARE_FLAG(std::optional<double>, uplink_bits);
ABSL_DECLARE_FLAG(double, leave_timeout);
ABSL_DECLARE_FLAG(std::string, preemption_notice_file);
ABSL_DECLARE_FLAG(int, interrupted_exit_code);
ABSL_DECLARE_FLAG(std::string, checkpoint_dir);
ABSL_DECLARE_FLAG(std::string, initial_parameters);
ABSL_DECLARE_FLAG(uint64_t, checkpoint_steps);
ABSL_DECLARE_FLAG(std::string, recent_checkpoint_dir);
ABSL_DECLARE_FLAG(std::string, keep_checkpoint_copy);
ABSL_DECLARE_FLAG(std::string, copy_checkpoint_to);
ABSL_DECLARE_FLAG(double, copy_mbit_s);
ABSL_DECLARE_FLAG(double, log_seconds);
ABSL_DECLARE_FLAG(std::string, metrics_listen);

namespace causeway {

// An --island_leader that stands for any free port.
inline constexpr char kAnyLoopbackPort[] = "127.0.0.1:0";

// With --supervise, sets --island_size and --island_leader if they are not
// given. Call before UsageProblem.
void SetSupervisedIsland();

// Returns the problem with this number of ranks of each of the island's
// processes, or "". --ranks may leave it to the devices.
std::string RanksProblem(int ranks);

// Returns the problem with the flags, or "".
std::string UsageProblem();

// Returns --data_weights. Text that is not a number becomes 0, which is
// invalid.
std::vector<double> DataWeights();

// Returns --threads, or the number of processors.
int ThreadsOfAll();

// Returns --on_rank_fault, or nothing if it is invalid.
std::optional<RankFaultAction> OnRankFault();

// Returns the rules of a crew that this process leads, from --island_size,
// --min_island_size and --shrink_after.
CrewRules IslandCrewRules();

// Returns the addresses of --island_leader, in order of succession; none if it
// is not given.
std::vector<LeaderAddress> IslandLeaders();

// Returns the directory for copies of another host's checkpoint
// (--keep_checkpoint_copy), or "".
std::string CheckpointCopyDirectory();

// Returns whether other processes may succeed process 0.
bool HasSuccessors();

// Returns whether this process, or one that it supervises, may ever lead the
// island.
bool MayLead();

// Returns whether only this machine can reach --island_leader.
bool LeaderIsOnLoopback();

}  // namespace causeway

#endif  // WORKER_FLAGS_H_
