// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The inner training of an island on one or several ranks: threads of one
// process, or processes on one or several hosts, connected by TCP. The outer
// loop sees only the InnerTrainer of rank 0.
//
// The moments of the optimizer belong to these processes: they start from zero
// unless the island continues from a checkpoint or the state of an earlier
// crew, and the outer loop never touches them. The learning rate follows the
// run's step. When one rank fails, all do, and the island joins again as a
// whole.
#ifndef WORKER_TRAINING_ISLAND_RANKS_H_
#define WORKER_TRAINING_ISLAND_RANKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "proto/coordinator.pb.h"
#include "proto/run_config.pb.h"
#include "worker/collective/collective_diagnosis.h"
#include "worker/collective/rendezvous.h"
#include "worker/inner_trainer.h"
#include "worker/model/device.h"

namespace causeway {

struct IslandRanksOptions {
  // Text or token files, as the run's tokenizer requires.
  std::vector<std::string> data;
  // See Dataset::weights.
  std::vector<double> data_weights;
  uint32_t shard = 0;
  // As in JoinResponse.
  uint32_t data_order = 0;
  // The devices, at least one, for this process's ranks in turn: a GPU for each
  // rank, or one for all in an island of threads.
  std::vector<Device> devices = {Device{}};
  // The threads of each rank, on the CPU.
  int threads = 1;
  // For GPUs; see Rank::Options.
  std::optional<bool> anchors_on_device;
  // The time limit of each collective operation (MessageCommunicatorOptions).
  absl::Duration timeout = absl::Minutes(1);
  // See Rank::Options.
  std::function<void(const CollectiveDiagnosis&)> diagnosed = nullptr;
  Clock now;
};

// Checks that the islands below can train the run.
//   FAILED_PRECONDITION  They cannot: the run is defined by its tensors.
absl::Status CheckTrainable(const v1::JoinResponse& joined);

// Makes an island whose `ranks` are all threads of this process. `config` is
// resolved; `parameters` has the whole model. Errors are those of OpenDataset
// (the data does not fit the run) and Rank::Create.
absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeThreadedIsland(
    const v1::RunConfig& config, const IslandRanksOptions& options, int ranks,
    std::vector<float> parameters);

// One of several processes with equal numbers of ranks.
struct ProcessRankOptions {
  // The number of the process, among `size` processes.
  int rank = 0;
  int size = 1;
  // The ranks in each process, which are threads. This process's first rank is
  // rank * threads.
  int threads = 1;
  // See TcpTransportOptions.
  std::string host;
  // Is true if ranks encrypt their messages. Rank 0's process decides.
  bool encrypt = false;
  // Rank 0's table. It must be new, and must outlive the trainer.
  Rendezvous* rendezvous = nullptr;
  // The longest time that ranks wait for each other once all processes have
  // opened their data.
  absl::Duration connect_timeout = absl::Minutes(5);
  // Waits for a moment while another process opens its data. Returns false to
  // give up, with CANCELLED. May be null.
  std::function<bool()> pause;
  // Called, perhaps on several threads, when a rank of a following process has
  // connected to all others. May be null.
  std::function<void()> connected;
};

// Makes the trainer of the process with rank 0. See MakeThreadedIsland; errors
// can also be those of ConnectTcp.
absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeLeadingRank(
    const v1::RunConfig& config, const IslandRanksOptions& options,
    const ProcessRankOptions& process, std::vector<float> parameters);

// Runs one of the other processes until rank 0 ends (OK), or returns the error
// of a rank of this process. The run, the shard and its order come from rank
// 0, and so does whether messages are encrypted.
absl::Status RunFollowingRank(IslandRanksOptions options,
                              ProcessRankOptions process);

}  // namespace causeway

#endif  // WORKER_TRAINING_ISLAND_RANKS_H_
