// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// One vector's encoding, made strip by strip as far as somebody wants to read,
// so that its beginning can be sent while the rest is encoded.
//
//   StreamedEncoding encoding(spec, options, std::move(values));
//   for (offset = 0; encoding.Await(offset + n).size() > offset; ...) {
//     ... send the bytes from offset on ...
//   }
//   ... send encoding.object(), which is whole now ...
#ifndef WORKER_SYNC_STREAMED_ENCODING_H_
#define WORKER_SYNC_STREAMED_ENCODING_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/checksum.h"
#include "proto/fragment.pb.h"
#include "quantization/codec.h"
#include "quantization/error_feedback.h"

namespace causeway {

// Not thread-safe.
class StreamedEncoding {
 public:
  // `spec` and `options` must pass their checks (quantization/codec.h).
  // `feedback` may be null; otherwise its error is encoded, too, and it
  // outlives the encoding.
  StreamedEncoding(const CodecSpec& spec, const EncodeOptions& options,
                   std::vector<float> values,
                   ErrorFeedback* feedback = nullptr);

  // Encodes until at least `bytes` bytes are final, or all there are. Returns
  // the final bytes, which owner() keeps where they are.
  absl::string_view Await(uint64_t bytes);

  // The most bytes there can be.
  uint64_t max_bytes() const { return max_bytes_; }

  bool complete() const { return encoder_ == nullptr; }

  // Of the whole encoding; open (IsOpen in quantization/encoded_object.h) until
  // it is complete.
  const v1::EncodedObject& object() const { return object_; }

  std::shared_ptr<const void> owner() const { return buffer_; }

  // For the sender's own use: how far the bytes have been sent once.
  uint64_t sent() const { return sent_; }
  void set_sent(uint64_t end) { sent_ = end; }

  // Once it is complete: with feedback the error to set when what was encoded
  // has been merged, else memory to be used again. Can be taken once.
  std::vector<float> TakeValues() { return std::move(values_); }

 private:
  void EncodeStrip();

  ErrorFeedback* const feedback_;
  // With feedback, what is encoded has become its error.
  std::vector<float> values_;
  uint64_t encoded_values_ = 0;
  v1::EncodedObject object_;
  const uint64_t max_bytes_;
  const std::shared_ptr<char[]> buffer_;
  // Null once all is encoded.
  std::unique_ptr<Encoder> encoder_;
  uint64_t ready_ = 0;
  uint64_t sent_ = 0;
  // Of the first ready_ bytes.
  Digest128Stream digest_;
};

}  // namespace causeway

#endif  // WORKER_SYNC_STREAMED_ENCODING_H_
