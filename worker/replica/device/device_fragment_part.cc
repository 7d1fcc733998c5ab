// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/device/device_fragment_part.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "outer_optimizer/mixing.h"
#include "quantization/codec.h"
#include "quantization/strips/encoding_reader.h"
#include "quantization/strips/layout.h"
#include "worker/replica/host_fragment_part.h"

namespace causeway {
namespace {

using Lease = PartDevice::Lease;
using Stage = PartDevice::Stage;

constexpr uint64_t kFloat = sizeof(float);

class DeviceFragmentPart : public FragmentPart {
 public:
  DeviceFragmentPart(uint32_t fragment, const FragmentShare& share,
                     const ReplicaOptions& options, PartDevice* device)
      : share_(share),
        options_(options),
        fragment_(fragment),
        device_(device),
        held_begin_(static_cast<uint64_t>(share.held.begin)),
        held_end_(static_cast<uint64_t>(share.held.end)),
        inner_end_(InnerEnd(share)),
        cover_begin_(held_begin_ / kStripValues * kStripValues),
        cover_end_(std::min(StripCount(held_end_) * kStripValues,
                            static_cast<uint64_t>(share.fragment_size))) {}

  absl::Status Start(const float* master) {
    ASSIGN_OR_RETURN(anchor_, device_->TakeAnchor(held_size()));
    RETURN_IF_ERROR(device_->ReserveSnapshot(held_size()));
    RETURN_IF_ERROR(ReserveForUpdates());
    LoadCode();
    return CopyHeld(master, anchor_.values());
  }

  absl::Status TakeSnapshot(float* master) override {
    ASSIGN_OR_RETURN(snapshot_, device_->TakeSnapshot(held_size()));
    return CopyHeld(master, snapshot_.values());
  }

  absl::Status Apply(bool includes_island, float* master) override {
    if (held_size() == 0) return absl::OkStatus();
    CHECK(!new_anchor_.empty()) << "no update is prepared";
    const Stage& stage = device_->training();
    if (includes_island) {
      MixIn(stage, master);
    } else {
      const uint64_t piece = device_->piece_values();
      for (uint64_t begin = cover_begin_; begin < cover_end_; begin += piece) {
        const uint64_t end = std::min(begin + piece, cover_end_);
        const Held held = HeldIn(begin, end);
        CopySegments(stage, master, held, stage.values + (held.begin - begin),
                     /*to_master=*/false);
        AddUpdate(stage, begin, end);
        CopySegments(stage, master, held, stage.values + (held.begin - begin),
                     /*to_master=*/true);
      }
    }
    RETURN_IF_ERROR(stage.queue->Synchronize());
    anchor_ = std::exchange(new_anchor_, {});
    update_.Release();
    snapshot_.Release();
    return absl::OkStatus();
  }

  absl::Status BeginContribution(uint64_t version) override {
    contribution_ = ContributionOptions(options_, fragment_, version);
    progress_ = {.complete = share_.encoded.size() == 0};
    const auto inner_begin = static_cast<uint64_t>(share_.encoded.begin);
    ASSIGN_OR_RETURN(encoded_, device_->TakePinned(EncodedSize()));
    const PartDevice::Background stage(device_);
    uint64_t encoded_bytes = 0;
    const uint64_t piece = device_->piece_values();
    for (uint64_t begin = inner_begin; begin < inner_end_; begin += piece) {
      const uint64_t count = std::min(piece, inner_end_ - begin);
      const uint64_t bytes = MaxEncodedBytes(options_.uplink, count);
      const uint64_t at = begin - held_begin_;
      stage->queue->Copy(anchor_.values() + at, count * kFloat, stage->anchor);
      stage->queue->Copy(snapshot_.values() + at, count * kFloat,
                         stage->values);
      stage->queue->EncodeDifference(options_.uplink, contribution_, begin,
                                     stage->anchor, stage->values, count,
                                     stage->encoded);
      stage->queue->Copy(stage->encoded, bytes,
                         encoded_.bytes() + encoded_bytes);
      encoded_bytes += bytes;
    }
    RETURN_IF_ERROR(FetchDifference(
        *stage, held_begin_,
        held_begin_ + static_cast<uint64_t>(share_.edge_out()), head_));
    RETURN_IF_ERROR(
        FetchDifference(*stage, inner_end_,
                        share_.edge_in() > 0 ? held_end_ : inner_end_, tail_));
    if (snapshot_.is_pinned()) return stage->queue->Synchronize();
    // Its place on the device is needed for the next fragment's snapshot.
    ASSIGN_OR_RETURN(Lease kept, device_->TakePinned(held_size() * kFloat));
    stage->queue->Copy(snapshot_.values(), held_size() * kFloat, kept.values());
    RETURN_IF_ERROR(stage->queue->Synchronize());
    snapshot_ = std::move(kept);
    return absl::OkStatus();
  }

  absl::Status TakeEdge(absl::Span<float> values) override {
    std::copy(head_.begin(), head_.end(), values.begin());
    return absl::OkStatus();
  }

  absl::Status AddEdge(absl::Span<const float> values) override {
    tail_.insert(tail_.end(), values.begin(), values.end());
    return absl::OkStatus();
  }

  absl::StatusOr<EncodedBytes> Encode(uint64_t bytes,
                                      absl::Span<char> buffer) override {
    if (progress_.complete || bytes <= progress_.ready) return progress_;
    // All strips are encoded already, except for one with values of other
    // ranks.
    progress_.ready = EncodedSize();
    if (progress_.ready > 0) {
      std::memcpy(buffer.data(), encoded_.bytes(), progress_.ready);
    }
    if (share_.edge_in() > 0) {
      CHECK_EQ(tail_.size(),
               static_cast<uint64_t>(share_.encoded.end) - inner_end_);
      const std::unique_ptr<Encoder> encoder =
          NewEncoder(options_.uplink, contribution_, tail_.size(),
                     buffer.subspan(progress_.ready), inner_end_);
      encoder->Encode(0, tail_, {});
      progress_.ready += encoder->Finish();
    }
    progress_.complete = true;
    encoded_.Release();
    return progress_;
  }

  absl::Status EndContribution(bool /*merged*/) override {
    encoded_.Release();
    head_.clear();
    tail_.clear();
    return absl::OkStatus();
  }

  absl::Status Decode(absl::string_view received) override {
    if (!reader_.has_value()) RETURN_IF_ERROR(BeginUpdate());
    RETURN_IF_ERROR(reader_->Read(received.substr(reader_->bytes())));
    while (decoded_strips_ < reader_->complete()) {
      const uint64_t strips = std::min(reader_->complete() - decoded_strips_,
                                       device_->piece_values() / kStripValues);
      RETURN_IF_ERROR(KeepStrips(received, strips));
      const uint64_t begin = cover_begin_ + decoded_strips_ * kStripValues;
      decoded_strips_ += strips;
      RETURN_IF_ERROR(MakeNewAnchor(
          begin, std::min(begin + strips * kStripValues, cover_end_)));
    }
    return absl::OkStatus();
  }

  absl::Status FinishUpdate() override {
    // A rank that holds no values has decoded none.
    if (!reader_.has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(reader_->CheckComplete());
    reader_.reset();
    return absl::OkStatus();
  }

  absl::Status DropUpdate() override {
    // A finished update stays.
    if (reader_.has_value()) ForgetUpdate();
    return absl::OkStatus();
  }

  absl::Status ReplaceAnchor(absl::Span<const float> values) override {
    ForgetUpdate();
    if (held_size() == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(new_anchor_, device_->TakeAnchor(held_size()));
    ASSIGN_OR_RETURN(update_, device_->TakePinned(cover_size() * kFloat));
    update_is_encoded_ = false;
    // Values that other ranks hold do not change here.
    std::memset(update_.bytes(), 0, cover_size() * kFloat);
    const absl::Span<float> change = absl::MakeSpan(
        update_.values() + (held_begin_ - cover_begin_), held_size());
    RETURN_IF_ERROR(ReadAnchor(change));
    // PseudoGradient is old minus new; the swapped arguments make it the
    // change.
    PseudoGradient(values, change, change);
    return Write(values, new_anchor_);
  }

  absl::Status Digest(Digest128Stream& digest) override {
    if (held_size() == 0) return absl::OkStatus();
    CHECK(!new_anchor_.empty()) << "no update is prepared";
    if (new_anchor_.is_pinned()) {
      digest.Update(absl::MakeConstSpan(new_anchor_.values(), held_size()));
      return absl::OkStatus();
    }
    const uint64_t piece = device_->piece_values();
    ASSIGN_OR_RETURN(
        const Lease host,
        device_->TakePinned(std::min(piece, held_size()) * kFloat));
    for (uint64_t begin = 0; begin < held_size(); begin += piece) {
      const uint64_t count = std::min(piece, held_size() - begin);
      RETURN_IF_ERROR(
          Read(new_anchor_, begin, absl::MakeSpan(host.values(), count)));
      digest.Update(absl::MakeConstSpan(host.values(), count));
    }
    return absl::OkStatus();
  }

  absl::Status SetAnchor(absl::Span<const float> values) override {
    return Write(values, anchor_);
  }

  absl::Status ReadAnchor(absl::Span<float> values) override {
    return Read(anchor_, 0, values);
  }

 private:
  // A range of held values, by their place in the fragment.
  struct Held {
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  uint64_t held_size() const { return held_end_ - held_begin_; }
  // Returns where the strips end that this rank encodes without others' values.
  static uint64_t InnerEnd(const FragmentShare& share) {
    const auto end = static_cast<uint64_t>(share.encoded.end);
    // The last strip has values that other ranks hold.
    return share.edge_in() > 0 ? (end - 1) / kStripValues * kStripValues : end;
  }
  // Returns the bytes of these strips.
  uint64_t EncodedSize() const {
    return MaxEncodedBytes(
        options_.uplink,
        inner_end_ - static_cast<uint64_t>(share_.encoded.begin));
  }
  // Returns the bytes in which updates are kept.
  uint64_t UpdateSize() const {
    return HasDeviceKernels(options_.downlink)
               ? MaxEncodedBytes(options_.downlink, cover_size())
               : cover_size() * kFloat;
  }
  uint64_t cover_size() const { return cover_end_ - cover_begin_; }
  Held HeldIn(uint64_t begin, uint64_t end) const {
    return {std::max(begin, held_begin_), std::min(end, held_end_)};
  }

  // Reserves what contributions and updates lease during training.
  absl::Status ReserveForUpdates() {
    RETURN_IF_ERROR(device_->ReserveAnchor(held_size()));
    // The first is for the snapshot.
    RETURN_IF_ERROR(device_->ReservePinned(held_size() * kFloat));
    RETURN_IF_ERROR(device_->ReservePinned(EncodedSize()));
    // FetchDifference has less than a strip each of anchor and snapshot.
    if (share_.edge_out() > 0 || share_.edge_in() > 0) {
      RETURN_IF_ERROR(device_->ReservePinned(2 * kStripValues * kFloat));
    }
    return device_->ReservePinned(UpdateSize());
  }

  // Calls every kernel once, because the driver loads a kernel's code at its
  // first call, and may then wait for all devices.
  void LoadCode() const {
    const Stage& stage = device_->training();
    stage.queue->Subtract(stage.anchor, kStripValues, stage.values);
    stage.queue->Add(stage.anchor, kStripValues, stage.values);
    stage.queue->EncodeDifference(options_.uplink, {}, 0, stage.anchor,
                                  stage.anchor, kStripValues, stage.encoded);
    if (HasDeviceKernels(options_.downlink)) {
      stage.queue->DecodeAdd(options_.downlink, stage.encoded, kStripValues,
                             stage.values);
    }
  }

  // Copies between the shard and an array of these held values.
  void CopySegments(const Stage& stage, float* master, const Held& held,
                    float* array, bool to_master) const {
    for (const FragmentMap::Segment& segment : share_.segments) {
      const uint64_t first = held_begin_ + segment.fragment_offset;
      const uint64_t begin = std::max(first, held.begin);
      const uint64_t end = std::min(first + segment.size, held.end);
      if (begin >= end) continue;
      float* const in_master = master + segment.model_offset + (begin - first);
      float* const in_array = array + (begin - held.begin);
      stage.queue->Copy(to_master ? in_array : in_master,
                        (end - begin) * kFloat,
                        to_master ? in_master : in_array);
    }
  }

  // For the training thread.
  absl::Status CopyHeld(const float* master, float* to) const {
    CopySegments(device_->training(), const_cast<float*>(master),
                 {held_begin_, held_end_}, to, /*to_master=*/false);
    return device_->training().queue->Synchronize();
  }

  // Mix() of outer_optimizer/mixing.h.
  void MixIn(const Stage& stage, float* master) const {
    if (snapshot_.empty()) {
      CopySegments(stage, master, {held_begin_, held_end_},
                   new_anchor_.values(), /*to_master=*/true);
      return;
    }
    const uint64_t piece = device_->piece_values();
    for (uint64_t begin = held_begin_; begin < held_end_; begin += piece) {
      const Held held = HeldIn(begin, begin + piece);
      const uint64_t count = held.end - held.begin;
      const uint64_t at = begin - held_begin_;
      CopySegments(stage, master, held, stage.values, /*to_master=*/false);
      stage.queue->Copy(snapshot_.values() + at, count * kFloat, stage.anchor);
      stage.queue->Subtract(stage.anchor, count, stage.values);
      stage.queue->Copy(new_anchor_.values() + at, count * kFloat,
                        stage.anchor);
      stage.queue->Add(stage.anchor, count, stage.values);
      CopySegments(stage, master, held, stage.values, /*to_master=*/true);
    }
  }

  // Both are for the threads beside training. Read copies values of `from` from
  // `begin` on, Write copies to the first values of `to`.
  absl::Status Read(const Lease& from, uint64_t begin,
                    absl::Span<float> values) const {
    const PartDevice::Background stage(device_);
    stage->queue->Copy(from.values() + begin, values.size() * kFloat,
                       values.data());
    return stage->queue->Synchronize();
  }
  absl::Status Write(absl::Span<const float> values, const Lease& to) const {
    const PartDevice::Background stage(device_);
    stage->queue->Copy(values.data(), values.size() * kFloat, to.values());
    return stage->queue->Synchronize();
  }

  // values <- anchor - snapshot of values [begin, end) of the fragment.
  absl::Status FetchDifference(const Stage& stage, uint64_t begin, uint64_t end,
                               std::vector<float>& values) const {
    values.resize(end - begin);
    if (values.empty()) return absl::OkStatus();
    const uint64_t bytes = values.size() * kFloat;
    ASSIGN_OR_RETURN(const Lease fetched, device_->TakePinned(2 * bytes));
    float* const anchor = fetched.values();
    float* const snapshot = anchor + values.size();
    const uint64_t at = begin - held_begin_;
    stage.queue->Copy(anchor_.values() + at, bytes, anchor);
    stage.queue->Copy(snapshot_.values() + at, bytes, snapshot);
    RETURN_IF_ERROR(stage.queue->Synchronize());
    PseudoGradient(absl::MakeConstSpan(anchor, values.size()),
                   absl::MakeConstSpan(snapshot, values.size()),
                   absl::MakeSpan(values));
    return absl::OkStatus();
  }

  absl::Status BeginUpdate() {
    reader_ = NewEncodingReader(options_.downlink, cover_size());
    decoded_strips_ = 0;
    update_is_encoded_ = HasDeviceKernels(options_.downlink);
    ASSIGN_OR_RETURN(new_anchor_, device_->TakeAnchor(held_size()));
    ASSIGN_OR_RETURN(update_, device_->TakePinned(UpdateSize()));
    return absl::OkStatus();
  }

  void ForgetUpdate() {
    reader_.reset();
    new_anchor_.Release();
    update_.Release();
  }

  // Checks the next `strips` strips and puts them into update_.
  absl::Status KeepStrips(absl::string_view received, uint64_t strips) {
    for (uint64_t i = 0; i < strips; ++i) {
      const uint64_t strip = decoded_strips_ + i;
      const uint64_t begin = strip * kStripValues;
      const uint64_t count = ValuesOfStrip(strip, cover_size());
      if (!update_is_encoded_) {
        RETURN_IF_ERROR(reader_->DecodeStrip(
            received, strip, absl::MakeSpan(update_.values() + begin, count)));
        continue;
      }
      RETURN_IF_ERROR(reader_->CheckStrip(received, strip));
      const absl::string_view bytes = reader_->Strip(received, strip);
      std::memcpy(update_.bytes() + MaxEncodedBytes(options_.downlink, begin),
                  bytes.data(), bytes.size());
    }
    return absl::OkStatus();
  }

  // Makes the new anchor of the held values among values [begin, end) of the
  // fragment, which are whole strips and at most a piece.
  absl::Status MakeNewAnchor(uint64_t begin, uint64_t end) const {
    const Held held = HeldIn(begin, end);
    const uint64_t at = held.begin - held_begin_;
    const uint64_t bytes = (held.end - held.begin) * kFloat;
    const PartDevice::Background stage(device_);
    float* const staged = stage->values + (held.begin - begin);
    stage->queue->Copy(anchor_.values() + at, bytes, staged);
    AddUpdate(*stage, begin, end);
    stage->queue->Copy(staged, bytes, new_anchor_.values() + at);
    return stage->queue->Synchronize();
  }

  // stage.values += the update of values [begin, end) of the fragment, which
  // are whole strips.
  void AddUpdate(const Stage& stage, uint64_t begin, uint64_t end) const {
    const uint64_t count = end - begin;
    const uint64_t at = begin - cover_begin_;
    if (update_is_encoded_) {
      stage.queue->Copy(
          update_.bytes() + MaxEncodedBytes(options_.downlink, at),
          MaxEncodedBytes(options_.downlink, count), stage.encoded);
      stage.queue->DecodeAdd(options_.downlink, stage.encoded, count,
                             stage.values);
    } else {
      stage.queue->Copy(update_.values() + at, count * kFloat, stage.anchor);
      stage.queue->Add(stage.anchor, count, stage.values);
    }
  }

  const FragmentShare share_;
  const ReplicaOptions options_;
  const uint32_t fragment_;
  PartDevice* const device_;
  // The held values, and the strips that cover them, by their place in the
  // fragment.
  const uint64_t held_begin_;
  const uint64_t held_end_;
  const uint64_t inner_end_;
  const uint64_t cover_begin_;
  const uint64_t cover_end_;

  Lease anchor_;
  Lease snapshot_;

  // The contribution. The device encodes the values before inner_end_.
  EncodeOptions contribution_;
  Lease encoded_;
  // The values that another rank encodes, and those that this rank encodes
  // together with values of other ranks.
  std::vector<float> head_;
  std::vector<float> tail_;
  EncodedBytes progress_;

  // The update, until it is applied: encoded, or as values.
  std::optional<EncodingReader> reader_;
  uint64_t decoded_strips_ = 0;
  Lease update_;
  bool update_is_encoded_ = false;
  Lease new_anchor_;
};

// Makes a part in host memory of a master on the device.
absl::StatusOr<std::unique_ptr<FragmentPart>> MakePartOfMasterOnDevice(
    uint32_t fragment, const FragmentShare& share,
    const ReplicaOptions& options, const float* master, DeviceQueue* queue,
    SnapshotPool* snapshots) {
  const MasterCopy copy = [queue, segments = share.segments](
                              float* masters, bool to_master,
                              absl::Span<float> held) {
    for (const FragmentMap::Segment& segment : segments) {
      float* const there = masters + segment.model_offset;
      float* const here = held.data() + segment.fragment_offset;
      queue->Copy(to_master ? here : there, segment.size * kFloat,
                  to_master ? there : here);
    }
    return queue->Synchronize();
  };
  std::vector<float> held(static_cast<size_t>(share.held.size()));
  RETURN_IF_ERROR(copy(const_cast<float*>(master), /*to_master=*/false,
                       absl::MakeSpan(held)));
  FragmentShare alone = share;
  alone.shard_size = share.held.size();
  alone.segments = {{.size = held.size()}};
  return MakeHostFragmentPart(fragment, alone, options, held.data(), snapshots,
                              copy);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FragmentPart>> MakeDeviceFragmentPart(
    uint32_t fragment, const FragmentShare& share,
    const ReplicaOptions& options, const float* master, PartDevice* device,
    SnapshotPool* snapshots) {
  if (!HasDeviceKernels(options.uplink) || options.error_feedback > 0) {
    return MakePartOfMasterOnDevice(fragment, share, options, master,
                                    device->training().queue, snapshots);
  }
  auto part =
      std::make_unique<DeviceFragmentPart>(fragment, share, options, device);
  RETURN_IF_ERROR(part->Start(master));
  return part;
}

}  // namespace causeway
