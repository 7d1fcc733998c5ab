// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// ECQ, the format whose codes are meant to be entropy coded: a uniform
// quantizer with one step, a bfloat16, for each block of 64, 128 or 256 values.
// This is its arithmetic, one value at a time: the reference that the kernels
// (quantization/formats/ecq/kernels_cpu.h) must equal bit for bit.
//
// A code k is a signed byte, and decodes to
//
//   0                                    if k is 0
//   sign(k) * (|k| - shift) * scale      otherwise, exact in binary32
//
// with the scale of the block and the shift of the strip, a multiple of 1 / 256
// below 1/2. Densities fall off from zero, so the mean of a code's values is
// nearer to zero than the middle between the thresholds.
//
// The encoder is free to choose scales, shift and thresholds. This one takes
//
//   scale = step * sqrt(root mean square of the block *
//                       root mean square of the strip)
//   |k|   = floor(|value| / scale + offset)
//
// with one step and one offset, at most 1/2, for the strip, which
// quantization/formats/ecq/design.h chooses. Scales in proportion to the
// block's root mean square alone would spend bits on blocks that hardly matter
// for the whole error. One scale for all blocks would mix the codes of quiet
// and loud blocks, which costs the entropy coder bits. On pseudo-gradients of
// real runs the geometric mean needs the fewest bits at equal error
// (docs/numerics.md has the figures).
//
// Scales and codes have the layout of BlockFormat::kInt8
// (quantization/formats/block_format.h), and the same scales are refused. The
// strip's parameter (quantization/strips/layout.h) is 256 * shift.
#ifndef QUANTIZATION_FORMATS_ECQ_REFERENCE_H_
#define QUANTIZATION_FORMATS_ECQ_REFERENCE_H_

#include <cstdint>

namespace causeway {

// Codes are -127 .. 127. -128 is never written, but decodes like any other
// code.
inline constexpr int kEcqTopCode = 127;

// Returns the unit of a block's scale: sqrt(RMS of the block * RMS of the
// strip), from the two mean squares, in binary64 with each operation rounded.
// Returns 0 if either is 0.
double EcqUnit(double block_mean_square, double strip_mean_square);

// Returns the scale, a bfloat16 code, of a block with this unit and largest
// magnitude: the product of step and unit rounded to binary32 and then to the
// nearest even bfloat16, but not below BlockScale<kInt8, true>(absmax), so that
// no value exceeds the top code. It is 0 if it would be below kSmallestScale,
// and at most LargestScale(kInt8). If absmax is infinite or NaN, returns
// kInfiniteScale or kNanScale.
uint16_t EcqScale(double step, double unit, float absmax);

// Returns floor(|value| * (1 / scale) + offset), each operation rounded to
// binary32, at most kEcqTopCode, with the value's sign; 0 if the scale is 0 or
// not finite. `offset` is in [0, 1/2].
int8_t EcqCode(uint16_t scale, float offset, float value);

// Returns the value of `code`; `shift` is in parts of 256.
float EcqValue(uint16_t scale, uint8_t shift, int8_t code);

}  // namespace causeway

#endif  // QUANTIZATION_FORMATS_ECQ_REFERENCE_H_
