// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Vectors on their way between ranks in bf16, rounded to nearest, ties to even:
// half the bytes.
//
//   rounded.Begin(values);
//   Send(peer, rounded.Round(part));      // part is of values
//   Receive(peer, rounded.RoomOf(part));
//   rounded.Restore(part);                // part <- what has come
#ifndef WORKER_COLLECTIVE_ROUNDED_VALUES_H_
#define WORKER_COLLECTIVE_ROUNDED_VALUES_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace causeway {

inline constexpr size_t kRoundedBytes = 2;

// Room for one vector at a time, which grows to that of the longest. For one
// thread.
class RoundedValues {
 public:
  // What `values` had here before is gone. They stay until the next call.
  void Begin(absl::Span<const float> values);

  // All of these are of parts of that vector.

  // Where the part is while it is rounded.
  absl::Span<char> RoomOf(absl::Span<const float> part);
  // Rounds the part, and returns where.
  absl::Span<const char> Round(absl::Span<const float> part);
  // part <- what is there.
  void Restore(absl::Span<float> part);

 private:
  const float* values_ = nullptr;
  std::vector<char> rounded_;
};

// sum[i] <- sum[i] + rounded[i], in fp32.
void AddRounded(absl::Span<const char> rounded, absl::Span<float> sum);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_ROUNDED_VALUES_H_
