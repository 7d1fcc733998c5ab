// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The replica of an island in tests: one rank, and a vector of parameters.
#ifndef WORKER_REPLICA_TESTING_HOST_REPLICA_H_
#define WORKER_REPLICA_TESTING_HOST_REPLICA_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "outer_optimizer/fragment_plan.h"
#include "worker/collective/rendezvous.h"
#include "worker/replica/fragment_replica.h"
#include "worker/replica/host_fragment_part.h"
#include "worker/replica/orders.h"
#include "worker/replica/replica_rank.h"
#include "worker/replica/snapshot_pool.h"
#include "worker/replica/testing/local_communicators.h"

namespace causeway {

class HostReplica {
 public:
  // `parameters`, of the whole model, outlive the replica and do not move.
  static absl::StatusOr<std::unique_ptr<HostReplica>> Create(
      const FragmentMap& map, const ReplicaOptions& options,
      absl::Span<float> parameters) {
    auto replica = std::make_unique<HostReplica>();
    ASSIGN_OR_RETURN(
        replica->rank_,
        ReplicaRank::Create(
            {.map = map,
             .shards = {{0, static_cast<int64_t>(parameters.size())}},
             .replica = options,
             .make_part =
                 [snapshots = &replica->snapshots_](
                     uint32_t /*fragment*/, const FragmentShare& share,
                     const ReplicaOptions& part_options, const float* values) {
                   return MakeHostFragmentPart(share, part_options, values,
                                               snapshots);
                 },
             .masters = [parameters](bool) { return parameters.data(); },
             .orders = &replica->orders_}));
    return replica;
  }

  // Call once.
  std::vector<std::unique_ptr<FragmentReplica>> Fragments() {
    return rank_->Fragments();
  }

  SnapshotPool& snapshots() { return snapshots_; }

 private:
  LocalRendezvous rendezvous_;
  Orders orders_{std::move(LocalCommunicators(1, &rendezvous_)[0]),
                 absl::Minutes(1)};
  SnapshotPool snapshots_;
  std::unique_ptr<ReplicaRank> rank_;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_TESTING_HOST_REPLICA_H_
