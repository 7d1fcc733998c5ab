// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The part of Engine that answers the Status service.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/time/time.h"
#include "common/os/machine.h"
#include "common/proto_time.h"
#include "server/engine.h"
#include "server/rules/status_views.h"

namespace causeway {
namespace {

// See ListIslandsResponse. A page is much shorter than the 4 MB that gRPC's
// clients take, even if its last island has the most ranks.
constexpr uint64_t kIslandPageBytes = 256 << 10;

// Returns the time of a round that the slowest live island reports.
absl::Duration ClaimedRound(const Coordinator& coordinator) {
  double slowest = 0;
  for (const auto& [name, member] : coordinator.membership().members()) {
    if (member.state != v1::IslandStatus::LIVE) continue;
    slowest = std::max(slowest, member.progress.step_seconds());
  }
  return absl::Seconds(slowest) *
         static_cast<double>(coordinator.schedule().round_steps());
}

}  // namespace

void Engine::ObserveHealth(absl::Time now) {
  const Membership& membership = coordinator_.membership();
  RunHealth::Moment moment = {
      .state = coordinator_.run_state(),
      .begun = coordinator_.HasBegun(),
      .storage_problem = coordinator_.suspended_because(),
      .ready = membership.ready_count(),
      .needed = coordinator_.IslandsNeeded()};
  for (const auto& [name, member] : membership.members()) {
    if (coordinator_.DataDiffers(member)) moment.other_data.push_back(name);
  }
  for (const Coordinator::CommittedFragment& state : coordinator_.heads()) {
    moment.heads.push_back({.step = coordinator_.schedule().StepOfVersion(
                                state.head.fragment(), state.head.version()),
                            .committed_at = state.committed_at});
  }
  const std::vector<v1::FollowerStatus> followers = feed_.Report(now);
  moment.lacks_followers =
      absl::c_count_if(followers, [](const v1::FollowerStatus& follower) {
        return follower.state() == v1::FollowerStatus::IN_SYNC;
      }) < options_.config.storage().sync_replicas();
  moment.etcd_problem = etcd_problem_;
  health_.Observe(moment, now);
}

v1::RunStatus Engine::GetRun() {
  v1::StorageUse storage;
  // Ask the disk, which may be slow, without the lock.
  if (const auto disk = FindDiskSpace(options_.state_dir); disk.ok()) {
    storage.set_disk_free_bytes(disk->free);
    storage.set_disk_total_bytes(disk->total);
  }
  storage.set_staging_bytes(staging_.used_bytes());
  storage.set_staging_limit_bytes(staging_.capacity_bytes());
  absl::MutexLock lock(&mu_);
  v1::RunStatus status = DescribeRun(coordinator_);
  const absl::Time now = options_.now();
  for (v1::FollowerStatus& follower : feed_.Report(now)) {
    *status.add_followers() = std::move(follower);
  }
  ObserveHealth(now);
  health_.Describe(
      {.members = coordinator_.membership().members(),
       .claimed_round = ClaimedRound(coordinator_),
       .quarantined_since = coordinator_.quarantine().held_since()},
      now, status);
  *status.mutable_time() = ToTimestamp(now);
  *status.mutable_storage() = storage;
  *status.mutable_started_at() = ToTimestamp(started_at_);
  outer_steps_.Describe(status);
  status.set_bytes_received(bytes_received_);
  status.set_bytes_sent(bytes_sent_);
  status.set_memory_bytes(ResidentBytes());
  return status;
}

FollowedSource Engine::followed() {
  absl::MutexLock lock(&mu_);
  return {.run_id = run_id_,
          .epoch = coordinator_.options().epoch,
          .config = options_.config,
          .state = state_.get(),
          .heads = fragment_heads_.get(),
          .feed = &feed_};
}

v1::ListIslandsResponse Engine::ListIslands(
    const v1::ListIslandsRequest& request) {
  absl::MutexLock lock(&mu_);
  return DescribeIslands(coordinator_, request, kIslandPageBytes,
                         options_.now());
}

v1::ListIslandsResponse Engine::ListIslands(bool include_departed) {
  v1::ListIslandsRequest request;
  request.set_include_departed(include_departed);
  absl::MutexLock lock(&mu_);
  return DescribeIslands(coordinator_, request,
                         std::numeric_limits<uint64_t>::max(), options_.now());
}

v1::ListFragmentsResponse Engine::ListFragments() {
  absl::MutexLock lock(&mu_);
  return DescribeFragments(coordinator_);
}

absl::StatusOr<v1::GetHistoryResponse> Engine::GetHistory(
    const v1::GetHistoryRequest& request) {
  return state_->ReadHistory(request);
}

void Engine::NoteDelivered(const v1::FragmentHead& head) {
  absl::MutexLock lock(&mu_);
  coordinator_.NoteDelivered(head, options_.now());
}

}  // namespace causeway
