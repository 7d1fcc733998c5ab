// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decodes encodings that are there as a whole. quantization/codec.h opens them.
#ifndef QUANTIZATION_DECODER_H_
#define QUANTIZATION_DECODER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quantization/strips/encoding_reader.h"
#include "quantization/strips/planes.h"

namespace causeway {

class Decoder;

// Decodes pieces of one vector; it keeps the strip that it read last, so going
// forward is fastest. For one thread at a time. Codes that cannot be
// decompressed give NaN; Decoder::CheckFinite() says what is wrong with them.
class DecodeCursor {
 public:
  // `decoder` outlives the cursor.
  explicit DecodeCursor(const Decoder* decoder) : decoder_(decoder) {}

  // Writes values [begin, begin + values.size()); `begin` is a multiple of
  // kPieceAlignment, the end is any.
  void Decode(uint64_t begin, absl::Span<float> values);

  // accumulator[i] += weight * value[begin + i], rounded after the product and
  // after the sum.
  void DecodeAccumulate(uint64_t begin, float weight,
                        absl::Span<float> accumulator);

 private:
  friend class SumCursor;

  // The strip's planes, until the next call; nothing if they cannot be had.
  const std::optional<ConstStripPart>& Strip(uint64_t strip);
  // Calls visit(part, offset, count) for each strip's part of `count` values
  // from `begin` on; `offset` counts from there.
  template <typename Visitor>
  void ForEachPart(uint64_t begin, uint64_t count, const Visitor& visit);

  const Decoder* const decoder_;
  // The strip that planes_ are of.
  uint64_t strip_ = std::numeric_limits<uint64_t>::max();
  std::optional<ConstStripPart> planes_;
  std::vector<char> codes_;
};

// An opened encoding. Thread-safe.
class Decoder {
 public:
  // `reader` has read all of `encoding`, which outlives the decoder, and found
  // it complete.
  Decoder(EncodingReader reader, absl::string_view encoding)
      : reader_(std::move(reader)), encoding_(encoding) {}

  // Must not outlive the decoder.
  std::unique_ptr<DecodeCursor> NewCursor() const {
    return std::make_unique<DecodeCursor>(this);
  }

  // INVALID_ARGUMENT if a decoded value is infinite or NaN; names the first.
  absl::Status CheckFinite() const;

 private:
  friend class DecodeCursor;
  friend class SumCursor;

  const EncodingReader reader_;
  const absl::string_view encoding_;
};

// Decodes the same pieces of several vectors of one length into their weighted
// sum. For one thread at a time. Fastest if all have the same format and block
// size, in blocks: such sums do not leave the registers before they are
// complete.
class SumCursor {
 public:
  // The decoders outlive the cursor.
  explicit SumCursor(absl::Span<const std::unique_ptr<Decoder>> decoders);

  // Writes sum[i] = 0 + weights[0] * value_0[begin + i] + ..., a weight for
  // each vector, in order, rounded after each product and after each sum;
  // pieces are those of DecodeCursor::Decode.
  void Sum(uint64_t begin, absl::Span<const float> weights,
           absl::Span<float> sum);

 private:
  // The sum of a piece within a strip; false if a vector's part cannot be had.
  bool SumOfPart(uint64_t begin, absl::Span<const float> weights,
                 absl::Span<float> sum);

  std::vector<DecodeCursor> cursors_;
  // The vectors' planes, if they are the same.
  const StripPlanes* planes_ = nullptr;
  // The terms of the part at hand.
  std::vector<WeightedPart> terms_;
};

}  // namespace causeway

#endif  // QUANTIZATION_DECODER_H_
