// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compresses exact values. A plane holds the bytes at one place of every value.
// These are similar even if the values are not: the exponents of fp32
// parameters, for example, take 3 bits instead of 8. zstd compresses each plane
// that it makes smaller. docs/encodings.md specifies the bytes, and
// docs/benchmarks.md says what they save.
//
//   std::string compressed = CompressPlanes(bytes, sizeof(float));
//   if (compressed.empty()) ...  // send `bytes` as they are
//   RETURN_IF_ERROR(DecompressPlanes(compressed, sizeof(float), bytes));
//
// All functions are pure and thread-safe.
#ifndef COMMON_TENSORS_BYTE_PLANES_H_
#define COMMON_TENSORS_BYTE_PLANES_H_

#include <cstddef>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace causeway {

// The size of the blocks that are compressed one by one, in bytes.
inline constexpr size_t kPlanesBlock = 1 << 20;

// Compresses values of `width` bytes each, 1, 2 or 4; the last value may be cut
// off. Returns an empty string if the result would not be shorter.
std::string CompressPlanes(absl::string_view bytes, size_t width);

// Compresses like CompressPlanes, on `threads` threads, and passes the result
// to `sink` in pieces, in order, while it makes others. The result may be
// longer than `bytes`, by 4 bytes for each plane of a block. Returns the first
// error of `sink`, which is not called again then.
absl::Status StreamPlanes(
    absl::string_view bytes, size_t width, int threads,
    absl::FunctionRef<absl::Status(absl::string_view)> sink);

// Restores `bytes`, whose size the caller knows. For any `compressed`, takes
// memory for two blocks and time in proportion to the size.
//   INVALID_ARGUMENT  CompressPlanes cannot have made `compressed` from that
//                     many bytes. Only a checksum finds all damage. The
//                     content of `bytes` is undefined.
absl::Status DecompressPlanes(absl::string_view compressed, size_t width,
                              absl::Span<char> bytes);

}  // namespace causeway

#endif  // COMMON_TENSORS_BYTE_PLANES_H_
