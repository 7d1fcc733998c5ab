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

// The bytes of a value in bf16 (Communicator::rounds()).
inline constexpr size_t kRoundedBytes = 2;

// One rank's operations and the buffers for them. The caller waits for the
// sends of an operation; until then the buffers are in use. Errors are those of
// OperationMessages. Not thread-safe.
class MessageCollectives {
 public:
  // See Communicator::rounds().
  explicit MessageCollectives(bool rounds) : rounds_(rounds) {}

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
  // Return the memory in which a piece of a peer's contribution is received.
  absl::Span<float> Staging(int peer, int64_t piece, size_t values);
  absl::Span<char> StagedBytes(int peer, int64_t piece, size_t values);
  // Begins the rounded values of an operation's vector, which must stay valid
  // until the next call. The memory grows to the size of the longest vector.
  void BeginRounded(absl::Span<const float> values);
  // Returns the memory for the rounded values of a part of the vector.
  absl::Span<char> Rounded(absl::Span<const float> part);
  // part <- its rounded values.
  void Restore(absl::Span<float> part);
  // Return a part of an operation's vector as it is sent, and the memory that
  // receives it.
  absl::Span<const char> Outgoing(absl::Span<float> part);
  absl::Span<char> Incoming(absl::Span<float> part);
  // own <- the sum of a piece over all ranks, in order of rank.
  void AddPiece(int64_t piece, const OperationMessages& messages,
                absl::Span<float> own);
  void AddRoundedPiece(int64_t piece, const OperationMessages& messages,
                       absl::Span<float> own);

  const bool rounds_;
  const float* values_ = nullptr;
  std::vector<char> rounded_;
  std::vector<float> staging_;
  // The sum of a piece.
  std::vector<float> sum_;
  std::vector<double> gathered_;
};

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_MESSAGE_COLLECTIVES_H_
