// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank's side of the replica: its parts of all fragments, and the ranks'
// common work on them. Rank 0 leads: the outer loop and its actors call its
// FragmentReplica, which orders the other ranks to do the same (orders.h).
//
// Transfers between ranks, over the replica's communicator:
//   a contribution   less than a strip of the pseudo-gradient between two ranks
//                    (fragment_share.h), and the encoding of its strips from
//                    each rank to rank 0
//   an update        its encoding from rank 0, to each rank the strips with
//                    values that the rank holds; the state of the anchor's
//                    digest from rank to rank, as a digest goes from the first
//                    value to the last
//   an anchor        fp32 values from or to rank 0, for a checkpoint, or where
//                    the coordinator no longer has an update
//
// Encodings are bit for bit those of a single rank.
#ifndef WORKER_REPLICA_REPLICA_RANK_H_
#define WORKER_REPLICA_REPLICA_RANK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/os/thread_pool.h"
#include "outer_optimizer/fragment_plan.h"
#include "quantization/strips/encoding_reader.h"
#include "worker/replica/fragment_part.h"
#include "worker/replica/fragment_replica.h"
#include "worker/replica/fragment_share.h"
#include "worker/replica/orders.h"
#include "worker/replica/part_exchange.h"

namespace causeway {

class ReplicaRank {
 public:
  // All ranks have the same options, except for parts, orders and masters.
  struct Options {
    FragmentMap map;
    // The shards of the model, by rank.
    std::vector<Slice> shards;
    ReplicaOptions replica;
    FragmentPartFactory make_part;
    // Returns this rank's shard of the parameters, as FragmentPart takes it.
    // The training thread calls it. `changes` says that the values are about to
    // change.
    std::function<float*(bool changes)> masters;
    // Says whether the masters of a rank come from other ranks, too.
    bool mixes_ranks = false;
    // Outlives the object.
    Orders* orders = nullptr;
  };

  // Anchors start as the values of the masters. Errors are those of
  // ShareFragment and Options.make_part.
  static absl::StatusOr<std::unique_ptr<ReplicaRank>> Create(Options options);

  // On rank 0: returns all fragments. This object outlives them.
  std::vector<std::unique_ptr<FragmentReplica>> Fragments();

  // On the other ranks: carries out an order about a fragment.
  absl::Status Follow(const Order& order) { return CarryOut(order, {}); }

 private:
  class Fragment;
  struct Part {
    // The shares of the fragment, by rank.
    std::vector<FragmentShare> shares;
    std::unique_ptr<FragmentPart> part;
    // On the other ranks, during a contribution: the encoding of their strips.
    std::unique_ptr<char[]> encoded;
    EncodedBytes encoded_bytes;
  };

  explicit ReplicaRank(Options options) : options_(std::move(options)) {}

  int rank() const { return options_.orders->rank(); }
  const FragmentShare& share(const Part& part) const {
    return part.shares[rank()];
  }
  PartExchange ExchangeOf(const Part& part) const {
    return PartExchange(options_.orders->replica(), part.shares);
  }

  // Rank 0 gives these to an order, or gets them from it. The other ranks leave
  // them empty.
  struct Operands {
    // For kCollect: room for the encodings, and the number of their bytes.
    absl::Span<char> encoded;
    uint64_t* encoded_bytes = nullptr;
    // For kFinishUpdate: the strips that each rank needs, and the digest of the
    // new anchor.
    absl::Span<const absl::string_view> strips;
    std::string* digest = nullptr;
    // For kReplaceAnchor and kReadAnchor.
    absl::Span<const float> new_anchor;
    absl::Span<float> anchor;
  };
  // Carries out an order about a fragment on any rank.
  absl::Status CarryOut(const Order& order, const Operands& operands);

  // On the other ranks: encodes their strips, after BeginContribution.
  absl::Status EncodeOwn(Part& part);

  const Options options_;
  std::vector<Part> parts_;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_REPLICA_RANK_H_
