// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of an island move between them of one fragment. All ranks call
// the same operations in the same order; what is said of rank 0 and of the
// others is what each of them gives and gets. Errors are those of Communicator,
// where nothing else is said.
#ifndef WORKER_REPLICA_PART_EXCHANGE_H_
#define WORKER_REPLICA_PART_EXCHANGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/collective/communicator.h"
#include "worker/replica/fragment_part.h"
#include "worker/replica/fragment_share.h"

namespace causeway {

// Both arguments outlive the object; `shares` are by rank.
class PartExchange {
 public:
  PartExchange(Communicator* communicator,
               absl::Span<const FragmentShare> shares)
      : communicator_(communicator), shares_(shares) {}

  // Edges of the pseudo-gradient, from who holds to who encodes them.
  absl::Status ExchangeEdges(FragmentPart& part) const;

  // The encodings of the other ranks' strips, one after the other: rank 0 gets
  // them at the beginning of `buffer`, and their size. INTERNAL: they are too
  // long for it.
  absl::StatusOr<uint64_t> GatherEncoded(absl::Span<char> buffer) const;
  absl::Status SendEncoded(absl::string_view encoded) const;

  // An update: rank 0 gives `strips`, by rank, and the others return theirs.
  absl::StatusOr<std::string> ScatterStrips(
      absl::Span<const absl::string_view> strips) const;
  // The digest of the whole new anchor, which goes through all ranks.
  absl::StatusOr<std::string> DigestNewAnchor(FragmentPart& part) const;

  // `values` are the whole fragment's, on rank 0; every rank returns what it
  // holds of them.
  absl::StatusOr<std::vector<float>> ScatterHeld(
      absl::Span<const float> values) const;
  // And back: `own` is what the rank holds.
  absl::Status GatherHeld(absl::Span<const float> own,
                          absl::Span<float> values) const;

  // Until all ranks have come here.
  absl::Status AwaitOthers() const;

 private:
  int rank() const { return communicator_->rank(); }
  int ranks() const { return communicator_->size(); }
  const FragmentShare& own_share() const { return shares_[rank()]; }

  Communicator* const communicator_;
  const absl::Span<const FragmentShare> shares_;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_PART_EXCHANGE_H_
