// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/bulk_lanes.h"

#include <algorithm>
#include <utility>

#include "common/transport/grpc_time.h"
#include "glog/logging.h"

namespace causeway {
namespace {

// The time that a call waits for its connection before it fails with the
// reason.
constexpr absl::Duration kConnectWait = absl::Seconds(2);

}  // namespace

void AwaitConnection(grpc::Channel& channel) {
  channel.WaitForConnected(FromNow(kConnectWait));
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

std::unique_ptr<BulkLane> BulkLanes::Open(const std::string& method,
                                          absl::Duration timeout) {
  // Connects all at once: the other connections will soon be needed, too.
  Connect();
  const std::shared_ptr<grpc::Channel> channel = NextChannel();
  AwaitConnection(*channel);
  grpc::GenericStub stub(channel);
  return std::make_unique<BulkLane>(group_, timeout, stub, method);
}

}  // namespace causeway
