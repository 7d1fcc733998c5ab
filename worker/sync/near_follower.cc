// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/near_follower.h"

#include <algorithm>

#include "common/transport/coordinator_target.h"
#include "glog/logging.h"

namespace causeway {

std::string NearFollower::region() const {
  absl::MutexLock lock(&mu_);
  return options_.now() < paused_until_ ? "" : options_.region;
}

std::shared_ptr<NearFollower::Link> NearFollower::Connect(
    const std::string& address) {
  absl::MutexLock lock(&mu_);
  if (link_ == nullptr || link_->address != address) {
    LOG(INFO) << "fetching from the follower at " << address;
    link_ = std::shared_ptr<Link>(new Link{
        .address = address,
        .lanes = BulkLanes(NewChannels(options_, CoordinatorTarget(address),
                                       options_.bulk_connections),
                           calls_)});
  }
  return link_;
}

void NearFollower::Ended(const std::string& address,
                         const absl::Status& status) {
  // The island is ending.
  if (absl::IsCancelled(status)) return;
  absl::MutexLock lock(&mu_);
  if (status.ok()) {
    pause_ = kShortestPause;
    return;
  }
  const absl::Time now = options_.now();
  // Downloads that were under way together have failed together.
  if (now < paused_until_) return;
  paused_until_ = now + pause_;
  LOG(WARNING) << "fetching from the coordinator for "
               << absl::FormatDuration(pause_) << ", as the follower at "
               << address << " fails: " << status;
  pause_ = std::min(2 * pause_, kLongestPause);
}

}  // namespace causeway
