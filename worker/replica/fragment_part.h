// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank's part of one fragment (fragment_share.h): its anchor, and what the
// outer loop computes with it. Implementations differ in where that is: in host
// memory (host_fragment_part.h), or on a device.
//
// A contribution, and an update:
//
//   part->TakeSnapshot(eager, master);       // training thread
//   part->BeginContribution(version);        // the other thread
//   part->TakeEdge(out); part->AddEdge(in);  // if ranks share a strip
//   part->Encode(bytes, buffer); ...
//   part->EndContribution(merged);
//
//   part->Decode(received); ...              // the other thread
//   part->FinishUpdate();
//   part->Apply(use, master);                // training thread
#ifndef WORKER_REPLICA_FRAGMENT_PART_H_
#define WORKER_REPLICA_FRAGMENT_PART_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/coordinator.pb.h"
#include "proto/run_config.pb.h"
#include "quantization/codec.h"
#include "worker/replica/anchor_digest.h"
#include "worker/replica/fragment_share.h"

namespace causeway {

// How the island takes part in the run, as its ranks have to know it.
struct ReplicaOptions {
  CodecSpec uplink;
  // The seed is the island's.
  EncodeOptions uplink_options;
  // Of the uplink (quantization/error_feedback.h); 0 is none.
  float error_feedback = 0;
  CodecSpec downlink;
  // alpha (outer_optimizer/mixing.h).
  float mixing = 0;
  // With eager updates (outer_optimizer/eager_update.h).
  std::optional<v1::OuterOptimizerConfig> eager;
};

// What the coordinator has told the island that joined, but that the
// overlap_steps are the island's own.
ReplicaOptions MakeReplicaOptions(const v1::JoinResponse& joined);

// How a contribution against `version` of the fragment is encoded: the seed is
// its own, and the same for all parts of it.
EncodeOptions ContributionOptions(const ReplicaOptions& options,
                                  uint32_t fragment, uint64_t version);

// What an update means for the parameters.
struct UpdateUse {
  // Whether training up to the snapshot is in it: mix, otherwise rebase.
  bool includes_island = false;
  // Whether it leads from one version to the next.
  bool is_next = false;
  // Of the island's contribution in the merge; 0 if there is none.
  double island_share = 0;
};

struct EncodedBytes {
  // So many bytes are final.
  uint64_t ready = 0;
  // They are all.
  bool complete = false;
};

// TakeSnapshot and Apply are for the training thread, the rest is for one other
// thread at a time. Whoever calls keeps them apart: nothing else runs during
// Apply, and no SetAnchor, ReplaceAnchor or Decode during TakeSnapshot. Errors
// are those of the memory or of a device; the part is of no use afterwards.
class FragmentPart {
 public:
  virtual ~FragmentPart() = default;

  // In both, `master` is the rank's shard of the parameters, all of it, where
  // the trainer has it: on a device, if it trains on one.

  // Copies the held values: the next contribution. With `eager` they then make
  // the expected outer step, if the options say so.
  virtual absl::Status TakeSnapshot(bool eager, float* master) = 0;
  // The held values make the step that was prepared by FinishUpdate or
  // ReplaceAnchor, and so does the anchor.
  virtual absl::Status Apply(const UpdateUse& use, float* master) = 0;

  // The pseudo-gradient of the last snapshot against the anchor, at `version`.
  virtual absl::Status BeginContribution(uint64_t version) = 0;
  // Takes the first share.edge_out() values of it away.
  virtual absl::Status TakeEdge(absl::Span<float> values) = 0;
  // Adds share.edge_in() values behind it.
  virtual absl::Status AddEdge(absl::Span<const float> values) = 0;
  // Encodes until at least `bytes` bytes of share.encoded are final, or all
  // are. `buffer` has MaxEncodedBytes of them, is in host memory, and is the
  // same in every call for a contribution.
  virtual absl::StatusOr<EncodedBytes> Encode(uint64_t bytes,
                                              absl::Span<char> buffer) = 0;
  // The contribution is over; if it was encoded and `merged`, its error is that
  // of the next one. May be called without one.
  virtual absl::Status EndContribution(bool merged) = 0;

  // Decodes what it has not decoded yet of the update's strips that have held
  // values: `received` are their first bytes, more of them in every call.
  //   INVALID_ARGUMENT  as EncodingReader; call DropUpdate to go on.
  virtual absl::Status Decode(absl::string_view received) = 0;
  // After all bytes of these strips.
  //   INVALID_ARGUMENT  some are missing.
  virtual absl::Status FinishUpdate() = 0;
  // The update comes again from the beginning. One that is finished stays.
  virtual absl::Status DropUpdate() = 0;
  // Instead of Decode and FinishUpdate, or of what they have prepared: the held
  // values of the new anchor.
  virtual absl::Status ReplaceAnchor(absl::Span<const float> values) = 0;
  // Adds the held values of the new anchor to `digest`, which is that of all
  // values before them.
  virtual absl::Status Digest(AnchorDigest& digest) = 0;

  // The held values of the anchor.
  virtual absl::Status SetAnchor(absl::Span<const float> values) = 0;
  virtual absl::Status ReadAnchor(absl::Span<float> values) = 0;
};

// Makes the part of fragment `fragment`, whose anchor are the values of
// `master`, as in TakeSnapshot. RESOURCE_EXHAUSTED: memory.
using FragmentPartFactory =
    std::function<absl::StatusOr<std::unique_ptr<FragmentPart>>(
        uint32_t fragment, const FragmentShare& share,
        const ReplicaOptions& options, const float* master)>;

}  // namespace causeway

#endif  // WORKER_REPLICA_FRAGMENT_PART_H_
