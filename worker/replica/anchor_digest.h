// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Digest128 (common/checksum.h) of an anchor whose values lie with several
// ranks: one after the other adds its part, and gives the state to the next.
#ifndef WORKER_REPLICA_ANCHOR_DIGEST_H_
#define WORKER_REPLICA_ANCHOR_DIGEST_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace causeway {

// For one thread.
class AnchorDigest {
 public:
  AnchorDigest();
  ~AnchorDigest();
  AnchorDigest(AnchorDigest&&) noexcept;
  AnchorDigest& operator=(AnchorDigest&&) noexcept;

  void Update(absl::Span<const float> values);

  // The digest of all values so far, as Digest128 gives it.
  std::string Finish() const;

  // What another process of this program, on the same kind of machine, needs to
  // go on: kStateBytes bytes. Restore takes bytes of Save only.
  static constexpr size_t kStateBytes = 576;
  std::string Save() const;
  void Restore(absl::string_view state);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_ANCHOR_DIGEST_H_
