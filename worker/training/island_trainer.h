// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Inner training of an island on one or several ranks: threads of one process,
// or processes on one or several hosts, connected by Gloo. The outer loop sees
// one InnerTrainer, that of rank 0.
//
// The AdamW moments belong to these processes: they start from zero when an
// island (re)joins, and the outer loop never touches them. The learning rate
// follows the run's step. Ranks share their fate: when one fails, all do, and
// the island joins again as a whole.
#ifndef WORKER_TRAINING_ISLAND_TRAINER_H_
#define WORKER_TRAINING_ISLAND_TRAINER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "proto/run_config.pb.h"
#include "worker/collective/rendezvous.h"
#include "worker/inner_trainer.h"
#include "worker/model/device.h"

namespace causeway {

struct IslandTrainerOptions {
  // Text or token files, as the run's tokenizer wants.
  std::vector<std::string> data;
  uint32_t shard = 0;
  // Of the ranks of this process, at least one: they take turns in it. GPUs are
  // one for each rank, or one for all in an island of threads.
  std::vector<Device> devices = {Device{}};
  // Of each rank, on the CPU.
  int threads = 1;
  // On GPUs; see Rank::Options.
  bool anchors_on_device = false;
  bool stochastic_rounding = false;
  bool bf16_gradients = false;
  // Whether gradients and parameters go from rank to rank in bf16
  // (Communicator::rounds); masters are fp32 in any case. On CPUs, and the same
  // for all ranks.
  bool bf16_between_ranks = false;
  // Limit of each collective operation (MessageCommunicatorOptions).
  absl::Duration timeout = absl::Minutes(1);
  Clock now;
};

// All `ranks` are threads of this process. `config` is resolved; `parameters`
// are the whole model's. Errors of OpenDataset (the data does not fit the run)
// and Rank::Create.
absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeThreadedIsland(
    const v1::RunConfig& config, const IslandTrainerOptions& options, int ranks,
    std::vector<float> parameters);

// One process of several, all with equally many ranks.
struct ProcessRankOptions {
  // Of the process, among `size` processes.
  int rank = 0;
  int size = 1;
  // Ranks in each process, its threads: those of this one are rank * threads
  // and the following ones.
  int threads = 1;
  // By which the other ranks reach this host; see GlooTransportOptions.
  std::string host;
  // Rank 0's table; new, and outlives the trainer.
  Rendezvous* rendezvous = nullptr;
  // How long ranks wait for one another at the start.
  absl::Duration connect_timeout = absl::Minutes(5);
};

// The process with rank 0. As MakeThreadedIsland, and errors of ConnectGloo.
absl::StatusOr<std::unique_ptr<InnerTrainer>> MakeLeadingRank(
    const v1::RunConfig& config, const IslandTrainerOptions& options,
    const ProcessRankOptions& process, std::vector<float> parameters);

// The other processes: takes part until rank 0 ends (OK), or fails as the first
// of its ranks does. Run and shard come from rank 0; options.shard is not used.
absl::Status RunFollowingRank(const IslandTrainerOptions& options,
                              const ProcessRankOptions& process);

}  // namespace causeway

#endif  // WORKER_TRAINING_ISLAND_TRAINER_H_
