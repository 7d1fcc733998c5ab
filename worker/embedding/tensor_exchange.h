// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Moves a fragment's values between two distributions over an island's ranks.
// In the replica's, one rank holds each value
// (worker/replica/fragment_share.h). In the training loop's, ranks have copies
// of the model, or each has its part of every tensor (sharded parameters).
#ifndef WORKER_EMBEDDING_TENSOR_EXCHANGE_H_
#define WORKER_EMBEDDING_TENSOR_EXCHANGE_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/os/thread_pool.h"
#include "worker/collective/communicator.h"
#include "worker/embedding/local_tensors.h"

namespace causeway {

// A set of the model's values: disjoint slices, in order.
using Slices = std::vector<Slice>;

// Return the values that are in both sets, and those that are only in `a`.
Slices Intersect(absl::Span<const Slice> a, absl::Span<const Slice> b);
Slices Subtract(absl::Span<const Slice> a, absl::Span<const Slice> b);

// Immutable. All ranks call an object's functions together.
class TensorExchange {
 public:
  // `held` and `trained` are the two distributions, by rank. Every held value
  // is trained by some rank.
  TensorExchange(int rank, const std::vector<Slices>& held,
                 const std::vector<Slices>& trained);

  // Reads the values that this rank holds into `held`, in order, from its own
  // tensors or else from the first rank that has them.
  absl::Status Fetch(const LocalTensors& tensors, Communicator* communicator,
                     absl::Span<float> held) const;
  // Writes the held values of all ranks to all tensors that contain them.
  absl::Status Bring(absl::Span<const float> held, Communicator* communicator,
                     LocalTensors& tensors) const;

 private:
  const int rank_;
  // The values that this rank holds.
  const Slices held_;
  // By rank: this rank's held values that it fetches from there, and those that
  // are trained there.
  std::vector<Slices> fetched_from_;
  std::vector<Slices> brought_to_;
  // By rank: the values that are fetched there from this rank, and those that
  // are held there and trained here.
  std::vector<Slices> fetched_by_;
  std::vector<Slices> brought_by_;
  // Say whether anything moves between ranks.
  bool fetches_ = false;
  bool brings_ = false;
};

}  // namespace causeway

#endif  // WORKER_EMBEDDING_TENSOR_EXCHANGE_H_
