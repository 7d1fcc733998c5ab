// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Encodes vectors of fp32 values and decodes them. docs/encodings.md describes
// the bytes of each format.
//
//   const auto encoder = NewEncoder(spec, options, size, buffer);
//   encoder->Encode(0, pseudo_gradient, {});
//   const uint64_t bytes = encoder->Finish();
//
// The fused outer step walks many encoded vectors side by side in tiles that
// stay in the cache:
//
//   ASSIGN_OR_RETURN(decoders[i], OpenDecoder(spec, encoded[i], size));
//   SumCursor cursor(decoders);  // one per thread
//   for (begin = 0; begin < size; begin += tile.size()) {
//     cursor.Sum(begin, weights, tile);
//   }
//
// quantization/strips/encoding_reader.h decodes while the bytes arrive.
//
// OpenDecoder and Decoder::CheckFinite, or an EncodingReader, report all errors
// in bytes from a peer; decoding cannot fail after that. To add a format, write
// its StripPlanes and name them in codec.cc; callers do not change.
#ifndef QUANTIZATION_CODEC_H_
#define QUANTIZATION_CODEC_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/fragment.pb.h"
#include "quantization/decoder.h"
#include "quantization/strips/encoder.h"
#include "quantization/strips/encoding_reader.h"

namespace causeway {

// The choices that encoder and decoder must agree on.
struct CodecSpec {
  v1::Format format = v1::FP32;
  // The number of values that share one scale: 64, 128 or 256. Formats without
  // scales ignore it.
  uint32_t block_size = 256;
  // Is true if codes are entropy coded where that makes them smaller.
  bool entropy_coded = false;

  // Compares block sizes only where the format has scales.
  friend bool operator==(const CodecSpec& a, const CodecSpec& b);
};

// Checks that the choices exist and fit each other.
//   INVALID_ARGUMENT  unknown format or block size, entropy coding of a format
//                     that has none, or ECQ without entropy coding.
absl::Status CheckCodecSpec(const CodecSpec& spec);

// The bounds of EncodeOptions::ecq_bits.
inline constexpr double kLeastEcqBits = 0.5;
inline constexpr double kMostEcqBits = 8;

// Checks the options of an encoder. `spec` must pass CheckCodecSpec.
//   INVALID_ARGUMENT  with ECQ, ecq_bits that are neither 0 nor 0.5 to 8, or an
//                     ecq_distortion outside [0.0001, 0.9] if ecq_bits is 0.
absl::Status CheckEncodeOptions(const CodecSpec& spec,
                                const EncodeOptions& options);

// Returns whether encoding and decoding keeps all bits of every vector.
bool IsLossless(v1::Format format);

// Returns the most bytes that an encoding of `values` values takes; encodings
// that are not entropy coded take exactly that many. `spec` must pass
// CheckCodecSpec.
uint64_t MaxEncodedBytes(const CodecSpec& spec, uint64_t values);

// Returns the bytes of the decompressed codes of `values` values
// (EncodingReader::KeepCodes); 0 if the encoding does not compress codes.
uint64_t CodeBytes(const CodecSpec& spec, uint64_t values);

// Returns the alignment, in values, of the pieces that an encoder takes:
// kPieceAlignment, or kStripValues if the encoding is entropy coded.
uint64_t PieceAlignment(const CodecSpec& spec);

// Returns an encoder of `values` values. `spec` and `options` must pass the
// checks above. `buffer` has MaxEncodedBytes(spec, values) bytes and outlives
// the encoder.
//
// The values may be whole strips of a longer vector, so that several processes
// each encode a part of it. The concatenation of their encodings equals the
// encoding of the whole vector, bit for bit.
std::unique_ptr<Encoder> NewEncoder(const CodecSpec& spec,
                                    const EncodeOptions& options,
                                    uint64_t values, absl::Span<char> buffer);

// Returns a reader of an encoding of `values` values. `spec` must pass
// CheckCodecSpec.
EncodingReader NewEncodingReader(
    const CodecSpec& spec, uint64_t values,
    EncodingReader::Task task = EncodingReader::Task::kFindStrips);

// Opens an encoding of `values` values. If `codes` are not empty, they are what
// EncodingReader::KeepCodes kept of this encoding, and nothing is decompressed
// again. `encoded` and `codes` must outlive the decoder.
//   INVALID_ARGUMENT  bad spec, `encoded` does not have the length of such an
//                     encoding, or a strip is longer than it can be.
absl::StatusOr<std::unique_ptr<Decoder>> OpenDecoder(
    const CodecSpec& spec, absl::string_view encoded, uint64_t values,
    absl::Span<const char> codes = {});

}  // namespace causeway

#endif  // QUANTIZATION_CODEC_H_
