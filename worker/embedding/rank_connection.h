// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Connects the processes of an embedded island.
#ifndef WORKER_EMBEDDING_RANK_CONNECTION_H_
#define WORKER_EMBEDDING_RANK_CONNECTION_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "worker/collective/rendezvous.h"
#include "worker/collective/tcp_rendezvous.h"
#include "worker/embedding/embedded_island.h"
#include "worker/replica/orders.h"

namespace causeway {

// On rank 0: serves the rendezvous. On the others: waits for it. Errors are
// those of tcp_rendezvous.h.
absl::StatusOr<std::unique_ptr<RendezvousServer>> ServeRendezvous(
    const EmbeddedIslandOptions& options);
absl::StatusOr<std::unique_ptr<Rendezvous>> FindRendezvous(
    const EmbeddedIslandOptions& options);

// On rank 0: publishes the run for the other ranks, and whether ranks encrypt.
absl::Status ShareRun(const v1::JoinResponse& joined, bool encrypt,
                      Rendezvous* rendezvous);
// On rank 0: says instead why it has ended without a run.
void ShareNoRun(const absl::Status& status, Rendezvous* rendezvous);
// On the others: waits for the run. DEADLINE_EXCEEDED if it does not come in
// time. If rank 0 has none, returns its error like AwaitRank.
absl::StatusOr<v1::JoinResponse> AwaitSharedRun(Rendezvous* rendezvous,
                                                absl::Duration timeout,
                                                bool& encrypt);

// Milestones that each rank reports once to the others, until the ranks are
// connected. A status other than OK says why the rank stops.
enum class Milestone {
  // The rank has attached its tensors.
  kAttached,
  // All ranks have attached; rank 0 has loaded the parameters, and connects.
  kBegun,
};
void TellRanks(Milestone milestone, int rank, const absl::Status& status,
               Rendezvous* rendezvous);
// Waits until `rank` reports the milestone, and returns its status: CANCELLED
// if it leaves in order, and ABORTED if it has failed.
//   DEADLINE_EXCEEDED  It has reported nothing within `timeout`.
//   UNAVAILABLE        Rank 0 has ended.
absl::Status AwaitRank(Milestone milestone, int rank, absl::Duration timeout,
                       Rendezvous* rendezvous);
// Waits until rank 0 has begun. Errors of rank 0 name it. Gives up soon after
// `stop` returns true.
absl::Status AwaitBegin(const EmbeddedIslandOptions& options,
                        const std::function<bool()>& stop,
                        Rendezvous* rendezvous);
// Returns the error that names a rank that has not attached its tensors.
absl::Status NotAttached(int rank, absl::Duration timeout);

// Connects all ranks, which call it together.
absl::StatusOr<RankCommunicators> ConnectRanks(
    const EmbeddedIslandOptions& options, Rendezvous* rendezvous);

// Returns the period at which rank 0 shows that it is alive; see Orders.
absl::Duration Pulse(const EmbeddedIslandOptions& options);

}  // namespace causeway

#endif  // WORKER_EMBEDDING_RANK_CONNECTION_H_
