// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The lossless stage: planes of codes in fewer bytes, near their entropy (of
// order 0: what the frequencies of the codes alone tell). The bytes are those
// of quantization/entropy/rans_table.h and
// quantization/entropy/rans_reference.h, which docs/encodings.md repeats
// for other implementations; they depend on the plane only, not on the machine.
//
// One plane is what one strip of a vector has: kMaxCodePlaneBytes at most.
// Thread-safe.
#ifndef QUANTIZATION_ENTROPY_ENTROPY_CODER_H_
#define QUANTIZATION_ENTROPY_ENTROPY_CODER_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quantization/entropy/rans_table.h"

namespace causeway {

// 65 536 codes of 8 bits.
inline constexpr size_t kMaxCodePlaneBytes = 1 << 16;

// Compresses `codes` to the front of `compressed`, which has at least
// codes.size() bytes and shares none with it. Returns the number of bytes, less
// than codes.size(); or 0 if the plane does not get smaller, with anything in
// `compressed`. A plane of nibbles is whole groups (a multiple of 64 bytes).
size_t CompressCodes(SymbolWidth width, absl::string_view codes,
                     absl::Span<char> compressed);

// Restores the plane, all of `codes`, whose size is known from elsewhere. Takes
// time in proportion to that size whatever the bytes are, and reads and writes
// nothing else. On an error `codes` holds anything.
//   INVALID_ARGUMENT  the bytes are cut off, too many, or were not made by
//                     CompressCodes: bad table, or states that do not end where
//                     the encoder began. Most damage is found so, but not all:
//                     the last symbols of a lane have no others to disagree
//                     with. That is what checksums are for.
absl::Status DecompressCodes(SymbolWidth width, absl::string_view compressed,
                             absl::Span<char> codes);

}  // namespace causeway

#endif  // QUANTIZATION_ENTROPY_ENTROPY_CODER_H_
