// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Encoders and decoders of the formats with one scale per block, without
// entropy coding: each strip is its scale plane and its code plane
// (quantization/block_format.h). Use quantization/codec.h, which knows all
// formats.
#ifndef QUANTIZATION_BLOCK_CODEC_H_
#define QUANTIZATION_BLOCK_CODEC_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quantization/block_format.h"
#include "quantization/codec.h"

namespace causeway {

// Exactly so many: the rate is fixed.
uint64_t BlockEncodedBytes(BlockFormat format, uint32_t block_size,
                           uint64_t values);

// `buffer` and `encoded` have BlockEncodedBytes and outlive what is returned.
std::unique_ptr<Encoder> NewBlockEncoder(BlockFormat format,
                                         uint32_t block_size,
                                         const EncodeOptions& options,
                                         uint64_t first_value, uint64_t values,
                                         absl::Span<char> buffer);
std::unique_ptr<Decoder> NewBlockDecoder(BlockFormat format,
                                         uint32_t block_size, uint64_t values,
                                         absl::string_view encoded);

// Null unless all of `decoders` are NewBlockDecoder's, for one format, block
// size and length.
std::unique_ptr<SumCursor> NewBlockSumCursor(
    absl::Span<const std::unique_ptr<Decoder>> decoders);

}  // namespace causeway

#endif  // QUANTIZATION_BLOCK_CODEC_H_
