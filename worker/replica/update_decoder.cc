// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/update_decoder.h"

#include <algorithm>
#include <utility>

#include "common/status_macros.h"
#include "outer_optimizer/mixing.h"
#include "quantization/strips/layout.h"

namespace causeway {

UpdateDecoder::UpdateDecoder(const CodecSpec& spec, uint64_t size,
                             uint64_t begin, absl::Span<const float> anchor,
                             DecodedUpdate memory)
    : begin_(begin),
      anchor_(anchor),
      cover_begin_(begin / kStripValues * kStripValues),
      cover_end_(
          std::min(StripCount(begin + anchor.size()) * kStripValues, size)),
      reader_(NewEncodingReader(spec, cover_end_ - cover_begin_)),
      update_(std::move(memory)) {
  update_.change.resize(anchor.size());
  update_.new_anchor.resize(anchor.size());
  update_.digest.reset();
  if (begin == 0) update_.digest.emplace();
}

absl::Status UpdateDecoder::Advance(absl::string_view received) {
  RETURN_IF_ERROR(reader_.Read(received.substr(reader_.bytes())));
  for (; decoded_strips_ < reader_.complete(); ++decoded_strips_) {
    RETURN_IF_ERROR(DecodeStrip(received, decoded_strips_));
  }
  return absl::OkStatus();
}

absl::Status UpdateDecoder::DecodeStrip(absl::string_view received,
                                        uint64_t strip) {
  const uint64_t strip_begin = cover_begin_ + strip * kStripValues;
  const uint64_t strip_end = std::min(strip_begin + kStripValues, cover_end_);
  // The strip's part of the wanted values.
  const uint64_t begin = std::max(strip_begin, begin_) - begin_;
  const uint64_t end = std::min(strip_end, begin_ + anchor_.size()) - begin_;
  const absl::Span<float> change =
      absl::MakeSpan(update_.change).subspan(begin, end - begin);
  if (change.size() == strip_end - strip_begin) {
    RETURN_IF_ERROR(reader_.DecodeStrip(received, strip, change));
  } else {
    strip_.resize(strip_end - strip_begin);
    RETURN_IF_ERROR(
        reader_.DecodeStrip(received, strip, absl::MakeSpan(strip_)));
    std::copy_n(strip_.data() + (begin_ + begin - strip_begin), change.size(),
                change.data());
  }
  const absl::Span<float> new_anchor =
      absl::MakeSpan(update_.new_anchor).subspan(begin, change.size());
  std::copy_n(anchor_.data() + begin, new_anchor.size(), new_anchor.data());
  Rebase(change, new_anchor);
  if (update_.digest.has_value()) {
    update_.digest->Update(absl::MakeConstSpan(new_anchor));
  }
  return absl::OkStatus();
}

absl::StatusOr<DecodedUpdate> UpdateDecoder::Finish() {
  RETURN_IF_ERROR(reader_.CheckComplete());
  return std::move(update_);
}

}  // namespace causeway
