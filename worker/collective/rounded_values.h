// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Vectors that go between ranks in bf16, rounded to nearest, ties to even: half
// the bytes.
//
//   rounded.Begin(values);
//   Send(peer, rounded.Round(part));      // `part` is of `values`
//   Receive(peer, rounded.RoomOf(part));
//   rounded.Restore(part);                // part <- the received values
#ifndef WORKER_COLLECTIVE_ROUNDED_VALUES_H_
#define WORKER_COLLECTIVE_ROUNDED_VALUES_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace causeway {

inline constexpr size_t kRoundedBytes = 2;

// Memory for one vector at a time. It grows to the size of the longest. Not
// thread-safe.
class RoundedValues {
 public:
  // Begins with a new vector, which must stay valid until the next call, and
  // drops the rounded values of the last one.
  void Begin(absl::Span<const float> values);

  // In the rest, `part` is a part of that vector.

  // Returns the memory for the part's rounded values.
  absl::Span<char> RoomOf(absl::Span<const float> part);
  // Rounds the part, and returns the rounded values.
  absl::Span<const char> Round(absl::Span<const float> part);
  // part <- its rounded values.
  void Restore(absl::Span<float> part);

 private:
  const float* values_ = nullptr;
  std::vector<char> rounded_;
};

// sum[i] <- sum[i] + rounded[i], in fp32.
void AddRounded(absl::Span<const char> rounded, absl::Span<float> sum);

}  // namespace causeway

#endif  // WORKER_COLLECTIVE_ROUNDED_VALUES_H_
