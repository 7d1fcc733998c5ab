// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decodes an update strip by strip while it comes in, and adds it to a copy of
// the anchor. Nothing is applied: until the digests of the encoding and of the
// new anchor have been compared, this is a preparation.
//
//   UpdateDecoder decoder(spec, anchor);
//   RETURN_IF_ERROR(decoder.Advance(received));  // whenever more has come
//   ASSIGN_OR_RETURN(DecodedUpdate update, decoder.Finish());
#ifndef WORKER_SYNC_UPDATE_DECODER_H_
#define WORKER_SYNC_UPDATE_DECODER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checksum.h"
#include "quantization/codec.h"
#include "quantization/strip_scanner.h"

namespace causeway {

struct DecodedUpdate {
  // As decoded.
  std::vector<float> change;
  // The old anchor plus the change, and the Digest128 of it.
  std::vector<float> new_anchor;
  std::string digest;
};

// Not thread-safe.
class UpdateDecoder {
 public:
  // An update of anchor.size() values. `anchor` outlives the decoder and does
  // not change meanwhile; `spec` must pass CheckCodecSpec.
  UpdateDecoder(const CodecSpec& spec, absl::Span<const float> anchor);

  // Decodes the strips that `received`, the encoding as far as it is there, has
  // more of than the last time. After an error the decoder is of no more use.
  //   INVALID_ARGUMENT  as StripScanner.
  absl::Status Advance(absl::string_view received);

  // After all bytes. The decoder is of no more use.
  //   INVALID_ARGUMENT  some are missing.
  absl::StatusOr<DecodedUpdate> Finish();

 private:
  const absl::Span<const float> anchor_;
  StripScanner scanner_;
  uint64_t decoded_strips_ = 0;
  DecodedUpdate update_;
  Digest128Stream digest_;
};

}  // namespace causeway

#endif  // WORKER_SYNC_UPDATE_DECODER_H_
