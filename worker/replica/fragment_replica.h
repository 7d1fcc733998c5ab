// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One fragment of an island's replica, as the outer loop sees it on rank 0: the
// island's parameters and anchor, which its ranks keep. The outer loop never
// sees their values.
//
// The training thread takes snapshots and applies updates; the fragment's actor
// (worker/sync/fragment_actor.h) does the rest beside it.
#ifndef WORKER_REPLICA_FRAGMENT_REPLICA_H_
#define WORKER_REPLICA_FRAGMENT_REPLICA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/replica/fragment_part.h"

namespace causeway {

// Unless stated otherwise, errors are those of a rank, after which the replica
// must not be used. FragmentPart says which calls must not overlap.
class FragmentReplica {
 public:
  virtual ~FragmentReplica() = default;

  // The number of values in the fragment.
  virtual uint64_t size() const = 0;
  // Returns the ends of the ranks' parts, by rank, for a contribution's header.
  // Returns nothing if there is one rank, or if a part has values of other
  // ranks.
  virtual std::vector<uint64_t> rank_ends() const { return {}; }

  // The training thread calls these between steps; see FragmentPart.
  virtual absl::Status TakeSnapshot() = 0;
  virtual absl::Status Apply(bool includes_island) = 0;

  virtual absl::Status ReadAnchor(absl::Span<float> values) = 0;

  // The fragment's thread calls the rest.

  // Begins a contribution: the last snapshot against the anchor. `ecq_bits` is
  // as for FragmentPart.
  virtual absl::Status BeginContribution(double ecq_bits) = 0;
  // Encodes the whole fragment until at least `bytes` bytes are final, or all
  // are. `buffer` has MaxEncodedBytes of the fragment, and is the same in every
  // call for a contribution.
  virtual absl::StatusOr<EncodedBytes> Encode(uint64_t bytes,
                                              absl::Span<char> buffer) = 0;
  virtual absl::Status EndContribution(bool merged) = 0;

  // Decodes the update's first bytes, `received`, which grow with every call.
  //   INVALID_ARGUMENT  They are not an encoding; the replica is unchanged.
  virtual absl::Status Decode(absl::string_view received) = 0;
  // Returns the Digest128 of the new anchor, which is then ready to be applied.
  // Call when all bytes are received. Errors are those of Decode.
  virtual absl::StatusOr<std::string> FinishUpdate(
      absl::string_view received) = 0;
  // Drops the update, which can then be received again from the beginning.
  virtual absl::Status DropUpdate() = 0;
  // Prepares a new anchor, in place of an update, even one that was decoded.
  virtual absl::Status ReplaceAnchor(absl::Span<const float> values) = 0;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_FRAGMENT_REPLICA_H_
