// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Encodes vectors whose strips are their planes side by side: scales, then
// codes. quantization/codec.h creates the encoder that a format needs.
#ifndef QUANTIZATION_STRIPS_PLAIN_ENCODER_H_
#define QUANTIZATION_STRIPS_PLAIN_ENCODER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "quantization/encode_options.h"
#include "quantization/encoder.h"
#include "quantization/strips/planes.h"
#include "quantization/strips/progress.h"

namespace causeway {

class PlainEncoder final : public Encoder {
 public:
  // Encodes `values` values of a vector, from its value `first_value` on.
  // `buffer` has planes.Bytes(values) bytes and outlives the encoder.
  PlainEncoder(const StripPlanes& planes, const EncodeOptions& options,
               uint64_t first_value, uint64_t values, absl::Span<char> buffer);

  void Encode(uint64_t begin, absl::Span<const float> values,
              absl::Span<float> decoded) override;
  uint64_t ready() const override;
  uint64_t Finish() override;

 private:
  // Returns the place of the planes of the values from `value` on.
  StripPart PartAt(uint64_t value) const;

  const StripPlanes& planes_;
  const EncodeOptions options_;
  const uint64_t first_value_;
  const uint64_t values_;
  const absl::Span<char> buffer_;
  StripProgress progress_;
};

}  // namespace causeway

#endif  // QUANTIZATION_STRIPS_PLAIN_ENCODER_H_
