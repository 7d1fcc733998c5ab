// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Collective operations by messages (OperationMessages), once the ranks have
// agreed on the operation; communicator.h defines their results. Messages have
// numbers from 1; number 0 is the communicator's.
#ifndef WORKER_COLLECTIVE_MESSAGE_COLLECTIVES_H_
#define WORKER_COLLECTIVE_MESSAGE_COLLECTIVES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/os/thread_pool.h"
#include "worker/collective/operation_messages.h"

namespace causeway {

// One rank's operations and the buffers for them. The caller waits for the
// sends of an operation; until then the buffers are in use. Errors are those of
// OperationMessages. Not thread-safe.
class MessageCollectives {
 public:
  // `shards` are the shards of `values`, by rank.
  absl::Status ReduceScatter(absl::Span<float> values,
                             absl::Span<const Slice> shards,
                             OperationMessages& messages);
  absl::Status AllGather(absl::Span<float> values,
                         absl::Span<const Slice> shards,
                         OperationMessages& messages);
  absl::Status AllReduce(absl::Span<double> values,
                         OperationMessages& messages);
  absl::Status Broadcast(int root, absl::Span<char> bytes,
                         OperationMessages& messages);
  // `to` and `from` are by rank.
  absl::Status AllToAll(absl::Span<const absl::Span<const char>> to,
                        absl::Span<const absl::Span<char>> from,
                        OperationMessages& messages);

 private:
  // Returns the memory that receives a piece of a peer's contribution.
  absl::Span<float> Staging(int peer, int64_t piece, size_t values);
  // own <- the sum of a piece over all ranks, in order of rank.
  void AddPiece(int64_t piece, const OperationMessages& messages,
                absl::Span<float> own);

  std::vector<float> staging_;
  std::vector<double> gathered_;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_MESSAGE_COLLECTIVES_H_
