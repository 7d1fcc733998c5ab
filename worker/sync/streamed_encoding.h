// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One vector's encoding, made as far as somebody wants to read, so that its
// beginning can be sent while the rest is encoded. Who encodes is somebody
// else's affair: one rank, or several (worker/replica/fragment_replica.h).
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
  // Makes at least `bytes` bytes of `buffer` final, or all there are.
  using Encode = std::function<absl::StatusOr<EncodedBytes>(
      uint64_t bytes, absl::Span<char> buffer)>;

  // Of `values` values. `spec` must pass its check (quantization/codec.h).
  StreamedEncoding(const CodecSpec& spec, uint64_t values, Encode encode);

  // Encodes until at least `bytes` bytes are final, or all there are, or it has
  // failed. Returns the final bytes, which owner() keeps where they are.
  absl::string_view Await(uint64_t bytes);

  // Why no more is encoded; OK while it is.
  const absl::Status& status() const { return status_; }

  // The most bytes there can be.
  uint64_t max_bytes() const { return max_bytes_; }

  bool complete() const { return progress_.complete; }

  // Of the whole encoding; open (IsOpen in quantization/encoded_object.h) until
  // it is complete.
  const v1::EncodedObject& object() const { return object_; }

  std::shared_ptr<const void> owner() const { return buffer_; }

  // For the sender's own use: how far the bytes have been sent once.
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
  // Of the bytes that are final.
  Digest128Stream digest_;
};

}  // namespace causeway

#endif  // WORKER_SYNC_STREAMED_ENCODING_H_
