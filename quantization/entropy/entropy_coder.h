// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The lossless stage: compresses planes of codes to nearly their entropy of
// order 0, which the frequencies of the codes alone determine.
// quantization/entropy/rans_table.h and quantization/entropy/rans_reference.h
// define the bytes, and docs/encodings.md repeats them for other
// implementations; they depend only on the plane, not on the machine.
//
// A plane belongs to one strip of a vector and has at most kMaxCodePlaneBytes.
// Thread-safe.
#ifndef QUANTIZATION_ENTROPY_ENTROPY_CODER_H_
#define QUANTIZATION_ENTROPY_ENTROPY_CODER_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quantization/entropy/rans_table.h"

namespace causeway {

// The bytes of 65 536 codes of 8 bits.
inline constexpr size_t kMaxCodePlaneBytes = 1 << 16;

// Compresses `codes` to the front of `compressed`, which has at least
// codes.size() bytes and does not overlap `codes`. Returns the number of bytes,
// less than codes.size(), or 0 if the plane does not get smaller; `compressed`
// is then unspecified. A plane of nibbles is whole groups (a multiple of 64
// bytes).
size_t CompressCodes(SymbolWidth width, absl::string_view codes,
                     absl::Span<char> compressed);

// Restores the whole plane to `codes`, whose size the caller knows. For any
// bytes, takes time in proportion to that size, and stays within the two
// arrays. On an error `codes` is unspecified.
//   INVALID_ARGUMENT  the bytes are cut off, too many, or were not made by
//                     CompressCodes: the table is bad, or the states do not end
//                     where the encoder began. Checksums must find the
//                     remaining damage, such as in the last symbols of a lane.
absl::Status DecompressCodes(SymbolWidth width, absl::string_view compressed,
                             absl::Span<char> codes);

}  // namespace causeway

#endif  // QUANTIZATION_ENTROPY_ENTROPY_CODER_H_
