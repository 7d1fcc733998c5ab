// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The ranks of this process of causeway-worker, as its flags say.
#ifndef WORKER_LOCAL_RANKS_H_
#define WORKER_LOCAL_RANKS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/succession.h"
#include "worker/collective/tcp_rendezvous.h"
#include "worker/model/device.h"
#include "worker/training/island_ranks.h"

namespace causeway {

// A process waits this long for another that starts.
inline constexpr absl::Duration kAwaitProcess = absl::Minutes(5);

// The devices of this process and its ranks on them.
struct LocalRanks {
  std::vector<Device> devices;
  int count = 1;
  // The computing threads of each rank.
  int threads = 1;
};

// Fails if a device cannot be used, or the island has too many ranks.
absl::StatusOr<LocalRanks> FindLocalRanks();

IslandRanksOptions TrainerOptions(const LocalRanks& local);

// Returns the options of process `rank` of `size`, which meets the others in
// `rendezvous`.
ProcessRankOptions RankOptions(const LocalRanks& local, int rank, int size,
                               Rendezvous* rendezvous);

// Returns the address where this process listens if it may lead the island, and
// otherwise process 0's, with the secret. Fails if the secret cannot be read.
absl::StatusOr<RendezvousOptions> IslandRendezvousOptions();

// Returns the processes that may lead the island. Fails if the secret cannot be
// read.
absl::StatusOr<Succession> IslandSuccession();

}  // namespace causeway

#endif  // WORKER_LOCAL_RANKS_H_
