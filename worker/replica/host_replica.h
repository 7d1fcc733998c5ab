// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The replica of an island of tests: one thread, and a vector of parameters.
#ifndef WORKER_REPLICA_HOST_REPLICA_H_
#define WORKER_REPLICA_HOST_REPLICA_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "outer_optimizer/fragment_plan.h"
#include "worker/collective/communicator.h"
#include "worker/collective/local_transport.h"
#include "worker/collective/message_communicator.h"
#include "worker/collective/rendezvous.h"
#include "worker/replica/fragment_replica.h"
#include "worker/replica/host_fragment_part.h"
#include "worker/replica/replica_rank.h"
#include "worker/replica/snapshot_pool.h"

namespace causeway {

class HostReplica {
 public:
  // `parameters` are the whole model's, and outlive the replica where they are.
  static absl::StatusOr<std::unique_ptr<HostReplica>> Create(
      const FragmentMap& map, const ReplicaOptions& options,
      absl::Span<float> parameters) {
    auto replica = std::make_unique<HostReplica>();
    float* const master = parameters.data();
    SnapshotPool* const snapshots = &replica->snapshots_;
    ASSIGN_OR_RETURN(
        replica->rank_,
        ReplicaRank::Create(
            {.map = map,
             .shards = {{0, static_cast<int64_t>(parameters.size())}},
             .replica = options,
             .make_part =
                 [snapshots](uint32_t fragment, const FragmentShare& share,
                             const ReplicaOptions& part_options,
                             const float* values) {
                   return MakeHostFragmentPart(fragment, share, part_options,
                                               values, snapshots);
                 },
             .communicator = replica->communicator_.get()},
            master));
    replica->master_ = master;
    return replica;
  }

  // Once.
  std::vector<std::unique_ptr<FragmentReplica>> Fragments() {
    return rank_->Fragments(
        {.take_snapshot =
             [this](uint32_t fragment, bool eager) {
               return rank_->TakeSnapshot(fragment, eager, master_);
             },
         .apply =
             [this](uint32_t fragment, const UpdateUse& use) {
               return rank_->Apply(fragment, use, master_);
             }});
  }

  SnapshotPool& snapshots() { return snapshots_; }

 private:
  LocalRendezvous rendezvous_;
  const std::unique_ptr<Communicator> communicator_ = MakeMessageCommunicator(
      {.timeout = absl::Minutes(5), .now = SteadyWallClock()},
      std::move(MakeLocalTransports(1)[0]), &rendezvous_);
  SnapshotPool snapshots_;
  std::unique_ptr<ReplicaRank> rank_;
  float* master_ = nullptr;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_HOST_REPLICA_H_
