// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/bulk_lanes.h"

#include <algorithm>
#include <utility>

#include "common/transport/grpc_time.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// The longest wait for a try to connect.
constexpr absl::Duration kTryWait = absl::Seconds(2);

}  // namespace

bool AwaitTry(grpc::Channel& channel) {
  const gpr_timespec deadline = FromNow(kTryWait);
  while (true) {
    const grpc_connectivity_state state =
        channel.GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return true;
    if (!channel.WaitForStateChange(state, deadline) ||
        channel.GetState(/*try_to_connect=*/false) ==
            GRPC_CHANNEL_TRANSIENT_FAILURE) {
      return false;
    }
  }
}

BulkLanes::BulkLanes(std::vector<std::shared_ptr<grpc::Channel>> channels,
                     CallGroup* group)
    : connections_(static_cast<int>(channels.size())),
      group_(group),
      channels_(std::move(channels)) {
  CHECK_GT(connections_, 0);
}

void BulkLanes::Replace(std::vector<std::shared_ptr<grpc::Channel>> channels) {
  absl::MutexLock lock(&mu_);
  channels_ = std::move(channels);
}

int BulkLanes::LanesFor(uint64_t bytes, uint64_t chunk_bytes) const {
  const uint64_t chunks = (bytes + chunk_bytes - 1) / chunk_bytes;
  return static_cast<int>(std::clamp<uint64_t>(chunks, 1, connections_));
}

void BulkLanes::Connect() {
  absl::MutexLock lock(&mu_);
  for (const std::shared_ptr<grpc::Channel>& channel : channels_) {
    channel->GetState(/*try_to_connect=*/true);
  }
}

std::shared_ptr<grpc::Channel> BulkLanes::NextChannel() {
  absl::MutexLock lock(&mu_);
  return channels_[next_++ % channels_.size()];
}

std::vector<std::unique_ptr<BulkLane>> BulkLanes::Open(
    const std::string& method, absl::Duration timeout, int count) {
  // Connects all at once: the other connections will soon be needed, too.
  Connect();
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < count; ++i) channels.push_back(NextChannel());
  for (const std::shared_ptr<grpc::Channel>& channel : channels) {
    // The transfer will fail, so the other connections do not matter.
    if (!AwaitTry(*channel)) break;
  }
  std::vector<std::unique_ptr<BulkLane>> lanes;
  for (const std::shared_ptr<grpc::Channel>& channel : channels) {
    grpc::GenericStub stub(channel);
    lanes.push_back(std::make_unique<BulkLane>(group_, timeout, stub, method));
  }
  return lanes;
}

std::unique_ptr<BulkLane> BulkLanes::OpenOne(const std::string& method,
                                             absl::Duration timeout) {
  return std::move(Open(method, timeout, 1).front());
}

}  // namespace causeway
