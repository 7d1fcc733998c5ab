// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decodes some consecutive values of an update, strip by strip while it comes
// in, and adds them to a copy of the anchor. Nothing is applied: until the
// digests of the encoding and of the new anchor have been compared, this is a
// preparation.
//
//   UpdateDecoder decoder(spec, size, 0, anchor);   // all values
//   RETURN_IF_ERROR(decoder.Advance(received));     // whenever more has come
//   ASSIGN_OR_RETURN(DecodedUpdate update, decoder.Finish());
#ifndef WORKER_REPLICA_UPDATE_DECODER_H_
#define WORKER_REPLICA_UPDATE_DECODER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quantization/codec.h"
#include "quantization/strips/encoding_reader.h"
#include "worker/replica/anchor_digest.h"

namespace causeway {

struct DecodedUpdate {
  // As decoded.
  std::vector<float> change;
  // The old anchor plus the change.
  std::vector<float> new_anchor;
  // Of the new anchor, made while it was in the cache; only if it is the
  // beginning of the vector, without which a digest cannot be begun.
  std::optional<AnchorDigest> digest;
};

// Not thread-safe.
class UpdateDecoder {
 public:
  // Values [begin, begin + anchor.size()), at least one, of an update of `size`
  // values. `anchor` are these values of the anchor; it outlives the decoder
  // and does not change meanwhile. `spec` must pass CheckCodecSpec.
  UpdateDecoder(const CodecSpec& spec, uint64_t size, uint64_t begin,
                absl::Span<const float> anchor);

  // Decodes the strips that `received` has more of than the last time: the
  // encoding, as far as it is there, from the strip with value `begin` up to
  // the one with the last value. After an error the decoder is of no more use.
  //   INVALID_ARGUMENT  as EncodingReader.
  absl::Status Advance(absl::string_view received);

  // After all bytes. The decoder is of no more use.
  //   INVALID_ARGUMENT  some are missing.
  absl::StatusOr<DecodedUpdate> Finish();

 private:
  absl::Status DecodeStrip(absl::string_view received, uint64_t strip);

  const uint64_t begin_;
  const absl::Span<const float> anchor_;
  // Of strips that have some of the values, from this value on.
  const uint64_t cover_begin_;
  const uint64_t cover_end_;
  EncodingReader reader_;
  uint64_t decoded_strips_ = 0;
  // A strip with values of others.
  std::vector<float> strip_;
  DecodedUpdate update_;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_UPDATE_DECODER_H_
