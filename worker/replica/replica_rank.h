// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank's side of the replica: its parts of all fragments, and the work on
// them that the ranks do together. Rank 0 leads: links call its
// FragmentReplica, which tells the others what to do. They do it on a thread of
// their own, so that all of them train on meanwhile.
//
// What moves between ranks, over a communicator that training does not use:
//   a contribution   less than a strip of the pseudo-gradient between two ranks
//                    (fragment_share.h), and the encoding of its strips from
//                    each rank to rank 0
//   an update        its encoding from rank 0, to each rank what has values
//                    that the rank holds; the state of the anchor's digest from
//                    rank to rank, as a digest goes from the first value to the
//                    last
//   an anchor        fp32 values from or to rank 0: a checkpoint, and where the
//                    coordinator no longer has an update
//
// An encoding is what one rank alone would make of the fragment, bit for bit.
#ifndef WORKER_REPLICA_REPLICA_RANK_H_
#define WORKER_REPLICA_REPLICA_RANK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/thread_pool.h"
#include "outer_optimizer/fragment_plan.h"
#include "quantization/strips/encoding_reader.h"
#include "worker/collective/communicator.h"
#include "worker/replica/fragment_part.h"
#include "worker/replica/fragment_replica.h"
#include "worker/replica/fragment_share.h"
#include "worker/replica/part_exchange.h"

namespace causeway {

// Makes all ranks call TakeSnapshot and Apply, on rank 0's training thread.
struct ReplicaHooks {
  std::function<absl::Status(uint32_t fragment, bool eager)> take_snapshot;
  std::function<absl::Status(uint32_t fragment, const UpdateUse& use)> apply;
};

class ReplicaRank {
 public:
  // The same on every rank, but for the communicator and the parts.
  struct Options {
    FragmentMap map;
    // Of the model, by rank.
    std::vector<Slice> shards;
    ReplicaOptions replica;
    FragmentPartFactory make_part;
    // Of the same ranks; nobody else uses it. It should not limit the time of
    // operations: ranks wait in one for the next contribution. Outlives the
    // object.
    Communicator* communicator = nullptr;
  };

  // Anchors are the values of `master`. On the other ranks it starts the thread
  // that follows rank 0. Errors of ShareFragment and Options.make_part.
  static absl::StatusOr<std::unique_ptr<ReplicaRank>> Create(
      Options options, const float* master);

  // Rank 0 lets the others go; they wait for that, unless Abort was called.
  ~ReplicaRank();

  // On rank 0, once: all fragments. They are gone before this object.
  std::vector<std::unique_ptr<FragmentReplica>> Fragments(ReplicaHooks hooks);

  // On every rank, on its training thread; see FragmentPart.
  absl::Status TakeSnapshot(uint32_t fragment, bool eager, float* master);
  absl::Status Apply(uint32_t fragment, const UpdateUse& use, float* master);

  // Makes the work of all ranks fail. Any thread.
  void Abort(const absl::Status& reason);

 private:
  class Fragment;
  struct Order;
  struct Part {
    // By rank.
    std::vector<FragmentShare> shares;
    std::unique_ptr<FragmentPart> part;
    // On the other ranks, during a contribution: the encoding of their strips.
    std::unique_ptr<char[]> encoded;
    EncodedBytes encoded_bytes;
  };

  explicit ReplicaRank(Options options);

  int rank() const { return options_.communicator->rank(); }
  int ranks() const { return options_.communicator->size(); }
  const FragmentShare& share(const Part& part) const {
    return part.shares[rank()];
  }

  // On rank 0: gives the order, and does its own part of the work, `work`.
  absl::Status Lead(Order order, absl::FunctionRef<absl::Status()> work);
  // Why the work has failed: the reason to abort it, if there is one.
  absl::Status Explain(absl::Status status);
  // On the others, until the end.
  void Serve();
  absl::StatusOr<bool> ServeOne();
  absl::Status AwaitSnapshot(const Order& order);

  // What all ranks do at the same time. Arguments beyond the part are those of
  // rank 0.
  absl::Status BeginContribution(Part& part, uint64_t version);
  absl::Status EncodeOwn(Part& part);
  absl::StatusOr<std::string> FinishUpdate(
      Part& part, absl::Span<const absl::string_view> strips);
  // Both end when all ranks are done: what follows on the training threads
  // relies on it. FinishUpdate needs no such wait, as the digest goes through
  // all ranks.
  absl::Status ReplaceAnchor(Part& part, absl::Span<const float> values);
  absl::Status SetAnchor(Part& part, absl::Span<const float> values);
  PartExchange ExchangeOf(const Part& part) const {
    return PartExchange(options_.communicator, part.shares);
  }

  const Options options_;
  std::vector<Part> parts_;
  // Rank 0's.
  ReplicaHooks hooks_;

  // Held by the link that makes the ranks work.
  absl::Mutex work_mu_;
  absl::Status failure_ ABSL_GUARDED_BY(work_mu_);

  absl::Mutex mu_;
  // By fragment.
  std::vector<uint64_t> snapshots_ ABSL_GUARDED_BY(mu_);
  // OK until Abort.
  absl::Status abort_reason_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_REPLICA_RANK_H_
