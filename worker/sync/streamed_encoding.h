// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// A vector's encoding, made as far as a reader asks for, so that its beginning
// can be sent while the rest is encoded by one or several ranks
// (worker/replica/fragment_replica.h).
//
//   StreamedEncoding encoding(spec, size, encode);
//   for (offset = 0; encoding.Await(offset + n).size() > offset; ...) {
//     ... send the bytes from offset on ...
//   }
//   RETURN_IF_ERROR(encoding.status());
//   ... send encoding.object(), which is whole now ...
#ifndef WORKER_SYNC_STREAMED_ENCODING_H_
#define WORKER_SYNC_STREAMED_ENCODING_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checksum.h"
#include "proto/fragment.pb.h"
#include "quantization/codec.h"
#include "worker/replica/fragment_part.h"

namespace causeway {

// Not thread-safe.
class StreamedEncoding {
 public:
  // Makes at least `bytes` bytes of `buffer` final, or all of them.
  using Encode = std::function<absl::StatusOr<EncodedBytes>(
      uint64_t bytes, absl::Span<char> buffer)>;

  // Makes the encoding of `values` values. `spec` must pass its check
  // (quantization/codec.h).
  StreamedEncoding(const CodecSpec& spec, uint64_t values, Encode encode);

  // Encodes until at least `bytes` bytes, or all, are final, or the encoding
  // fails. Returns the final bytes, which stay valid as long as owner().
  absl::string_view Await(uint64_t bytes);

  // The error that has ended the encoding; OK if none has.
  const absl::Status& status() const { return status_; }

  // The largest possible size of the encoding.
  uint64_t max_bytes() const { return max_bytes_; }

  bool complete() const { return progress_.complete; }

  // The description of the whole encoding. It is open (IsOpen in
  // quantization/encoded_object.h) until the encoding is complete.
  const v1::EncodedObject& object() const { return object_; }

  std::shared_ptr<const void> owner() const { return buffer_; }

  // The end of the bytes that have been sent once. Only the sender uses it.
  uint64_t sent() const { return sent_; }
  void set_sent(uint64_t end) { sent_ = end; }

 private:
  const Encode encode_;
  v1::EncodedObject object_;
  const uint64_t max_bytes_;
  const std::shared_ptr<char[]> buffer_;
  absl::Status status_;
  EncodedBytes progress_;
  uint64_t sent_ = 0;
  Digest128Stream digest_;
};

}  // namespace causeway

#endif  // WORKER_SYNC_STREAMED_ENCODING_H_
