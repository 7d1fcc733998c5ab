// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Encodes some strips of a vector by themselves, as several processes do that
// each have a part of it: their encodings, one after the other, are the
// encoding of the vector, bit for bit.
#ifndef QUANTIZATION_PART_ENCODER_H_
#define QUANTIZATION_PART_ENCODER_H_

#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "quantization/codec.h"

namespace causeway {

// As NewEncoder, of `values` values of a longer vector that begin there at
// `first_value`, a multiple of kStripValues; they are whole strips of it.
// Pieces are counted from the first of these values. `first_value` counts for
// the random numbers of stochastic rounding only.
std::unique_ptr<Encoder> NewPartEncoder(const CodecSpec& spec,
                                        const EncodeOptions& options,
                                        uint64_t first_value, uint64_t values,
                                        absl::Span<char> buffer);

}  // namespace causeway

#endif  // QUANTIZATION_PART_ENCODER_H_
