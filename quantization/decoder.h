// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decodes complete encodings. quantization/codec.h opens them.
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

// Decodes pieces of one vector. It keeps the strip that it read last, so going
// forward is fastest. Codes that cannot be decompressed decode to NaN;
// Decoder::CheckFinite() returns their error. One thread at a time may use it.
class DecodeCursor {
 public:
  // `decoder` outlives the cursor.
  explicit DecodeCursor(const Decoder* decoder) : decoder_(decoder) {}

  // Decodes values [begin, begin + values.size()). `begin` is a multiple of
  // kPieceAlignment; the end may be anywhere.
  void Decode(uint64_t begin, absl::Span<float> values);

 private:
  friend class SumCursor;

  // Returns the strip's planes, valid until the next call, or nothing if they
  // cannot be decompressed.
  const std::optional<ConstStripPart>& Strip(uint64_t strip);

  const Decoder* const decoder_;
  // The strip whose planes planes_ holds.
  uint64_t strip_ = std::numeric_limits<uint64_t>::max();
  std::optional<ConstStripPart> planes_;
  std::vector<char> codes_;
};

// An opened encoding. Thread-safe.
class Decoder {
 public:
  // `reader` has read all of `encoding` and found it complete. `codes` are as
  // for OpenDecoder. Both outlive the decoder.
  Decoder(EncodingReader reader, absl::string_view encoding,
          absl::Span<const char> codes)
      : reader_(std::move(reader)), encoding_(encoding), codes_(codes) {}

  // Returns a cursor, which must not outlive the decoder.
  std::unique_ptr<DecodeCursor> NewCursor() const {
    return std::make_unique<DecodeCursor>(this);
  }

  // Checks all values; the error names the first bad one.
  //   INVALID_ARGUMENT  a decoded value is infinite or NaN.
  absl::Status CheckFinite() const;

 private:
  friend class DecodeCursor;
  friend class SumCursor;

  const EncodingReader reader_;
  const absl::string_view encoding_;
  const absl::Span<const char> codes_;
};

// Decodes the same pieces of several vectors of one length into their weighted
// sum. Sums of block formats stay in registers until they are complete. One
// thread at a time may use it.
class SumCursor {
 public:
  // The decoders outlive the cursor.
  explicit SumCursor(absl::Span<const std::unique_ptr<Decoder>> decoders);

  // Returns whether there are vectors, all of one format and block size.
  bool can_sum() const { return planes_ != nullptr; }

  // Writes sum[i] = 0 + weights[0] * value_0[begin + i] + ..., with one weight
  // for each vector, in order, rounded after each product and after each sum.
  // Pieces are as for DecodeCursor::Decode. Requires can_sum().
  void Sum(uint64_t begin, absl::Span<const float> weights,
           absl::Span<float> sum);

 private:
  // Writes the sum of a piece within one strip. Returns false if a vector's
  // part cannot be decompressed.
  bool SumOfPart(uint64_t begin, absl::Span<const float> weights,
                 absl::Span<float> sum);

  std::vector<DecodeCursor> cursors_;
  // The planes that all vectors use, or null if they differ or there are none.
  const StripPlanes* planes_ = nullptr;
  // The terms of the current part.
  std::vector<WeightedPart> terms_;
};

}  // namespace causeway

#endif  // QUANTIZATION_DECODER_H_
