// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decodes consecutive values of an update, strip by strip as they arrive, and
// adds them to a copy of the anchor. Nothing is applied: the digests of the
// encoding and of the new anchor must be compared first.
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
#include "common/checksum.h"
#include "quantization/codec.h"
#include "quantization/strips/encoding_reader.h"

namespace causeway {

struct DecodedUpdate {
  // The decoded values.
  std::vector<float> change;
  // The old anchor plus the change.
  std::vector<float> new_anchor;
  // The digest of the new anchor, made while the values were in the cache. Set
  // only if the values begin the vector, as a digest must start there.
  std::optional<Digest128Stream> digest;
};

// Not thread-safe.
class UpdateDecoder {
 public:
  // Decodes values [begin, begin + anchor.size()), at least one, of an update
  // of `size` values. `anchor` holds the same values of the anchor; it must
  // outlive the decoder unchanged. `spec` must pass CheckCodecSpec. The update
  // is made in the memory of the vectors of `memory`, as far as it suffices.
  UpdateDecoder(const CodecSpec& spec, uint64_t size, uint64_t begin,
                absl::Span<const float> anchor, DecodedUpdate memory = {});

  // Decodes the strips that are new in `received`: the encoding so far, from
  // the strip with value `begin` up to the one with the last value. After an
  // error the decoder must not be used.
  //   INVALID_ARGUMENT  See EncodingReader.
  absl::Status Advance(absl::string_view received);

  // Returns the update once all bytes are decoded. The decoder must not be used
  // afterwards.
  //   INVALID_ARGUMENT  Some bytes are missing.
  absl::StatusOr<DecodedUpdate> Finish();

 private:
  absl::Status DecodeStrip(absl::string_view received, uint64_t strip);

  const uint64_t begin_;
  const absl::Span<const float> anchor_;
  // The strips that have some of the values cover [cover_begin_, cover_end_).
  const uint64_t cover_begin_;
  const uint64_t cover_end_;
  EncodingReader reader_;
  uint64_t decoded_strips_ = 0;
  // A decoded strip that also has values outside the range.
  std::vector<float> strip_;
  DecodedUpdate update_;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_UPDATE_DECODER_H_
