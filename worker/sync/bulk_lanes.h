// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The connections that carry an island's bulk data, beside the one for control.
// A transfer may use several, with a lane on each, because lost packets and
// windows too small for a long round trip slow a single TCP connection down.
#ifndef WORKER_SYNC_BULK_LANES_H_
#define WORKER_SYNC_BULK_LANES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/transport/bulk_stream.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "worker/sync/call_group.h"

namespace causeway {

// One stream of a transfer, or the control stream.
class BulkLane {
 public:
  BulkLane(CallGroup* group, absl::Duration timeout, grpc::GenericStub& stub,
           const std::string& method)
      : call_(group, timeout), stream_(stub, method, &call_.context()) {}

  BulkStream& stream() { return stream_; }
  grpc::ClientContext& context() { return call_.context(); }

 private:
  GroupedCall call_;
  // Destroyed before the call's context.
  BulkStream stream_;
};

// Thread-safe.
class BulkLanes {
 public:
  // Each of `channels`, at least one, has its own connection. `group` outlives
  // the lanes.
  BulkLanes(std::vector<std::shared_ptr<grpc::Channel>> channels,
            CallGroup* group);

  int connections() const { return connections_; }

  // Uses other channels, as many as before, for later lanes.
  void Replace(std::vector<std::shared_ptr<grpc::Channel>> channels)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Starts to connect all channels that are not up, without waiting.
  void Connect() ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the number of lanes, at least 1, that a transfer of `bytes` in
  // chunks of `chunk_bytes` can use.
  int LanesFor(uint64_t bytes, uint64_t chunk_bytes) const;

  // Starts `count` streams on the next connections, so that transfers with few
  // lanes use all connections in turn. Waits a moment for connections that are
  // down, until one of them cannot be made; its stream then says why.
  std::vector<std::unique_ptr<BulkLane>> Open(const std::string& method,
                                              absl::Duration timeout, int count)
      ABSL_LOCKS_EXCLUDED(mu_);
  std::unique_ptr<BulkLane> OpenOne(const std::string& method,
                                    absl::Duration timeout)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::shared_ptr<grpc::Channel> NextChannel() ABSL_LOCKS_EXCLUDED(mu_);

  const int connections_;
  CallGroup* const group_;

  absl::Mutex mu_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mu_);
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;
};

// Waits a moment for the end of one try to connect, so that a call fails with
// its reason. Returns whether the channel is connected. gRPC notices a new
// connection only while a thread waits for the channel, which does not happen
// in pauses between tries. Without this call, the island would find a
// coordinator that is back seconds later.
bool AwaitTry(grpc::Channel& channel);

}  // namespace causeway

#endif  // WORKER_SYNC_BULK_LANES_H_
