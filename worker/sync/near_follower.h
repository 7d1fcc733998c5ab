// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The follower of an island's region, from which islands fetch in place of the
// coordinator. A follower that fails is not used for a while.
#ifndef WORKER_SYNC_NEAR_FOLLOWER_H_
#define WORKER_SYNC_NEAR_FOLLOWER_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/sync/bulk_lanes.h"
#include "worker/sync/call_group.h"
#include "worker/sync/coordinator_channel.h"

namespace causeway {

// Thread-safe.
class NearFollower {
 public:
  // A follower that takes longer than this for a chunk has failed.
  static constexpr absl::Duration kPatience = absl::Seconds(5);
  // The pause before a failed follower is used again doubles with each failure,
  // and starts over after a success.
  static constexpr absl::Duration kShortestPause = absl::Seconds(5);
  static constexpr absl::Duration kLongestPause = absl::Minutes(5);

  struct Link {
    std::string address;
    BulkLanes lanes;
  };

  // `calls` outlives the object.
  NearFollower(const GrpcCoordinatorClientOptions& options, CallGroup* calls)
      : options_(options), calls_(calls) {}

  // Returns the region to name to the coordinator; empty if the coordinator
  // must send everything.
  std::string region() const;
  std::shared_ptr<Link> Connect(const std::string& address);
  // Records how a download from the follower has ended.
  void Ended(const std::string& address, const absl::Status& status);

 private:
  const GrpcCoordinatorClientOptions options_;
  CallGroup* const calls_;

  mutable absl::Mutex mu_;
  std::shared_ptr<Link> link_ ABSL_GUARDED_BY(mu_);
  absl::Time paused_until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Duration pause_ ABSL_GUARDED_BY(mu_) = kShortestPause;
};

}  // namespace causeway

#endif  // WORKER_SYNC_NEAR_FOLLOWER_H_
