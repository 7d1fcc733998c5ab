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
// While the bytes come in: quantization/strip_scanner.h.
//
// Everything that can be wrong with foreign bytes is said by OpenDecoder and
// Decoder::CheckFinite; what follows cannot fail. To add a format, write an
// Encoder and a Decoder and name them in codec.cc; its callers do not change.
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
#include "quantization/encode_options.h"
#include "quantization/strip_index.h"
#include "quantization/strip_layout.h"

namespace causeway {

// What encoder and decoder must agree on.
struct CodecSpec {
  v1::Format format = v1::FP32;
  // Values that share one scale: 64, 128 or 256. Formats without scales carry
  // it along unused.
  uint32_t block_size = 256;
  // Whether codes are entropy coded where that makes them smaller.
  bool entropy_coded = false;

  friend bool operator==(const CodecSpec&, const CodecSpec&) = default;
};

// Pieces of a vector begin at multiples of this many values: whole blocks of
// every size. Encoders may need more: PieceAlignment().
inline constexpr uint64_t kPieceAlignment = 256;

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

// Whether decoding gives back the same bits for every vector.
bool IsLossless(v1::Format format);

// The most bytes that `values` values take; encodings that are not entropy
// coded take exactly so many. `spec` must pass CheckCodecSpec.
uint64_t MaxEncodedBytes(const CodecSpec& spec, uint64_t values);

// The strips of an encoding of `values` values, none of them found yet.
StripIndex NewStripIndex(const CodecSpec& spec, uint64_t values);

// What an encoder's pieces are cut at: kPieceAlignment, or kStripValues if the
// encoding is entropy coded.
uint64_t PieceAlignment(const CodecSpec& spec);

// Encodes one vector, each value once, into a buffer of MaxEncodedBytes. Pieces
// may come in any order, and strips from several threads, each with all of its
// pieces: the bytes are the same.
class Encoder {
 public:
  virtual ~Encoder() = default;

  // Encodes values [begin, begin + values.size()). `begin` is a multiple of
  // PieceAlignment, and so is the end unless it is the vector's. If `decoded`
  // is not empty it has the size of `values` and receives what a decoder will
  // make of them; it may be the same memory as `values`. Total: NaN and
  // infinities are encoded as well as the format can.
  virtual void Encode(uint64_t begin, absl::Span<const float> values,
                      absl::Span<float> decoded) = 0;

  // The first so many bytes of the buffer are final, so that they can be sent
  // while others are encoded: those of the strips before the first one that
  // lacks values. Grows; may be called at any time, from any thread.
  virtual uint64_t ready() const = 0;

  // After all pieces: how many bytes of the buffer the encoding takes.
  virtual uint64_t Finish() = 0;
};

// `spec` and `options` must pass the checks above. `buffer` has
// MaxEncodedBytes(spec, values) bytes and outlives the encoder.
std::unique_ptr<Encoder> NewEncoder(const CodecSpec& spec,
                                    const EncodeOptions& options,
                                    uint64_t values, absl::Span<char> buffer);

// Decodes pieces of one vector; it may keep the strip it read last, so going
// forward is fastest. For one thread at a time.
class DecodeCursor {
 public:
  virtual ~DecodeCursor() = default;

  // Writes values [begin, begin + values.size()); `begin` is a multiple of
  // kPieceAlignment, the end is any. Codes that cannot be decompressed give
  // NaN.
  virtual void Decode(uint64_t begin, absl::Span<float> values) = 0;

  // accumulator[i] += weight * value[begin + i], rounded after the product and
  // after the sum.
  virtual void DecodeAccumulate(uint64_t begin, float weight,
                                absl::Span<float> accumulator) = 0;
};

// Decodes the same pieces of several vectors into their weighted sum. For one
// thread at a time.
class SumCursor {
 public:
  virtual ~SumCursor() = default;

  // Writes sum[i] = 0 + weights[0] * value_0[begin + i] + ..., a weight for
  // each vector, in order, rounded after each product and after each sum;
  // pieces are those of DecodeCursor::Decode.
  virtual void Sum(uint64_t begin, absl::Span<const float> weights,
                   absl::Span<float> sum) = 0;
};

// An opened encoding. Thread-safe.
class Decoder {
 public:
  virtual ~Decoder() = default;

  // Must not outlive the decoder.
  virtual std::unique_ptr<DecodeCursor> NewCursor() const = 0;

  // INVALID_ARGUMENT if a decoded value is infinite or NaN; names the first.
  virtual absl::Status CheckFinite() const = 0;

  // The same and, if all are finite, the sum of their squares in binary64: of
  // each strip by itself, then of the strips in order. The order within a strip
  // depends on the spec and the number of values only.
  virtual absl::StatusOr<double> SumOfSquares() const = 0;
};

// `encoded` is to hold `values` values and must outlive the decoder.
//   INVALID_ARGUMENT  bad spec, a length that is not the encoding's, or strips
//                     that are longer than they can be.
absl::StatusOr<std::unique_ptr<Decoder>> OpenDecoder(const CodecSpec& spec,
                                                     absl::string_view encoded,
                                                     uint64_t values);

// Of decoders of vectors of one length, which outlive it. Fastest if they all
// have the same spec, blocks that are not entropy coded: such sums do not leave
// the registers before they are complete.
std::unique_ptr<SumCursor> NewSumCursor(
    absl::Span<const std::unique_ptr<Decoder>> decoders);

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
