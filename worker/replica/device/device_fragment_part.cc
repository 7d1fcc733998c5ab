// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/device/device_fragment_part.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "outer_optimizer/mixing.h"
#include "quantization/codec.h"
#include "quantization/error_feedback.h"
#include "quantization/strips/encoding_reader.h"
#include "quantization/strips/layout.h"

namespace causeway {
namespace {

using Lease = PartDevice::Lease;
using Stage = PartDevice::Stage;

constexpr uint64_t kFloat = sizeof(float);
// A kernel copies more segments than these, because each copy costs a launch.
constexpr size_t kFewSegments = 4;

class DeviceFragmentPart : public FragmentPart {
 public:
  DeviceFragmentPart(const FragmentShare& share, const ReplicaOptions& options,
                     PartDevice* device)
      : share_(share),
        options_(options),
        device_(device),
        held_begin_(static_cast<uint64_t>(share.held.begin)),
        held_end_(static_cast<uint64_t>(share.held.end)),
        inner_end_(InnerEnd(share)),
        cover_begin_(held_begin_ / kStripValues * kStripValues),
        cover_end_(std::min(StripCount(held_end_) * kStripValues,
                            static_cast<uint64_t>(share.fragment_size))),
        feedback_(options.error_feedback) {}

  absl::Status Start(const float* master) {
    RETURN_IF_ERROR(PutRuns());
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
    MixIn(stage, includes_island ? snapshot_ : anchor_, master);
    RETURN_IF_ERROR(stage.queue->Synchronize());
    anchor_ = std::exchange(new_anchor_, {});
    snapshot_.Release();
    return absl::OkStatus();
  }

  absl::Status BeginContribution(double ecq_bits) override {
    if (ecq_bits > 0) options_.uplink_options.ecq_bits = ecq_bits;
    progress_ = {.complete = share_.encoded.size() == 0};
    encoded_values_ = 0;
    ASSIGN_OR_RETURN(inner_, device_->TakePinned(inner_size() * kFloat));
    const PartDevice::Background stage(device_);
    const uint64_t piece = device_->piece_values();
    for (uint64_t begin = inner_begin(); begin < inner_end_; begin += piece) {
      FetchInner(*stage, begin, std::min(piece, inner_end_ - begin));
    }
    RETURN_IF_ERROR(FetchDifference(
        *stage, held_begin_,
        held_begin_ + static_cast<uint64_t>(share_.edge_out()), head_));
    RETURN_IF_ERROR(
        FetchDifference(*stage, inner_end_,
                        share_.edge_in() > 0 ? held_end_ : inner_end_, tail_));
    if (!device_->is_shared(snapshot_)) return stage->queue->Synchronize();
    // The next fragment's snapshot needs its place on the device.
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
    while (!progress_.complete && progress_.ready < bytes) {
      if (encoder_ == nullptr) {
        CHECK_EQ(inner_size() + tail_.size(), EncodedSize());
        encoder_ = NewEncoder(options_.uplink, options_.uplink_options,
                              EncodedSize(), buffer);
      }
      EncodeStrip();
    }
    return progress_;
  }

  absl::Status EndContribution(bool merged) override {
    if (merged && feedback_.is_on() && progress_.complete) {
      LargeVector<float> error(inner_.values(), inner_.values() + inner_size());
      error.insert(error.end(), tail_.begin(), tail_.end());
      feedback_.SetError(std::move(error));
    }
    encoder_.reset();
    inner_.Release();
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
      RETURN_IF_ERROR(DecodePiece(received, strips));
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
    EndDecoding();
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
    ASSIGN_OR_RETURN(const Lease host, device_->TakePinned(DigestedSize()));
    for (uint64_t begin = 0; begin < held_size(); begin += piece) {
      const uint64_t count = std::min(piece, held_size() - begin);
      RETURN_IF_ERROR(
          Read(new_anchor_, begin, absl::MakeSpan(host.values(), count)));
      digest.Update(absl::MakeConstSpan(host.values(), count));
    }
    return absl::OkStatus();
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
  // Returns the end of the strips that this rank encodes without others'
  // values.
  static uint64_t InnerEnd(const FragmentShare& share) {
    const auto end = static_cast<uint64_t>(share.encoded.end);
    // The last strip has values that other ranks hold.
    return share.edge_in() > 0 ? (end - 1) / kStripValues * kStripValues : end;
  }
  uint64_t inner_begin() const {
    return static_cast<uint64_t>(share_.encoded.begin);
  }
  uint64_t inner_size() const { return inner_end_ - inner_begin(); }
  uint64_t EncodedSize() const {
    return static_cast<uint64_t>(share_.encoded.size());
  }
  // Returns the most bytes of an update that go to the device at a time.
  uint64_t PieceSize() const {
    return std::min(device_->piece_values(), cover_size()) * kFloat;
  }
  uint64_t cover_size() const { return cover_end_ - cover_begin_; }
  Held HeldIn(uint64_t begin, uint64_t end) const {
    return {std::max(begin, held_begin_), std::min(end, held_end_)};
  }

  // Returns the most bytes that come from the device at a time for a digest.
  uint64_t DigestedSize() const {
    return std::min(device_->piece_values(), held_size()) * kFloat;
  }

  // Reserves the memory that contributions and updates lease during training.
  absl::Status ReserveForUpdates() {
    // One is for the next anchor, and one for the snapshot.
    RETURN_IF_ERROR(device_->ReserveAnchor(held_size()));
    RETURN_IF_ERROR(device_->ReserveAnchor(held_size()));
    if (!anchor_.is_pinned()) {
      RETURN_IF_ERROR(device_->ReservePinned(DigestedSize()));
    }
    RETURN_IF_ERROR(device_->ReservePinned(inner_size() * kFloat));
    // FetchDifference takes less than a strip each of anchor and snapshot.
    if (share_.edge_out() > 0 || share_.edge_in() > 0) {
      RETURN_IF_ERROR(device_->ReservePinned(2 * kStripValues * kFloat));
    }
    return device_->ReservePinned(PieceSize());
  }

  // Calls every kernel once, because the driver loads a kernel's code at its
  // first call, and may then wait for all devices.
  void LoadCode() const {
    const Stage& stage = device_->training();
    stage.queue->Subtract(stage.anchor, kStripValues, stage.values);
    stage.queue->Add(stage.anchor, kStripValues, stage.values);
  }

  // Puts the table of the runs of held values on the device, if they are many.
  absl::Status PutRuns() {
    if (share_.segments.size() <= kFewSegments) return absl::OkStatus();
    std::vector<DeviceRun> runs;
    for (const FragmentMap::Segment& segment : share_.segments) {
      runs.push_back({.in_shard = static_cast<int64_t>(segment.model_offset),
                      .in_part = static_cast<int64_t>(segment.fragment_offset),
                      .size = static_cast<int64_t>(segment.size)});
    }
    const size_t bytes = runs.size() * sizeof(DeviceRun);
    ASSIGN_OR_RETURN(runs_, device_->TakeOnDevice(bytes));
    DeviceQueue* const queue = device_->training().queue;
    queue->Copy(runs.data(), bytes, runs_.bytes());
    return queue->Synchronize();
  }

  // Copies between the shard and an array of these held values.
  void CopySegments(const Stage& stage, float* master, const Held& held,
                    float* array, bool to_master) const {
    if (!runs_.empty()) {
      stage.queue->CopyRuns(reinterpret_cast<const DeviceRun*>(runs_.bytes()),
                            share_.segments.size(), held.begin - held_begin_,
                            held.end - held_begin_, master, array, to_master);
      return;
    }
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

  // Copies the held values on the training thread.
  absl::Status CopyHeld(const float* master, float* to) const {
    CopySegments(device_->training(), const_cast<float*>(master),
                 {held_begin_, held_end_}, to, /*to_master=*/false);
    return device_->training().queue->Synchronize();
  }

  // Does Mix() of outer_optimizer/mixing.h, or Assign() if `trained_from` is
  // empty.
  void MixIn(const Stage& stage, const Lease& trained_from,
             float* master) const {
    if (trained_from.empty()) {
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
      stage.queue->Copy(trained_from.values() + at, count * kFloat,
                        stage.anchor);
      stage.queue->Subtract(stage.anchor, count, stage.values);
      stage.queue->Copy(new_anchor_.values() + at, count * kFloat,
                        stage.anchor);
      stage.queue->Add(stage.anchor, count, stage.values);
      CopySegments(stage, master, held, stage.values, /*to_master=*/true);
    }
  }

  // Fetches `count` values of the pseudo-gradient from value `begin` of the
  // fragment on.
  void FetchInner(const Stage& stage, uint64_t begin, uint64_t count) const {
    const uint64_t at = begin - held_begin_;
    const uint64_t before = begin - inner_begin();
    stage.queue->Copy(anchor_.values() + at, count * kFloat, stage.anchor);
    stage.queue->Copy(snapshot_.values() + at, count * kFloat, stage.values);
    stage.queue->Subtract(stage.values, count, stage.anchor);
    stage.queue->Copy(stage.anchor, count * kFloat, inner_.values() + before);
  }

  void EncodeStrip() {
    absl::Span<float> strip = absl::MakeSpan(tail_);
    if (encoded_values_ < inner_size()) {
      strip = absl::MakeSpan(
          inner_.values() + encoded_values_,
          std::min(kStripValues, inner_size() - encoded_values_));
    }
    feedback_.Encode(encoded_values_, strip, *encoder_);
    encoded_values_ += strip.size();
    progress_.complete = encoded_values_ == EncodedSize();
    progress_.ready =
        progress_.complete ? encoder_->Finish() : encoder_->ready();
    // With error feedback, inner_ holds the error until EndContribution.
    if (progress_.complete && !feedback_.is_on()) inner_.Release();
  }

  // Both are for the threads beside training. Read copies the values of `from`
  // that start at `begin`; Write copies to the first values of `to`.
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
    ASSIGN_OR_RETURN(new_anchor_, device_->TakeAnchor(held_size()));
    ASSIGN_OR_RETURN(piece_, device_->TakePinned(PieceSize()));
    return absl::OkStatus();
  }

  void ForgetUpdate() {
    EndDecoding();
    new_anchor_.Release();
  }
  void EndDecoding() {
    reader_.reset();
    piece_.Release();
  }

  // Decodes the next `strips` strips into piece_.
  absl::Status DecodePiece(absl::string_view received, uint64_t strips) const {
    for (uint64_t i = 0; i < strips; ++i) {
      const uint64_t strip = decoded_strips_ + i;
      RETURN_IF_ERROR(reader_->DecodeStrip(
          received, strip,
          absl::MakeSpan(piece_.values() + i * kStripValues,
                         ValuesOfStrip(strip, cover_size()))));
    }
    return absl::OkStatus();
  }

  // Makes the new anchor of the values held in [begin, end) of the fragment,
  // whose update is in piece_.
  absl::Status MakeNewAnchor(uint64_t begin, uint64_t end) const {
    const Held held = HeldIn(begin, end);
    const uint64_t at = held.begin - held_begin_;
    const uint64_t count = held.end - held.begin;
    const PartDevice::Background stage(device_);
    stage->queue->Copy(anchor_.values() + at, count * kFloat, stage->anchor);
    stage->queue->Copy(piece_.values() + (held.begin - begin), count * kFloat,
                       stage->values);
    stage->queue->Add(stage->values, count, stage->anchor);
    stage->queue->Copy(stage->anchor, count * kFloat,
                       new_anchor_.values() + at);
    return stage->queue->Synchronize();
  }

  const FragmentShare share_;
  ReplicaOptions options_;
  PartDevice* const device_;
  // The held values, and the strips that cover them, by their place in the
  // fragment.
  const uint64_t held_begin_;
  const uint64_t held_end_;
  const uint64_t inner_end_;
  const uint64_t cover_begin_;
  const uint64_t cover_end_;

  // The runs of held values in the shard, if they are many.
  Lease runs_;
  Lease anchor_;
  Lease snapshot_;

  // The contribution. inner_ has its strips before inner_end_.
  ErrorFeedback feedback_;
  Lease inner_;
  std::unique_ptr<Encoder> encoder_;
  uint64_t encoded_values_ = 0;
  // The values that another rank encodes, and the values that this rank encodes
  // together with values of other ranks.
  std::vector<float> head_;
  std::vector<float> tail_;
  EncodedBytes progress_;

  // The update. piece_ has its strips on their way to the device.
  std::optional<EncodingReader> reader_;
  uint64_t decoded_strips_ = 0;
  Lease piece_;
  Lease new_anchor_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FragmentPart>> MakeDeviceFragmentPart(
    const FragmentShare& share, const ReplicaOptions& options,
    const float* master, PartDevice* device) {
  auto part = std::make_unique<DeviceFragmentPart>(share, options, device);
  RETURN_IF_ERROR(part->Start(master));
  return part;
}

}  // namespace causeway
