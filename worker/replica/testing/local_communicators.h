// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef WORKER_REPLICA_TESTING_LOCAL_COMMUNICATORS_H_
#define WORKER_REPLICA_TESTING_LOCAL_COMMUNICATORS_H_

#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "worker/collective/communicator.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"
#include "worker/replica/orders.h"

namespace causeway {

// Returns the communicators of ranks that are threads of the test, by rank.
// `rendezvous` outlives them.
inline std::vector<RankCommunicators> LocalCommunicators(
    int size, Rendezvous* rendezvous,
    absl::Duration timeout = absl::Minutes(5)) {
  std::vector<RankCommunicators> ranks(size);
  for (const auto member :
       {&RankCommunicators::orders, &RankCommunicators::training,
        &RankCommunicators::replica}) {
    auto transports = MakeLocalTransports(size);
    for (int rank = 0; rank < size; ++rank) {
      ranks[rank].*member = MakeMessageCommunicator(
          {.timeout = timeout, .now = SteadyWallClock()},
          std::move(transports[rank]), rendezvous);
    }
  }
  return ranks;
}

}  // namespace causeway

#endif  // WORKER_REPLICA_TESTING_LOCAL_COMMUNICATORS_H_
