// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What each rank of an island has of a fragment.
//
// A rank has the masters of one range of the model, its shard. A fragment's
// tensors are in the order of the model, so what a shard has of the fragment is
// one range of it, too: the values that the rank *holds*. Anchor, snapshot and
// mixing are theirs. Shards do not end where strips do, but a strip is encoded
// as a whole: by the rank that holds its first value, which gets the others,
// the *edge*, from the ranks behind it. So of each fragment less than a strip
// of values moves between two ranks.
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
#include "common/thread_pool.h"
#include "outer_optimizer/fragment_plan.h"

namespace causeway {

// Of one rank. Slices are of the fragment; either may be empty.
struct FragmentShare {
  // Values of the whole fragment, and of the rank's shard of the model.
  int64_t fragment_size = 0;
  int64_t shard_size = 0;
  Slice held;
  // Whole strips.
  Slice encoded;
  // Held values: model_offset is from the begin of the shard, fragment_offset
  // from that of `held`.
  std::vector<FragmentMap::Segment> segments;

  // The first held values, which another rank encodes.
  int64_t edge_out() const;
  // The last encoded values, which others hold.
  int64_t edge_in() const;
};

// By rank. `shards` are those of the ranks: consecutive, and all of the model.
// INVALID_ARGUMENT: the fragment's tensors are not in the model's order.
absl::StatusOr<std::vector<FragmentShare>> ShareFragment(
    const FragmentMap& map, uint32_t fragment, absl::Span<const Slice> shards);

// The rank that encodes the strip with value `value`.
int EncoderOf(absl::Span<const FragmentShare> shares, int64_t value);

}  // namespace causeway

#endif  // WORKER_REPLICA_FRAGMENT_SHARE_H_
