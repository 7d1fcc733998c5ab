// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The share that each rank of an island has of a fragment.
//
// A rank has the masters of one range of the model, its shard. Because a
// fragment's tensors are in the order of the model, the rank's part of the
// fragment is also one range: the values that the rank *holds*. It has their
// anchor and snapshots, and mixes them. Shards need not end where strips do,
// but a strip is encoded as a whole by the rank that holds its first value.
// That rank gets the strip's other values, the *edge*, from the next ranks. So
// less than a strip of values per fragment moves between two ranks.
//
//   strips     |         0         |         1         |       2      |
//   held       |      rank 0             |   rank 1    |    rank 2    |
//   encoded    |      rank 0                           |    rank 2    |
//                                        ^^^^^^^^^^^^^^^ edge of rank 1
#ifndef WORKER_REPLICA_FRAGMENT_SHARE_H_
#define WORKER_REPLICA_FRAGMENT_SHARE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/os/thread_pool.h"
#include "outer_optimizer/fragment_plan.h"

namespace causeway {

// The share of one rank. The slices are of the fragment; either may be empty.
struct FragmentShare {
  // Values in the whole fragment, and in the rank's shard of the model.
  int64_t fragment_size = 0;
  int64_t shard_size = 0;
  Slice held;
  // Consists of whole strips.
  Slice encoded;
  // The held values: model_offset counts from the beginning of the shard,
  // fragment_offset from the beginning of `held`.
  std::vector<FragmentMap::Segment> segments;

  // Returns the number of first held values that another rank encodes.
  int64_t edge_out() const;
  // Returns the number of last encoded values that other ranks hold.
  int64_t edge_in() const;
};

// Returns the shares by rank. `shards`, by rank, are consecutive and cover the
// model. INVALID_ARGUMENT: the fragment's tensors are not in the model's order.
absl::StatusOr<std::vector<FragmentShare>> ShareFragment(
    const FragmentMap& map, uint32_t fragment, absl::Span<const Slice> shards);

// Returns the rank that encodes the strip with value `value`.
int EncoderOf(absl::Span<const FragmentShare> shares, int64_t value);

}  // namespace causeway

#endif  // WORKER_REPLICA_FRAGMENT_SHARE_H_
