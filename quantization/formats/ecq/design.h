// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Chooses the quantizer of one strip for ECQ
// (quantization/formats/ecq/reference.h): the step that meets a target, from a
// histogram of the strip's values.
//
// Problem: the rate of an entropy-coded quantizer and its error depend on the
// shape of the values' distribution, which changes from layer to layer and in
// the course of training. Encoding by trial would take several passes.
//
// Idea: one histogram of |value| / unit of its block, in fine bins of equal
// width, says for every step and offset how often each code occurs, hence the
// entropy. With each value weighted by its block's unit squared, it also says
// where the mean of the values of each code lies, hence the best shift, and the
// squared error. Within a bin the density counts as constant. Then a step is
// found by bisection on its logarithm, without touching the values again.
//
// Deterministic: the same values give the same quantizer.
#ifndef QUANTIZATION_FORMATS_ECQ_DESIGN_H_
#define QUANTIZATION_FORMATS_ECQ_DESIGN_H_

#include <cstdint>

#include "absl/types/span.h"
#include "quantization/encode_options.h"

namespace causeway {

struct EcqQuantizer {
  // The step, in units of the blocks.
  double step = 1;
  // The number added before the quotient is cut to an integer.
  float offset = 0.5f;
  // The shift in parts of 256; less than 128.
  uint8_t shift = 0;
};

// The quantizer for a strip with these values and the units (EcqUnit()) of its
// blocks; blocks that are all zero or not finite have unit 0. With
// options.ecq_bits the one of that rate, in bits per value with scales, header,
// table and coder states, of a strip of full length; otherwise the one of
// options.ecq_distortion. The targets are in the ranges of CheckEncodeOptions()
// (quantization/codec.h); if none in the range of steps, 2^-5 to 2^5, meets
// one, the nearest is taken. Of two offsets, 1/2 and 0.42, the better.
EcqQuantizer ChooseEcqQuantizer(const EncodeOptions& options,
                                uint32_t block_size,
                                absl::Span<const float> values,
                                absl::Span<const double> units);

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_ECQ_DESIGN_H_
