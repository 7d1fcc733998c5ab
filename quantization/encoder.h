// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// What encodes a vector, piece by piece. quantization/codec.h makes encoders.
#ifndef QUANTIZATION_ENCODER_H_
#define QUANTIZATION_ENCODER_H_

#include <cstdint>

#include "absl/types/span.h"

namespace causeway {

// Pieces of a vector begin at multiples of this many values: whole blocks of
// every size. Encoders may need more: PieceAlignment() of quantization/codec.h.
inline constexpr uint64_t kPieceAlignment = 256;

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

  // Returns how many bytes of the buffer are final, so that they can be sent
  // while others are encoded: those of the strips before the first one that
  // lacks values. The number grows; any thread may ask at any time.
  virtual uint64_t ready() const = 0;

  // After all pieces: how many bytes of the buffer the encoding takes.
  virtual uint64_t Finish() = 0;
};

}  // namespace causeway

#endif  // QUANTIZATION_ENCODER_H_
