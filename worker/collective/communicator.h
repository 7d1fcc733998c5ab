// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Collective operations among the ranks of an island.
//
//   RETURN_IF_ERROR(communicator->ReduceScatter(gradients));
//   // gradients[shard] now holds the sum over all ranks.
//
// Every rank must call the same operations in the same order with the same
// sizes. Different orders are found and reported, not executed.
//
// Failure. An operation has a time limit, from when it begins to run on this
// rank. When it passes, or a rank's connection breaks, the ranks compare what
// they saw, and every one of them fails with the same culprit in the message:
//   DEADLINE_EXCEEDED    a rank is stuck (or slower than the limit), or two
//                        ranks do not reach one another
//   UNAVAILABLE          a rank is dead
//   ABORTED              a rank has called Abort; its reason is told
//   FAILED_PRECONDITION  ranks are in different operations
// After a failure all operations fail alike: a communicator is replaced, never
// repaired.
#ifndef WORKER_COLLECTIVE_COMMUNICATOR_H_
#define WORKER_COLLECTIVE_COMMUNICATOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/thread_pool.h"

namespace causeway {

enum class Collective {
  kReduceScatter,
  kAllGather,
  kAllReduce,
  kBroadcast,
  kAllToAll,
};

// "reduce-scatter" and so on.
absl::string_view CollectiveName(Collective collective);

// Where the time of one operation went, as seen by one rank. What a slow rank
// and a slow link look like in it: collective_diagnosis.h.
struct CollectiveTimes {
  struct Peer {
    // How long that rank was busy with other things before it came to this
    // operation, by its own clock.
    absl::Duration away;
    // How long this rank waited for it to come.
    absl::Duration wait;
    // How long this rank then waited for its data, or for it to take ours.
    absl::Duration transfer;
    // What came from it.
    int64_t bytes = 0;
  };
  Collective collective = Collective::kReduceScatter;
  // Operations of the communicator, from 1.
  uint64_t sequence = 0;
  // From begin to end on this rank.
  absl::Duration duration;
  // By rank; the own one has `away` only.
  std::vector<Peer> peers;
};

// Operations are for one thread at a time, and block; Abort and TakeTimes may
// come from any.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // The part of vectors of `values` values that belongs to `rank`. The parts
  // are consecutive, nearly equal, begin at multiples of 16 and may be empty.
  Slice shard(int64_t values, int rank) const {
    return SliceOf(values, size(), rank, /*granularity=*/16);
  }

  // Whether the values of ReduceScatter and AllGather go from rank to rank in
  // bf16, rounded to nearest, ties to even. Not where there is one rank.
  virtual bool rounds() const = 0;

  // values[own shard] <- sum over the ranks, added in fp32 in order of rank.
  // The rest of `values` stays as it is. With rounds() the others' values are
  // rounded, and this rank's are not.
  virtual absl::Status ReduceScatter(absl::Span<float> values) = 0;
  // values[shard of r] <- what rank r has there, for every r. With rounds() all
  // are rounded, the own shard too: the same bits on every rank.
  virtual absl::Status AllGather(absl::Span<float> values) = 0;
  // values <- sum over the ranks, added in order of rank: the same bits on
  // every rank. For a few values, counts and norms: all go to everybody.
  virtual absl::Status AllReduce(absl::Span<double> values) = 0;
  // bytes <- what `root` has. The root sends to each rank.
  virtual absl::Status Broadcast(int root, absl::Span<char> bytes) = 0;

  // from[r] <- what rank r has in its to[this rank], for every other rank r:
  // bytes of any size, none included, but the same on both sides. Always by
  // messages, from host memory to host memory. An empty list is one of nothing.
  virtual absl::Status AllToAll(std::vector<absl::Span<const char>> to,
                                std::vector<absl::Span<char>> from) = 0;

  // Makes the operations of all ranks fail with ABORTED, this rank's name and
  // `reason`. At once, also where one is running.
  virtual void Abort(const absl::Status& reason) = 0;

  // The times of the operations since the last call, the oldest first; at most
  // the last 1024 are kept.
  virtual std::vector<CollectiveTimes> TakeTimes() = 0;
};

// AllGather in host memory, whatever the memory of the communicator's vectors
// is: values[shard of r] <- what rank r has there.
absl::Status GatherShards(Communicator* communicator, absl::Span<float> values);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_COMMUNICATOR_H_
