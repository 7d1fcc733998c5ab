// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Collective operations among the ranks of an island.
//
//   RETURN_IF_ERROR(communicator->ReduceScatter(gradients));
//   // gradients[shard] now holds the sum over all ranks.
//
// Every rank must call the same operations in the same order with the same
// sizes. Ranks detect and report calls that do not match, and do not run them.
//
// Failure. An operation has a time limit, which starts when it begins on this
// rank. When the limit passes, or a rank's connection breaks, the ranks compare
// what they saw, and all fail with the same culprit in the message:
//   DEADLINE_EXCEEDED    a rank is stuck (or slower than the limit), or two
//                        ranks cannot reach each other
//   UNAVAILABLE          a rank is dead
//   ABORTED              a rank has called Abort; the message has its reason
//   FAILED_PRECONDITION  ranks are in different operations
// After a failure all operations fail in the same way: replace the
// communicator.
#ifndef WORKER_COLLECTIVE_COMMUNICATOR_H_
#define WORKER_COLLECTIVE_COMMUNICATOR_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/os/thread_pool.h"

namespace causeway {

enum class Collective {
  kReduceScatter,
  kAllGather,
  kAllReduce,
  kBroadcast,
  kAllToAll,
};

// Returns the operation's name, such as "reduce-scatter".
absl::string_view CollectiveName(Collective collective);

// The time that one operation took, as seen by one rank. collective_diagnosis.h
// finds slow ranks and slow links in it.
struct CollectiveTimes {
  struct Peer {
    // The time that the peer, by its own clock, did other things before this
    // operation.
    absl::Duration away;
    // The time that this rank waited for the peer to begin the operation.
    absl::Duration wait;
    // The time that this rank then waited for the peer to send or take data.
    absl::Duration transfer;
    // The bytes that came from the peer.
    int64_t bytes = 0;
  };
  Collective collective = Collective::kReduceScatter;
  // The operation's number, from 1.
  uint64_t sequence = 0;
  // The time from beginning to end on this rank.
  absl::Duration duration;
  // By rank. This rank's own entry has only `away`.
  std::vector<Peer> peers;
};

// Operations are for one thread at a time, and block. Abort and TakeTimes are
// thread-safe.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Returns the shard of `rank` in vectors of `values` values. Shards are
  // consecutive and may be empty. By default (see Divide) they are nearly equal
  // and begin at multiples of 16.
  Slice shard(int64_t values, int rank) const {
    if (!shards_.empty() && shards_.back().end == values) return shards_[rank];
    return SliceOf(values, size(), rank, /*granularity=*/16);
  }
  // Sets the shards, one for each rank, of all vectors of shards.back().end
  // values. All ranks call it in the same way, before their first operation on
  // such a vector.
  void Divide(std::vector<Slice> shards) { shards_ = std::move(shards); }

  // values[own shard] <- sum over the ranks, added in fp32 in order of rank, or
  // between GPUs in NCCL's order. The rest of `values` stays as it is.
  virtual absl::Status ReduceScatter(absl::Span<float> values) = 0;
  // values[shard of r] <- the values of rank r there, for every r.
  virtual absl::Status AllGather(absl::Span<float> values) = 0;
  // values <- sum over the ranks, added in order of rank: all ranks get the
  // same bits. Meant for a few values such as counts and norms, as each rank
  // sends all of them to every other.
  virtual absl::Status AllReduce(absl::Span<double> values) = 0;
  // bytes <- the bytes of `root`, which sends them to each rank.
  virtual absl::Status Broadcast(int root, absl::Span<char> bytes) = 0;

  // from[r] <- to[this rank] of rank r, for every other rank r: any number of
  // bytes, even none, but the same on both sides. Always by messages, from host
  // memory to host memory. An empty list means no bytes.
  virtual absl::Status AllToAll(std::vector<absl::Span<const char>> to,
                                std::vector<absl::Span<char>> from) = 0;

  // Makes the operations of all ranks, even those that are running, fail at
  // once with ABORTED, this rank's name and `reason`.
  virtual void Abort(const absl::Status& reason) = 0;

  // Returns the times of the operations since the last call, the oldest first.
  // Keeps at most the last 1024.
  virtual std::vector<CollectiveTimes> TakeTimes() = 0;

 private:
  // By rank; empty before Divide.
  std::vector<Slice> shards_;
};

// Collects a vector of `size` values on rank 0, in host memory, even if the
// communicator's vectors are on a device. `values` is this rank's shard; rank 0
// gets the whole vector there, and the other ranks keep their shards.
absl::Status GatherShards(Communicator* communicator, int64_t size,
                          std::vector<float>& values);
// The reverse: `values` is the whole vector on rank 0, and begins with this
// rank's shard afterwards.
absl::Status ScatterShards(Communicator* communicator, int64_t size,
                           std::vector<float>& values);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_COMMUNICATOR_H_
