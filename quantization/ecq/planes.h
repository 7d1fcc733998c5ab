// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The planes of ECQ (quantization/ecq/reference.h): the quantizer is chosen for
// each strip, and the kernels do the rest.
#ifndef QUANTIZATION_ECQ_PLANES_H_
#define QUANTIZATION_ECQ_PLANES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "quantization/block_planes.h"
#include "quantization/encode_options.h"
#include "quantization/strip_planes.h"

namespace causeway {

class EcqPlanes final : public StripPlanes {
 public:
  EcqPlanes(uint32_t block_size, const EncodeOptions& options);

  uint32_t code_bits() const override { return layout_.code_bits(); }
  uint64_t ScaleBytes(uint64_t values) const override {
    return layout_.ScaleBytes(values);
  }
  uint64_t CodeBytes(uint64_t values) const override {
    return layout_.CodeBytes(values);
  }

  // `values` is a whole strip. Returns its shift, in parts of 256.
  uint8_t Encode(uint64_t begin, absl::Span<const float> values, StripPart part,
                 absl::Span<float> decoded) const override;
  void Decode(ConstStripPart part, absl::Span<float> values) const override;
  void DecodeAccumulate(ConstStripPart part, float weight,
                        absl::Span<float> accumulator) const override;
  absl::Status CheckFinite(ConstStripPart part, uint64_t count, uint64_t begin,
                           uint64_t size) const override;

 private:
  const uint32_t block_size_;
  const EncodeOptions options_;
  // Of BlockFormat::kInt8, whose scales and codes lie as these.
  const BlockPlanes layout_;
};

}  // namespace causeway

#endif  // QUANTIZATION_ECQ_PLANES_H_
