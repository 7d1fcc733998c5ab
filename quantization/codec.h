// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Vectors of fp32 values to encoded bytes and back. docs/encodings.md gives the
// bytes of each format.
//
// A whole vector at once:
//
//   ASSIGN_OR_RETURN(std::string encoded, Encode(spec, pseudo_gradient));
//   RETURN_IF_ERROR(Decode(spec, encoded, absl::MakeSpan(values)));
//
// In pieces, as the fused outer step does, which walks many encoded vectors
// side by side in tiles that stay in the cache:
//
//   ASSIGN_OR_RETURN(auto decoder, OpenDecoder(spec, encoded, size));
//   auto cursor = decoder->NewCursor();  // one per thread
//   for (begin = 0; begin < size; begin += tile.size()) {
//     cursor->DecodeAccumulate(begin, weight, tile);
//   }
//
// While the bytes come in: quantization/strips/encoding_reader.h.
//
// OpenDecoder and Decoder::CheckFinite, or an EncodingReader, say everything
// that can be wrong with foreign bytes; what follows cannot fail. To add a
// format, write its StripPlanes and name them in codec.cc; callers do not
// change.
#ifndef QUANTIZATION_CODEC_H_
#define QUANTIZATION_CODEC_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/fragment.pb.h"
#include "quantization/decoder.h"
#include "quantization/encode_options.h"
#include "quantization/encoder.h"
#include "quantization/strips/encoding_reader.h"

namespace causeway {

// The choices that encoder and decoder must agree on.
struct CodecSpec {
  v1::Format format = v1::FP32;
  // Values that share one scale: 64, 128 or 256. Formats without scales carry
  // it along unused.
  uint32_t block_size = 256;
  // Whether codes are entropy coded where that makes them smaller.
  bool entropy_coded = false;

  friend bool operator==(const CodecSpec&, const CodecSpec&) = default;
};

// INVALID_ARGUMENT: unknown format, a block size that is none of the three,
// entropy coding of a format that has none, or none for ECQ.
absl::Status CheckCodecSpec(const CodecSpec& spec);

// `spec` must pass CheckCodecSpec.
//   INVALID_ARGUMENT  stochastic rounding in a format that has none (FP32,
//                     BF16, ECQ); with ECQ, ecq_bits that are neither 0 nor
//                     0.5 to 8, or an ecq_distortion, if that decides, outside
//                     [0.0001, 0.9].
absl::Status CheckEncodeOptions(const CodecSpec& spec,
                                const EncodeOptions& options);

// Returns whether decoding gives back the same bits for every vector.
bool IsLossless(v1::Format format);

// Returns the most bytes that `values` values take; encodings that are not
// entropy coded take exactly so many. `spec` must pass CheckCodecSpec.
uint64_t MaxEncodedBytes(const CodecSpec& spec, uint64_t values);

// Returns the multiple that an encoder's pieces begin at: kPieceAlignment, or
// kStripValues if the encoding is entropy coded.
uint64_t PieceAlignment(const CodecSpec& spec);

// Encodes `values` values by `spec` and `options`, which must pass the checks
// above, into `buffer` of MaxEncodedBytes(spec, values) bytes, which outlives
// the encoder.
//
// The values may be whole strips of a longer vector, where the first is value
// `first_value`, a multiple of kStripValues: several processes may encode a
// part of it each. Their encodings, one after the other, are the encoding of
// the vector, bit for bit.
std::unique_ptr<Encoder> NewEncoder(const CodecSpec& spec,
                                    const EncodeOptions& options,
                                    uint64_t values, absl::Span<char> buffer,
                                    uint64_t first_value = 0);

// Reads an encoding of `values` values; `spec` must pass CheckCodecSpec.
EncodingReader NewEncodingReader(
    const CodecSpec& spec, uint64_t values,
    EncodingReader::Task task = EncodingReader::Task::kFindStrips);

// `encoded` is to hold `values` values and must outlive the decoder.
//   INVALID_ARGUMENT  bad spec, a length that is not the encoding's, or strips
//                     that are longer than they can be.
absl::StatusOr<std::unique_ptr<Decoder>> OpenDecoder(const CodecSpec& spec,
                                                     absl::string_view encoded,
                                                     uint64_t values);

// Whole vectors. The last two also refuse encodings with values that are not
// finite, and leave their output as it was on any error.
//   INVALID_ARGUMENT  as the checks above, OpenDecoder and CheckFinite.
absl::StatusOr<std::string> Encode(const CodecSpec& spec,
                                   absl::Span<const float> values,
                                   const EncodeOptions& options = {});
absl::Status Decode(const CodecSpec& spec, absl::string_view encoded,
                    absl::Span<float> values);
absl::Status DecodeAccumulate(const CodecSpec& spec, absl::string_view encoded,
                              float weight, absl::Span<float> accumulator);

}  // namespace causeway

#endif  // QUANTIZATION_CODEC_H_
