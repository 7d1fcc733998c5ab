// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/streamed_encoding.h"

#include <utility>

#include "absl/types/span.h"
#include "quantization/encoded_object.h"
#include "quantization/strip_layout.h"

namespace causeway {

StreamedEncoding::StreamedEncoding(const CodecSpec& spec,
                                   const EncodeOptions& options,
                                   std::vector<float> values,
                                   ErrorFeedback* feedback)
    : feedback_(feedback),
      values_(std::move(values)),
      object_(DescribeOpen(spec, values_.size())),
      max_bytes_(MaxEncodedBytes(spec, values_.size())),
      // Not cleared: every byte that is read has been written.
      buffer_(new char[max_bytes_]),
      encoder_(NewEncoder(spec, options, values_.size(),
                          absl::MakeSpan(buffer_.get(), max_bytes_))) {}

absl::string_view StreamedEncoding::Await(uint64_t bytes) {
  while (ready_ < bytes && !complete()) EncodeStrip();
  return absl::string_view(buffer_.get(), ready_);
}

void StreamedEncoding::EncodeStrip() {
  const absl::Span<float> strip =
      absl::MakeSpan(values_).subspan(encoded_values_, kStripValues);
  if (feedback_ != nullptr) {
    feedback_->Encode(encoded_values_, strip, *encoder_);
  } else {
    encoder_->Encode(encoded_values_, strip, {});
  }
  encoded_values_ += strip.size();
  const bool last = encoded_values_ == values_.size();
  const uint64_t ready = last ? encoder_->Finish() : encoder_->ready();
  digest_.Update(absl::string_view(buffer_.get() + ready_, ready - ready_));
  ready_ = ready;
  if (!last) return;
  object_.set_encoded_bytes(ready);
  object_.set_digest(digest_.Finish());
  encoder_.reset();
}

}  // namespace causeway
