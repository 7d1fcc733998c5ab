// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/host_fragment_part.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/checksum.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "outer_optimizer/mixing.h"
#include "quantization/error_feedback.h"
#include "quantization/strips/layout.h"
#include "worker/replica/update_decoder.h"

namespace causeway {
namespace {

class HostFragmentPart : public FragmentPart {
 public:
  HostFragmentPart(const FragmentShare& share, const ReplicaOptions& options,
                   const float* master, SnapshotPool* snapshots,
                   MasterCopy copy)
      : share_(share),
        options_(options),
        snapshots_(snapshots),
        copy_(std::move(copy)),
        anchor_(snapshots->Take(static_cast<size_t>(share.held.size()))),
        feedback_(options.error_feedback) {
    Gather(master, absl::MakeSpan(anchor_));
  }

  absl::Status TakeSnapshot(float* master) override {
    if (options_.parameters_rest && copy_ == nullptr) {
      resting_ = master;
      return absl::OkStatus();
    }
    snapshot_ = snapshots_->Take(anchor_.size());
    return Fetch(master, absl::MakeSpan(snapshot_));
  }

  absl::Status Apply(bool includes_island, float* master) override {
    const absl::Span<float> shard = Borrow(master);
    if (copy_ != nullptr) RETURN_IF_ERROR(Fetch(master, shard));
    MixIn(includes_island, shard);
    std::swap(anchor_, update_.new_anchor);
    Release(update_);
    snapshots_->Return(std::exchange(snapshot_, {}));
    resting_ = nullptr;
    return BringBack(master);
  }

  absl::Status BeginContribution(double ecq_bits) override {
    if (ecq_bits > 0) options_.uplink_options.ecq_bits = ecq_bits;
    whole_ = false;
    if (feedback_.is_on()) TakeValues();
    subtracted_ = 0;
    progress_ = {.complete = share_.encoded.size() == 0};
    encoded_values_ = 0;
    return absl::OkStatus();
  }

  absl::Status TakeEdge(absl::Span<float> values) override {
    SubtractAll();
    const auto end = values_.begin() + share_.edge_out();
    std::copy(values_.begin(), end, values.begin());
    values_.erase(values_.begin(), end);
    return absl::OkStatus();
  }

  absl::Status AddEdge(absl::Span<const float> values) override {
    SubtractAll();
    values_.insert(values_.end(), values.begin(), values.end());
    return absl::OkStatus();
  }

  absl::StatusOr<EncodedBytes> Encode(uint64_t bytes,
                                      absl::Span<char> buffer) override {
    while (!progress_.complete && progress_.ready < bytes) {
      if (encoder_ == nullptr) {
        CHECK_EQ(whole_ ? values_.size() : anchor_.size(), EncodedSize());
        encoder_ = NewEncoder(options_.uplink, options_.uplink_options,
                              EncodedSize(), buffer);
      }
      EncodeStrip();
    }
    return progress_;
  }

  absl::Status EndContribution(bool merged) override {
    encoder_.reset();
    if (merged && feedback_.is_on() && progress_.complete) {
      feedback_.SetError(std::exchange(values_, {}));
    }
    ReturnValues();
    return absl::OkStatus();
  }

  absl::Status Decode(absl::string_view received) override {
    if (!decoder_.has_value()) {
      decoder_.emplace(options_.downlink, share_.fragment_size,
                       share_.held.begin, anchor_.size());
      decoded_.new_anchor = snapshots_->Take(anchor_.size());
      if (share_.held.begin == 0) decoded_.digest.emplace();
    }
    return decoder_->Advance(
        received, [&](uint64_t begin, absl::Span<float> change) {
          const uint64_t size = change.size();
          NextAnchor(absl::MakeConstSpan(anchor_).subspan(begin, size), change,
                     absl::MakeSpan(decoded_.new_anchor).subspan(begin, size));
          if (decoded_.digest.has_value()) {
            decoded_.digest->Update(absl::MakeConstSpan(change));
          }
        });
  }

  absl::Status FinishUpdate() override {
    // A rank that holds no values has decoded none.
    if (!decoder_.has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(decoder_->CheckComplete());
    decoder_.reset();
    Release(update_);
    std::swap(update_, decoded_);
    return absl::OkStatus();
  }

  absl::Status DropUpdate() override {
    decoder_.reset();
    Release(decoded_);
    return absl::OkStatus();
  }

  absl::Status ReplaceAnchor(absl::Span<const float> values) override {
    RETURN_IF_ERROR(DropUpdate());
    Release(update_);
    update_.new_anchor = snapshots_->Take(anchor_.size());
    std::copy(values.begin(), values.end(), update_.new_anchor.begin());
    return absl::OkStatus();
  }

  absl::Status Digest(Digest128Stream& digest) override {
    if (update_.digest.has_value()) {
      digest = *update_.digest;
      update_.digest.reset();
    } else {
      digest.Update(absl::MakeConstSpan(update_.new_anchor));
    }
    return absl::OkStatus();
  }

  absl::Status ReadAnchor(absl::Span<float> values) override {
    std::copy(anchor_.begin(), anchor_.end(), values.begin());
    return absl::OkStatus();
  }

 private:
  // Copies the held values from the master.
  absl::Status Fetch(float* master, absl::Span<float> held) const {
    if (copy_ != nullptr) return copy_(master, /*to_master=*/false, held);
    Gather(master, held);
    return absl::OkStatus();
  }
  // Returns the master's shard or, with copy_, memory for the held values.
  absl::Span<float> Borrow(float* master) {
    if (copy_ == nullptr) {
      return absl::MakeSpan(master, static_cast<size_t>(share_.shard_size));
    }
    held_ = snapshots_->Take(anchor_.size());
    return absl::MakeSpan(held_);
  }
  absl::Status BringBack(float* master) {
    if (copy_ == nullptr) return absl::OkStatus();
    const absl::Status copied =
        copy_(master, /*to_master=*/true, absl::MakeSpan(held_));
    snapshots_->Return(std::exchange(held_, {}));
    return copied;
  }

  void Gather(const float* master, absl::Span<float> held) const {
    for (const FragmentMap::Segment& segment : share_.segments) {
      std::copy_n(master + segment.model_offset, segment.size,
                  held.data() + segment.fragment_offset);
    }
  }

  void MixIn(bool includes_island, absl::Span<float> shard) const {
    for (const FragmentMap::Segment& segment : share_.segments) {
      const auto held = [&](const LargeVector<float>& values) {
        return absl::MakeConstSpan(values).subspan(segment.fragment_offset,
                                                   segment.size);
      };
      const absl::Span<float> local =
          shard.subspan(segment.model_offset, segment.size);
      if (includes_island && snapshot_.empty()) {
        Assign(held(update_.new_anchor), local);
      } else {
        Mix(held(update_.new_anchor),
            held(includes_island ? snapshot_ : anchor_), local);
      }
    }
  }

  uint64_t EncodedSize() const {
    return static_cast<uint64_t>(share_.encoded.size());
  }

  // Makes the whole pseudo-gradient, before values of it move between ranks.
  void SubtractAll() {
    if (whole_) return;
    if (values_.empty()) TakeValues();
    Subtract(absl::MakeSpan(values_));
    whole_ = true;
  }

  // Makes the next differences of anchor and snapshot.
  void Subtract(absl::Span<float> values) {
    if (resting_ == nullptr) {
      PseudoGradient(
          absl::MakeConstSpan(anchor_).subspan(subtracted_, values.size()),
          absl::MakeConstSpan(snapshot_).subspan(subtracted_, values.size()),
          values);
    } else {
      for (const FragmentMap::Segment& segment : share_.segments) {
        SubtractResting(segment, values);
      }
    }
    subtracted_ += values.size();
  }

  // Makes the next differences as far as `segment` has them, from the resting
  // parameters themselves.
  void SubtractResting(const FragmentMap::Segment& segment,
                       absl::Span<float> values) const {
    const uint64_t begin = std::max(subtracted_, segment.fragment_offset);
    const uint64_t end = std::min(subtracted_ + values.size(),
                                  segment.fragment_offset + segment.size);
    if (begin >= end) return;
    const uint64_t size = end - begin;
    PseudoGradient(absl::MakeConstSpan(anchor_).subspan(begin, size),
                   absl::MakeConstSpan(resting_ + segment.model_offset + begin -
                                           segment.fragment_offset,
                                       size),
                   values.subspan(begin - subtracted_, size));
  }

  // Returns the next strip to encode. Unless whole_, makes its differences now,
  // so that they are in the cache.
  absl::Span<float> NextStrip() {
    const size_t count =
        std::min(kStripValues, EncodedSize() - encoded_values_);
    if (whole_ || feedback_.is_on()) {
      const absl::Span<float> strip =
          absl::MakeSpan(values_).subspan(encoded_values_, count);
      if (!whole_) Subtract(strip);
      return strip;
    }
    strip_.resize(count);
    Subtract(absl::MakeSpan(strip_));
    return absl::MakeSpan(strip_);
  }

  void EncodeStrip() {
    const absl::Span<float> strip = NextStrip();
    feedback_.Encode(encoded_values_, strip, *encoder_);
    encoded_values_ += strip.size();
    progress_.complete = encoded_values_ == EncodedSize();
    progress_.ready =
        progress_.complete ? encoder_->Finish() : encoder_->ready();
    if (!progress_.complete) return;
    encoder_.reset();
    // With error feedback, values_ holds the error until EndContribution.
    if (!feedback_.is_on()) ReturnValues();
  }

  // Takes memory for the pseudo-gradient, in which an edge has room, too:
  // memory that grew would be too large for the next round.
  void TakeValues() {
    values_ = snapshots_->Take(anchor_.size() +
                               static_cast<size_t>(share_.edge_in()));
    values_.resize(anchor_.size());
  }
  void ReturnValues() { snapshots_->Return(std::exchange(values_, {})); }

  struct Update {
    LargeVector<float> new_anchor;
    // The digest of the new anchor, made while the values were in the cache.
    // Set only if the held values begin the fragment, as a digest must start
    // there.
    std::optional<Digest128Stream> digest;
  };

  void Release(Update& update) {
    snapshots_->Return(std::exchange(update.new_anchor, {}));
    update.digest.reset();
  }

  const FragmentShare share_;
  ReplicaOptions options_;
  SnapshotPool* const snapshots_;
  const MasterCopy copy_;
  // While training waits: a copy of the master's values.
  LargeVector<float> held_;

  LargeVector<float> anchor_;
  LargeVector<float> snapshot_;
  // The master from a snapshot to its update, if its values rest meanwhile.
  const float* resting_ = nullptr;

  // The contribution.
  ErrorFeedback feedback_;
  // The number of values of the pseudo-gradient that were made, and whether
  // values_ has all values to encode.
  size_t subtracted_ = 0;
  bool whole_ = false;
  // The pseudo-gradient. Without error feedback, which needs it later, it
  // passes through strip_ if possible, because writing it to memory takes as
  // long as reading its inputs.
  LargeVector<float> values_;
  std::vector<float> strip_;
  std::unique_ptr<Encoder> encoder_;
  uint64_t encoded_values_ = 0;
  EncodedBytes progress_;

  // The update that is being decoded, and the one that is prepared.
  std::optional<UpdateDecoder> decoder_;
  Update decoded_;
  Update update_;
};

}  // namespace

std::unique_ptr<FragmentPart> MakeHostFragmentPart(
    const FragmentShare& share, const ReplicaOptions& options,
    const float* master, SnapshotPool* snapshots, MasterCopy copy) {
  return std::make_unique<HostFragmentPart>(share, options, master, snapshots,
                                            std::move(copy));
}

}  // namespace causeway
