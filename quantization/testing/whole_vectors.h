// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Encodes and decodes whole vectors at once. Decode and DecodeAccumulate also
// refuse encodings with values that are not finite, and do not change their
// output on errors.
//   INVALID_ARGUMENT  as CheckCodecSpec, CheckEncodeOptions, OpenDecoder and
//                     Decoder::CheckFinite.
#ifndef QUANTIZATION_TESTING_WHOLE_VECTORS_H_
#define QUANTIZATION_TESTING_WHOLE_VECTORS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checksum.h"
#include "common/status_macros.h"
#include "proto/fragment.pb.h"
#include "quantization/codec.h"
#include "quantization/encoded_object.h"
#include "quantization/formats/dense_reference.h"

namespace causeway {

inline absl::StatusOr<std::string> Encode(const CodecSpec& spec,
                                          absl::Span<const float> values,
                                          const EncodeOptions& options = {}) {
  RETURN_IF_ERROR(CheckCodecSpec(spec));
  RETURN_IF_ERROR(CheckEncodeOptions(spec, options));
  std::string encoded(MaxEncodedBytes(spec, values.size()), '\0');
  const std::unique_ptr<Encoder> encoder =
      NewEncoder(spec, options, values.size(), absl::MakeSpan(encoded));
  encoder->Encode(0, values, {});
  encoded.resize(encoder->Finish());
  return encoded;
}

inline absl::Status Decode(const CodecSpec& spec, absl::string_view encoded,
                           absl::Span<float> values) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                   OpenDecoder(spec, encoded, values.size()));
  RETURN_IF_ERROR(decoder->CheckFinite());
  decoder->NewCursor()->Decode(0, values);
  return absl::OkStatus();
}

inline absl::Status DecodeAccumulate(const CodecSpec& spec,
                                     absl::string_view encoded, float weight,
                                     absl::Span<float> accumulator) {
  std::vector<float> values(accumulator.size());
  RETURN_IF_ERROR(Decode(spec, encoded, absl::MakeSpan(values)));
  for (size_t i = 0; i < values.size(); ++i) {
    accumulator[i] = Accumulate(accumulator[i], weight, values[i]);
  }
  return absl::OkStatus();
}

// Describes `encoded`, which holds `values` values encoded by `spec`.
inline v1::EncodedObject DescribeEncoding(const CodecSpec& spec,
                                          uint64_t values,
                                          absl::string_view encoded) {
  v1::EncodedObject object = DescribeOpen(spec, values);
  object.set_encoded_bytes(encoded.size());
  object.set_digest(Digest128(encoded));
  return object;
}

}  // namespace causeway

#endif  // QUANTIZATION_TESTING_WHOLE_VECTORS_H_
