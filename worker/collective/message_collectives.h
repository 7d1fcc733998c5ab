// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What collective operations do with messages (OperationMessages), once the
// ranks have agreed on what comes: communicator.h says what each leaves where.
// Messages have numbers from 1; number 0 is the communicator's.
#ifndef WORKER_COLLECTIVE_MESSAGE_COLLECTIVES_H_
#define WORKER_COLLECTIVE_MESSAGE_COLLECTIVES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/thread_pool.h"
#include "worker/collective/operation_messages.h"
#include "worker/collective/rounded_values.h"

namespace causeway {

// The buffers that one rank's operations need. They stay in use until the sends
// of an operation have been waited for, which is the caller's. Errors as of
// OperationMessages. For one thread.
class MessageCollectives {
 public:
  // Communicator::rounds().
  explicit MessageCollectives(bool rounds) : rounds_(rounds) {}

  // `shards` are the ranks' of `values`.
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
  // `to` and `from` by rank.
  absl::Status AllToAll(absl::Span<const absl::Span<const char>> to,
                        absl::Span<const absl::Span<char>> from,
                        OperationMessages& messages);

 private:
  // Where a piece of a peer's contribution is received.
  absl::Span<float> Staging(int peer, int64_t piece, size_t values);
  absl::Span<char> StagedBytes(int peer, int64_t piece, size_t values);
  // A part of the vector of an operation as it is sent, and where it comes in.
  absl::Span<const char> Outgoing(absl::Span<float> part);
  absl::Span<char> Incoming(absl::Span<float> part);
  // own <- the sum of a piece over all ranks, in order of rank.
  void AddPiece(int64_t piece, const OperationMessages& messages,
                absl::Span<float> own);
  void AddRoundedPiece(int64_t piece, const OperationMessages& messages,
                       absl::Span<float> own);

  const bool rounds_;
  RoundedValues rounded_;
  std::vector<float> staging_;
  // Of a piece.
  std::vector<float> sum_;
  std::vector<double> gathered_;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_MESSAGE_COLLECTIVES_H_
