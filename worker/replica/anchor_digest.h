// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Digest128 (common/checksum.h) of an anchor whose values are spread over
// ranks: each rank in turn adds its part and hands the state to the next one.
#ifndef WORKER_REPLICA_ANCHOR_DIGEST_H_
#define WORKER_REPLICA_ANCHOR_DIGEST_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace causeway {

// Not thread-safe.
class AnchorDigest {
 public:
  AnchorDigest();
  ~AnchorDigest();
  AnchorDigest(AnchorDigest&&) noexcept;
  AnchorDigest& operator=(AnchorDigest&&) noexcept;

  void Update(absl::Span<const float> values);

  // Returns the Digest128 of all values so far.
  std::string Finish() const;

  // Save returns the state, kStateBytes bytes, from which another process of
  // this program on the same kind of machine can continue. Restore takes only
  // bytes that Save returned.
  static constexpr size_t kStateBytes = 576;
  std::string Save() const;
  void Restore(absl::string_view state);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_ANCHOR_DIGEST_H_
