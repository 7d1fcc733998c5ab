// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "worker/sync/streamed_encoding.h"

#include <utility>

#include "quantization/encoded_object.h"

namespace causeway {

StreamedEncoding::StreamedEncoding(const CodecSpec& spec, uint64_t values,
                                   Encode encode)
    : encode_(std::move(encode)),
      object_(DescribeOpen(spec, values)),
      max_bytes_(MaxEncodedBytes(spec, values)),
      // The memory is not cleared: only bytes that have been written are read.
      buffer_(new char[max_bytes_]) {}

absl::string_view StreamedEncoding::Await(uint64_t bytes) {
  while (progress_.ready < bytes && !complete() && status_.ok()) {
    const absl::StatusOr<EncodedBytes> progress =
        encode_(bytes, absl::MakeSpan(buffer_.get(), max_bytes_));
    status_ = progress.status();
    if (!status_.ok()) break;
    digest_.Update(absl::string_view(buffer_.get() + progress_.ready,
                                     progress->ready - progress_.ready));
    progress_ = *progress;
    if (!complete()) continue;
    object_.set_encoded_bytes(progress_.ready);
    object_.set_digest(digest_.Finish());
  }
  return absl::string_view(buffer_.get(), progress_.ready);
}

}  // namespace causeway
