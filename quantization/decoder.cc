// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/decoder.h"

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "quantization/strips/layout.h"

namespace causeway {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A piece outside the vector is a bug of our own.
void CheckPiece(uint64_t begin, uint64_t count, uint64_t values) {
  CHECK_EQ(begin % kPieceAlignment, 0u);
  CHECK_LE(begin, values);
  CHECK_LE(count, values - begin);
}

}  // namespace

const std::optional<ConstStripPart>& DecodeCursor::Strip(uint64_t strip) {
  if (strip != strip_) {
    strip_ = strip;
    const absl::Span<const char> kept = decoder_->codes_;
    const absl::StatusOr<ConstStripPart> planes =
        kept.empty()
            ? decoder_->reader_.Open(decoder_->encoding_, strip, codes_)
            : decoder_->reader_.OpenKept(decoder_->encoding_, strip, kept);
    planes_ = planes.ok() ? std::optional(*planes) : std::nullopt;
  }
  return planes_;
}

void DecodeCursor::Decode(uint64_t begin, absl::Span<float> values) {
  const StripPlanes& planes = decoder_->reader_.planes();
  CheckPiece(begin, values.size(), decoder_->reader_.values());
  ForEachStripPart(begin, values.size(), [&](uint64_t at, uint64_t count) {
    const absl::Span<float> piece = values.subspan(at - begin, count);
    const std::optional<ConstStripPart>& strip = Strip(at / kStripValues);
    if (strip.has_value()) {
      planes.Decode(planes.PartFrom(*strip, at % kStripValues), piece);
    } else {
      absl::c_fill(piece, kNan);
    }
  });
}

absl::Status Decoder::CheckFinite() const {
  for (uint64_t strip = 0; strip < reader_.strips(); ++strip) {
    RETURN_IF_ERROR(reader_.CheckStrip(encoding_, strip));
  }
  return absl::OkStatus();
}

SumCursor::SumCursor(absl::Span<const std::unique_ptr<Decoder>> decoders)
    : terms_(decoders.size()) {
  for (const std::unique_ptr<Decoder>& decoder : decoders) {
    cursors_.emplace_back(decoder.get());
  }
  const bool same = absl::c_all_of(decoders, [&](const auto& decoder) {
    return &decoder->reader_.planes() == &decoders[0]->reader_.planes();
  });
  if (same && !decoders.empty()) planes_ = &decoders[0]->reader_.planes();
}

void SumCursor::Sum(uint64_t begin, absl::Span<const float> weights,
                    absl::Span<float> sum) {
  CHECK(can_sum());
  CHECK_EQ(weights.size(), cursors_.size());
  CheckPiece(begin, sum.size(), cursors_[0].decoder_->reader_.values());
  ForEachStripPart(begin, sum.size(), [&](uint64_t at, uint64_t count) {
    const absl::Span<float> piece = sum.subspan(at - begin, count);
    if (!SumOfPart(at, weights, piece)) absl::c_fill(piece, kNan);
  });
}

bool SumCursor::SumOfPart(uint64_t begin, absl::Span<const float> weights,
                          absl::Span<float> sum) {
  const uint64_t in_strip = begin % kStripValues;
  const uint64_t scale_bytes = planes_->ScaleBytes(in_strip);
  const uint64_t code_bytes = planes_->CodeBytes(in_strip);
  for (size_t i = 0; i < cursors_.size(); ++i) {
    const std::optional<ConstStripPart>& strip =
        cursors_[i].Strip(begin / kStripValues);
    if (!strip.has_value()) return false;
    terms_[i] = {.part = {.scales = strip->scales + scale_bytes,
                          .codes = strip->codes + code_bytes,
                          .parameter = strip->parameter},
                 .weight = weights[i]};
  }
  planes_->DecodeSum(terms_, sum);
  return true;
}

}  // namespace causeway
