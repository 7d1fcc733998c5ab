// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Exact values in fewer bytes: the bytes at one place of each value, a plane,
// are alike even where the values are not. Of fp32 parameters the exponents
// take 3 bits instead of 8. Each plane is compressed by zstd where that makes
// it smaller. docs/encodings.md has the bytes and benchmarks.md what they save.
//
//   std::string compressed = CompressPlanes(bytes, sizeof(float));
//   if (compressed.empty()) ...  // send `bytes` as they are
//   RETURN_IF_ERROR(DecompressPlanes(compressed, sizeof(float), bytes));
//
// Pure functions, thread-safe.
#ifndef COMMON_BYTE_PLANES_H_
#define COMMON_BYTE_PLANES_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace causeway {

// `bytes` are cut into blocks of this many, which are compressed one by one.
inline constexpr size_t kPlanesBlock = 1 << 20;

// Compresses values of `width` bytes each, 1, 2 or 4; the last one may be cut
// off. Empty if the result would not be shorter.
std::string CompressPlanes(absl::string_view bytes, size_t width);

// Restores `bytes`, whose size is known from elsewhere. Takes memory for two
// blocks and time in proportion to the size, whatever `compressed` is.
//   INVALID_ARGUMENT  CompressPlanes did not make `compressed` of so many
//                     bytes. Most damage is found, but not all: that is what
//                     checksums are for. `bytes` hold anything.
absl::Status DecompressPlanes(absl::string_view compressed, size_t width,
                              absl::Span<char> bytes);

}  // namespace causeway

#endif  // COMMON_BYTE_PLANES_H_
