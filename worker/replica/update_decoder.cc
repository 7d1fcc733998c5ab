// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/replica/update_decoder.h"

#include <algorithm>

#include "common/status_macros.h"
#include "quantization/strips/layout.h"

namespace causeway {

UpdateDecoder::UpdateDecoder(const CodecSpec& spec, uint64_t size,
                             uint64_t begin, uint64_t count)
    : begin_(begin),
      end_(begin + count),
      cover_begin_(begin / kStripValues * kStripValues),
      cover_end_(std::min(StripCount(begin + count) * kStripValues, size)),
      reader_(NewEncodingReader(spec, cover_end_ - cover_begin_)),
      strip_(std::min(kStripValues, cover_end_ - cover_begin_)) {}

absl::Status UpdateDecoder::Advance(absl::string_view received, Sink sink) {
  RETURN_IF_ERROR(reader_.Read(received.substr(reader_.bytes())));
  for (; decoded_strips_ < reader_.complete(); ++decoded_strips_) {
    const uint64_t strip_begin = cover_begin_ + decoded_strips_ * kStripValues;
    const absl::Span<float> strip = absl::MakeSpan(strip_).subspan(
        0, std::min(kStripValues, cover_end_ - strip_begin));
    RETURN_IF_ERROR(reader_.DecodeStrip(received, decoded_strips_, strip));
    const uint64_t begin = std::max(strip_begin, begin_);
    const uint64_t end = std::min(strip_begin + strip.size(), end_);
    sink(begin - begin_, strip.subspan(begin - strip_begin, end - begin));
  }
  return absl::OkStatus();
}

}  // namespace causeway
