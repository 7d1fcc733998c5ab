// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One fragment of an island's replica, as the outer loop sees it on rank 0: the
// island's parameters and anchor, wherever its ranks have them. What the outer
// loop never sees is their values.
//
// The training thread takes snapshots and applies updates; the fragment's link
// (worker/sync/fragment_actor.h) does the rest beside it.
#ifndef WORKER_REPLICA_FRAGMENT_REPLICA_H_
#define WORKER_REPLICA_FRAGMENT_REPLICA_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/replica/fragment_part.h"

namespace causeway {

// Errors, where nothing else is said, are those of a rank: the replica is of no
// use any more. What must not run beside what: see FragmentPart.
class FragmentReplica {
 public:
  virtual ~FragmentReplica() = default;

  // Values of the fragment.
  virtual uint64_t size() const = 0;

  // For the training thread, between steps; see FragmentPart.
  virtual absl::Status TakeSnapshot(bool eager) = 0;
  virtual absl::Status Apply(const UpdateUse& use) = 0;

  // The anchor, all of it. Before the first contribution.
  virtual absl::Status SetAnchor(absl::Span<const float> values) = 0;
  virtual absl::Status ReadAnchor(absl::Span<float> values) = 0;

  // For the link's thread.

  // Makes the last snapshot, against the anchor at `version`, the contribution.
  virtual absl::Status BeginContribution(uint64_t version) = 0;
  // Encodes until at least `bytes` bytes are final, or all are: the encoding of
  // the whole fragment. `buffer` has MaxEncodedBytes of it, and is the same in
  // every call for a contribution.
  virtual absl::StatusOr<EncodedBytes> Encode(uint64_t bytes,
                                              absl::Span<char> buffer) = 0;
  virtual absl::Status EndContribution(bool merged) = 0;

  // Decodes what has come of an update: its first bytes, more in every call.
  //   INVALID_ARGUMENT  it is no encoding; the replica is as it was.
  virtual absl::Status Decode(absl::string_view received) = 0;
  // After all bytes: the Digest128 of the new anchor, which is ready to be
  // applied. Errors as of Decode.
  virtual absl::StatusOr<std::string> FinishUpdate(
      absl::string_view received) = 0;
  // The update comes again from the beginning.
  virtual absl::Status DropUpdate() = 0;
  // Instead of an update, or of one that was decoded: the new anchor.
  virtual absl::Status ReplaceAnchor(absl::Span<const float> values) = 0;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_FRAGMENT_REPLICA_H_
