// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Transfers of one fragment among the ranks of an island. All ranks call the
// same operations in the same order; comments say what each rank gives and
// gets. Unless stated otherwise, errors are those of Communicator.
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

  // Sends edges of the pseudo-gradient from the ranks that hold them to the
  // ranks that encode them.
  absl::Status ExchangeEdges(FragmentPart& part) const;

  // Rank 0 gathers the encodings of the other ranks' strips consecutively at
  // the beginning of `buffer`, and returns their size. The other ranks give
  // `own`. INTERNAL: the encodings do not fit into `buffer`.
  absl::StatusOr<uint64_t> GatherEncoded(absl::string_view own,
                                         absl::Span<char> buffer) const;

  // Rank 0 gives the `strips` of an update, by rank; each other rank returns
  // its own.
  absl::StatusOr<std::string> ScatterStrips(
      absl::Span<const absl::string_view> strips) const;
  // Returns the digest of the whole new anchor. It passes through all ranks.
  absl::StatusOr<std::string> DigestNewAnchor(FragmentPart& part) const;

  // On rank 0, `values` is the whole fragment. Each rank returns the values
  // that it holds.
  absl::StatusOr<std::vector<float>> ScatterHeld(
      absl::Span<const float> values) const;
  // The reverse: `own` are the values that the rank holds.
  absl::Status GatherHeld(absl::Span<const float> own,
                          absl::Span<float> values) const;

  // Blocks until all ranks have called it.
  absl::Status AwaitOthers() const;

 private:
  // Rank 0 sends `parts`, by rank, to the other ranks; each gets its own.
  absl::Status Scatter(std::vector<absl::Span<const char>> parts,
                       absl::Span<char> own) const;
  // The reverse.
  absl::Status Gather(absl::string_view own,
                      std::vector<absl::Span<char>> parts) const;
  int rank() const { return communicator_->rank(); }
  int ranks() const { return communicator_->size(); }
  const FragmentShare& own_share() const { return shares_[rank()]; }

  Communicator* const communicator_;
  const absl::Span<const FragmentShare> shares_;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_PART_EXCHANGE_H_
