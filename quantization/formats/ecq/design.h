// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Chooses the quantizer of one strip for ECQ
// (quantization/formats/ecq/reference.h): finds the step that meets a target,
// from a histogram of the strip's values.
//
// Problem: the rate of an entropy-coded quantizer and its error depend on the
// shape of the values' distribution, which changes from layer to layer and
// during training. Encoding by trial would take several passes.
//
// Idea: one histogram of |value| / unit of its block, in narrow bins of equal
// width, gives for every step and offset how often each code occurs, and so the
// entropy. With each value weighted by its block's squared unit, it also gives
// the mean of the values of each code, and so the best shift and the squared
// error. The density within a bin is taken as constant. Bisection on the
// logarithm then finds the step without reading the values again.
//
// Deterministic: the same values give the same quantizer.
#ifndef QUANTIZATION_FORMATS_ECQ_DESIGN_H_
#define QUANTIZATION_FORMATS_ECQ_DESIGN_H_

#include <cstdint>

#include "absl/types/span.h"
#include "quantization/strips/planes.h"

namespace causeway {

struct EcqQuantizer {
  // The step, in units of the blocks.
  double step = 1;
  // The number added before the quotient is cut to an integer.
  float offset = 0.5f;
  // The shift in parts of 256; less than 128.
  uint8_t shift = 0;
};

// Holds what is known of a strip's values before they are quantized.
struct EcqMeasures {
  // Blocks that are not finite count as zeros here.
  double root_mean_square = 0;
  // The EcqUnit() of each block; 0 for blocks that are all zero or not finite.
  absl::Span<const double> units;
  // The largest magnitude of each block.
  absl::Span<const float> absmax;
};

// Chooses the quantizer for a strip with these values and measures.
//
// If options.ecq_bits is not 0, the quantizer has that rate, in bits per value
// of a full strip, including scales, header, table and coder states; otherwise
// it has the distortion options.ecq_distortion. The targets are in the ranges
// of CheckEncodeOptions() (quantization/codec.h). If no step from 2^-5 to 2^5
// meets the target, the nearest is taken. The offset is the better one of 1/2
// and 0.42.
EcqQuantizer ChooseEcqQuantizer(const EncodeOptions& options,
                                uint32_t block_size,
                                absl::Span<const float> values,
                                const EcqMeasures& measures);

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_ECQ_DESIGN_H_
