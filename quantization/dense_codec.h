// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The formats without scales, FP32 and BF16: value i lies at i * (bytes of a
// value), little-endian, and nothing else is in the encoding. Use
// quantization/codec.h, which knows all formats.
#ifndef QUANTIZATION_DENSE_CODEC_H_
#define QUANTIZATION_DENSE_CODEC_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quantization/codec.h"

namespace causeway {

inline constexpr uint64_t kFp32Bytes = 4;
inline constexpr uint64_t kBf16Bytes = 2;

// `buffer` and `encoded` have exactly the bytes that `values` values take.
std::unique_ptr<Encoder> NewFp32Encoder(uint64_t values,
                                        absl::Span<char> buffer);
std::unique_ptr<Encoder> NewBf16Encoder(uint64_t values,
                                        absl::Span<char> buffer);
std::unique_ptr<Decoder> NewFp32Decoder(uint64_t values,
                                        absl::string_view encoded);
std::unique_ptr<Decoder> NewBf16Decoder(uint64_t values,
                                        absl::string_view encoded);

}  // namespace causeway

#endif  // QUANTIZATION_DENSE_CODEC_H_
