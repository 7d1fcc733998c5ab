// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One rank's part of one fragment (fragment_share.h): its anchor, and the outer
// loop's computations on it. Implementations keep it in host memory
// (host_fragment_part.h) or on a device.
//
// A contribution, and an update:
//
//   part->TakeSnapshot(master);              // training thread
//   part->BeginContribution(0);              // the other thread
//   part->TakeEdge(out); part->AddEdge(in);  // if ranks share a strip
//   part->Encode(bytes, buffer); ...
//   part->EndContribution(merged);
//
//   part->Decode(received); ...              // the other thread
//   part->FinishUpdate();
//   part->Apply(includes_island, master);    // training thread
#ifndef WORKER_REPLICA_FRAGMENT_PART_H_
#define WORKER_REPLICA_FRAGMENT_PART_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checksum.h"
#include "proto/run_config.pb.h"
#include "quantization/codec.h"
#include "worker/replica/fragment_share.h"

namespace causeway {

// The part of the island's configuration that its ranks need for the replica.
struct ReplicaOptions {
  CodecSpec uplink;
  EncodeOptions uplink_options;
  // The uplink's error feedback (quantization/error_feedback.h); 0 for none.
  float error_feedback = 0;
  CodecSpec downlink;
  // If true, parameters rest from a snapshot until its update is applied,
  // because training waits for the update, and snapshots need no copy.
  bool parameters_rest = false;
};

ReplicaOptions MakeReplicaOptions(const v1::SynchronizationConfig& config);

struct EncodedBytes {
  // The number of bytes that are final.
  uint64_t ready = 0;
  // Is true if these are all bytes of the encoding.
  bool complete = false;
};

// The training thread calls TakeSnapshot and Apply; one other thread at a time
// calls the rest. During Apply only EndContribution may run, and during
// TakeSnapshot neither ReplaceAnchor nor Decode. Errors are those of memory or
// of a device; the part must not be used afterwards.
class FragmentPart {
 public:
  virtual ~FragmentPart() = default;

  // In both, `master` is the rank's whole shard of the parameters in the
  // trainer's memory, which may be on a device.

  // Copies the held values for the next contribution, unless parameters rest;
  // then the master must live until Apply, which ends the snapshot.
  virtual absl::Status TakeSnapshot(float* master) = 0;
  // Applies the step that FinishUpdate or ReplaceAnchor has prepared to the
  // held values and the anchor. If the update contains the training up to the
  // snapshot (`includes_island`), parameters mix (outer_optimizer/mixing.h),
  // otherwise they rebase. Without a snapshot, because an earlier process sent
  // the contribution, they become the anchor. Of a contribution, only
  // EndContribution may still come, beside Apply or after it.
  virtual absl::Status Apply(bool includes_island, float* master) = 0;

  // Begins a contribution: the pseudo-gradient of the last snapshot against the
  // anchor. If `ecq_bits` is not 0, ECQ aims at this many bits per value from
  // now on, instead of at the options' target.
  virtual absl::Status BeginContribution(double ecq_bits) = 0;
  // Moves the first share.edge_out() values of the pseudo-gradient to `values`.
  virtual absl::Status TakeEdge(absl::Span<float> values) = 0;
  // Appends share.edge_in() values to the pseudo-gradient.
  virtual absl::Status AddEdge(absl::Span<const float> values) = 0;
  // Encodes until at least `bytes` bytes of share.encoded are final, or all
  // are. `buffer` is host memory of MaxEncodedBytes of these values, the same
  // in every call for a contribution.
  virtual absl::StatusOr<EncodedBytes> Encode(uint64_t bytes,
                                              absl::Span<char> buffer) = 0;
  // Ends the contribution. If it was encoded and `merged`, its encoding error
  // goes into the next one. Does nothing without a contribution.
  virtual absl::Status EndContribution(bool merged) = 0;

  // Decodes the update's strips that have held values. `received` holds the
  // first bytes of these strips, more in every call.
  //   INVALID_ARGUMENT  See EncodingReader; call DropUpdate to continue.
  virtual absl::Status Decode(absl::string_view received) = 0;
  // Prepares the update. Call when all bytes of these strips are decoded.
  //   INVALID_ARGUMENT  Some bytes are missing.
  virtual absl::Status FinishUpdate() = 0;
  // Drops the update, which can then be received again from the beginning. A
  // finished update stays.
  virtual absl::Status DropUpdate() = 0;
  // Prepares the held values of a new anchor instead of an update, even one
  // that was decoded.
  virtual absl::Status ReplaceAnchor(absl::Span<const float> values) = 0;
  // Adds the held values of the new anchor to `digest`, which covers all values
  // before them.
  virtual absl::Status Digest(Digest128Stream& digest) = 0;

  // Reads the held values of the anchor.
  virtual absl::Status ReadAnchor(absl::Span<float> values) = 0;
};

// Makes a part of fragment `fragment`. Its anchor is copied from `master`, as
// in TakeSnapshot. RESOURCE_EXHAUSTED: out of memory.
using FragmentPartFactory =
    std::function<absl::StatusOr<std::unique_ptr<FragmentPart>>(
        uint32_t fragment, const FragmentShare& share,
        const ReplicaOptions& options, const float* master)>;

}  // namespace causeway

#endif  // WORKER_REPLICA_FRAGMENT_PART_H_
