// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Encoders and decoders of entropy-coded vectors, for every format whose strips
// are planes (quantization/strip_planes.h): each strip is its header
// (quantization/strip_layout.h), its scale plane, and its code plane,
// compressed (quantization/entropy/entropy_coder.h) if that makes it smaller.
// Use quantization/codec.h, which knows all formats.
#ifndef QUANTIZATION_ENTROPY_CODEC_H_
#define QUANTIZATION_ENTROPY_CODEC_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quantization/codec.h"
#include "quantization/strip_index.h"
#include "quantization/strip_planes.h"

namespace causeway {

// `buffer` has, for each strip, its header and planes; it outlives the encoder.
// Strips that come in order are written where they stay; others wait in their
// place of a buffer in which nothing is compressed.
std::unique_ptr<Encoder> NewEntropyEncoder(std::unique_ptr<StripPlanes> planes,
                                           uint64_t values,
                                           absl::Span<char> buffer);

// `strips` has found all strips of `encoded`, which outlives the decoder.
// Cursors keep the codes of the strip that they read last.
std::unique_ptr<Decoder> NewEntropyDecoder(std::unique_ptr<StripPlanes> planes,
                                           uint64_t values, StripIndex strips,
                                           absl::string_view encoded);

}  // namespace causeway

#endif  // QUANTIZATION_ENTROPY_CODEC_H_
