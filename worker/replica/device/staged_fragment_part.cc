// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/device/staged_fragment_part.h"

#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "worker/replica/host_fragment_part.h"

namespace causeway {
namespace {

class StagedFragmentPart : public FragmentPart {
 public:
  StagedFragmentPart(FragmentShare share, DeviceQueue* queue)
      : share_(std::move(share)),
        queue_(queue),
        held_(static_cast<size_t>(share_.held.size())) {}

  absl::Status Start(uint32_t fragment, const ReplicaOptions& options,
                     const float* master, SnapshotPool* snapshots) {
    RETURN_IF_ERROR(Fetch(const_cast<float*>(master)));
    // For the part, the held values are all that there is of the shard.
    FragmentShare alone = share_;
    alone.shard_size = share_.held.size();
    alone.segments = {{.size = held_.size()}};
    part_ =
        MakeHostFragmentPart(fragment, alone, options, held_.data(), snapshots);
    return absl::OkStatus();
  }

  absl::Status TakeSnapshot(bool eager, float* master) override {
    RETURN_IF_ERROR(Fetch(master));
    RETURN_IF_ERROR(part_->TakeSnapshot(eager, held_.data()));
    return eager ? BringBack(master) : absl::OkStatus();
  }
  absl::Status Apply(const UpdateUse& use, float* master) override {
    RETURN_IF_ERROR(Fetch(master));
    RETURN_IF_ERROR(part_->Apply(use, held_.data()));
    return BringBack(master);
  }

  absl::Status BeginContribution(uint64_t version) override {
    return part_->BeginContribution(version);
  }
  absl::Status TakeEdge(absl::Span<float> values) override {
    return part_->TakeEdge(values);
  }
  absl::Status AddEdge(absl::Span<const float> values) override {
    return part_->AddEdge(values);
  }
  absl::StatusOr<EncodedBytes> Encode(uint64_t bytes,
                                      absl::Span<char> buffer) override {
    return part_->Encode(bytes, buffer);
  }
  absl::Status EndContribution(bool merged) override {
    return part_->EndContribution(merged);
  }
  absl::Status Decode(absl::string_view received) override {
    return part_->Decode(received);
  }
  absl::Status FinishUpdate() override { return part_->FinishUpdate(); }
  absl::Status DropUpdate() override { return part_->DropUpdate(); }
  absl::Status ReplaceAnchor(absl::Span<const float> values) override {
    return part_->ReplaceAnchor(values);
  }
  absl::Status Digest(AnchorDigest& digest) override {
    return part_->Digest(digest);
  }
  absl::Status SetAnchor(absl::Span<const float> values) override {
    return part_->SetAnchor(values);
  }
  absl::Status ReadAnchor(absl::Span<float> values) override {
    return part_->ReadAnchor(values);
  }

 private:
  absl::Status Fetch(float* master) {
    for (const FragmentMap::Segment& segment : share_.segments) {
      queue_->Copy(master + segment.model_offset, segment.size * sizeof(float),
                   held_.data() + segment.fragment_offset);
    }
    return queue_->Synchronize();
  }
  absl::Status BringBack(float* master) {
    for (const FragmentMap::Segment& segment : share_.segments) {
      queue_->Copy(held_.data() + segment.fragment_offset,
                   segment.size * sizeof(float), master + segment.model_offset);
    }
    return queue_->Synchronize();
  }

  const FragmentShare share_;
  DeviceQueue* const queue_;
  std::vector<float> held_;
  std::unique_ptr<FragmentPart> part_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FragmentPart>> MakeStagedFragmentPart(
    uint32_t fragment, const FragmentShare& share,
    const ReplicaOptions& options, const float* master, DeviceQueue* queue,
    SnapshotPool* snapshots) {
  auto part = std::make_unique<StagedFragmentPart>(share, queue);
  RETURN_IF_ERROR(part->Start(fragment, options, master, snapshots));
  return part;
}

}  // namespace causeway
