// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The connections that carry an island's bulk data, beside the one for control.
// A transfer may use several at once, a lane on each: one TCP connection alone
// is slowed down by every lost packet, and by windows that a long round trip
// makes too small.
#ifndef WORKER_SYNC_BULK_LANES_H_
#define WORKER_SYNC_BULK_LANES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "worker/sync/bulk_stream.h"
#include "worker/sync/call_group.h"

namespace causeway {

// One stream of a transfer.
class BulkLane {
 public:
  BulkLane(CallGroup* group, absl::Duration timeout, grpc::GenericStub& stub,
           const std::string& method)
      : call_(group, timeout), stream_(stub, method, &call_.context()) {}

  BulkStream& stream() { return stream_; }

 private:
  GroupedCall call_;
  // Before the call's context goes.
  BulkStream stream_;
};

// Thread-safe.
class BulkLanes {
 public:
  // `channels` have a connection each; at least one. `group` outlives the
  // lanes.
  BulkLanes(std::vector<std::shared_ptr<grpc::Channel>> channels,
            CallGroup* group);

  int connections() const { return static_cast<int>(channels_.size()); }

  // Begins to connect all that are not up; does not wait for it.
  void Connect();

  // How many lanes a transfer of `bytes` in chunks of `chunk_bytes` can use; at
  // least 1.
  int LanesFor(uint64_t bytes, uint64_t chunk_bytes) const;

  // Starts a stream on the connection that comes next: transfers that need few
  // lanes use all connections in turn. Waits a moment for a connection that is
  // not up; then the stream says what is wrong.
  std::unique_ptr<BulkLane> Open(const std::string& method,
                                 absl::Duration timeout);

 private:
  const std::vector<std::shared_ptr<grpc::Channel>> channels_;
  CallGroup* const group_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::atomic<uint32_t> next_ = 0;
};

// Waits until the channel is connected, or a moment. gRPC notices that a
// connection is up only while somebody waits on its channel: pauses between
// tries wait on nothing, so without this a coordinator that is back would be
// found seconds later, by chance.
void AwaitConnection(grpc::Channel& channel);

}  // namespace causeway

#endif  // WORKER_SYNC_BULK_LANES_H_
