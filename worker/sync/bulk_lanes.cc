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
    : channels_(std::move(channels)), group_(group) {
  CHECK(!channels_.empty());
  for (const std::shared_ptr<grpc::Channel>& channel : channels_) {
    stubs_.push_back(std::make_unique<grpc::GenericStub>(channel));
  }
}

int BulkLanes::LanesFor(uint64_t bytes, uint64_t chunk_bytes) const {
  const uint64_t chunks = (bytes + chunk_bytes - 1) / chunk_bytes;
  return static_cast<int>(std::clamp<uint64_t>(chunks, 1, channels_.size()));
}

void BulkLanes::Connect() {
  for (const std::shared_ptr<grpc::Channel>& channel : channels_) {
    channel->GetState(/*try_to_connect=*/true);
  }
}

std::unique_ptr<BulkLane> BulkLanes::Open(const std::string& method,
                                          absl::Duration timeout) {
  // Connects all at once: the other connections will soon be needed, too.
  Connect();
  const size_t index = next_++ % channels_.size();
  AwaitConnection(*channels_[index]);
  return std::make_unique<BulkLane>(group_, timeout, *stubs_[index], method);
}

}  // namespace causeway
