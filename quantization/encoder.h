// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The interface of encoders, which encode a vector piece by piece.
// quantization/codec.h creates them.
#ifndef QUANTIZATION_ENCODER_H_
#define QUANTIZATION_ENCODER_H_

#include <cstdint>

#include "absl/types/span.h"

namespace causeway {

// Pieces of a vector begin at multiples of this number of values, which is
// whole blocks of every size. Encoders may need a larger one: PieceAlignment()
// of quantization/codec.h.
inline constexpr uint64_t kPieceAlignment = 256;

// Encodes one vector, each value once, into a buffer of MaxEncodedBytes. Pieces
// may come in any order, and strips from several threads as long as all pieces
// of a strip come from one; the bytes are always the same.
class Encoder {
 public:
  virtual ~Encoder() = default;

  // Encodes values [begin, begin + values.size()). `begin` is a multiple of
  // PieceAlignment, and so is the end unless it is the vector's. If `decoded`
  // is not empty, it has the size of `values` and receives the values that a
  // decoder will return; it may be the same memory as `values`. Never fails:
  // NaN and infinities are encoded as well as the format can.
  virtual void Encode(uint64_t begin, absl::Span<const float> values,
                      absl::Span<float> decoded) = 0;

  // Returns how many bytes at the front of the buffer are final, so that they
  // can be sent while others are encoded: the bytes of all strips before the
  // first one that lacks values. The number only grows. Any thread may call
  // this at any time.
  virtual uint64_t ready() const = 0;

  // Returns how many bytes of the buffer the encoding takes. Call it after all
  // pieces.
  virtual uint64_t Finish() = 0;
};

}  // namespace causeway

#endif  // QUANTIZATION_ENCODER_H_
