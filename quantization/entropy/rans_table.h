// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The frequency table of one plane of codes, which the entropy coder
// (quantization/entropy/rans_reference.h) sends ahead of the codes.
//
// Frequencies are parts of kRansTotal. Symbols are in the order of two's
// complement, from the least: -8 .. 7 as codes 8 .. 15, 0 .. 7, or -128 .. 127
// as codes 128 .. 255, 0 .. 127. In that order neighbours have similar
// frequencies in most formats, so tables are short: each frequency is written
// as its difference from the one before.
//
// Bytes of a table:
//
//   nibbles  1 byte: first + 16 * last, the places (0 .. 15) of the first and
//            last symbol in that order whose frequency is not 0
//   bytes    2 bytes: first, last (0 .. 255)
//   then a string of bits, lowest bit of a byte first, filled up with zeros:
//            for each symbol from first to last, with d the difference of its
//            frequency and the one before (0 before the first),
//            z = d < 0 ? -2 d - 1 : 2 d, as an exponential Golomb code of
//            order k: with v = z + 2^k and n = floor(log2 v), n - k ones, a
//            zero, and the n lowest bits of v, the lowest first. k is 4 at
//            first, then max(0, floor(log2 z)) of the z before.
//
// Measured on 65 536 codes of Gaussian, Laplace and Student-t values, tables
// take 17 to 20 bytes for INT4 and E3M0, 80 to 90 for INT8, and 12 to 36 for
// ECQ.
#ifndef QUANTIZATION_ENTROPY_RANS_TABLE_H_
#define QUANTIZATION_ENTROPY_RANS_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace causeway {

// The width of a plane's symbols; the value is the size of the alphabet.
enum class SymbolWidth : uint32_t {
  // 4-bit codes in groups of 64 bytes, which are 16 little-endian 32-bit words
  // of 8 nibbles each (quantization/formats/block_format.h).
  kNibble = 16,
  // One symbol in each byte.
  kByte = 256,
};

constexpr size_t AlphabetSize(SymbolWidth width) {
  return static_cast<size_t>(width);
}

// Converts a place in the order above to a code, and a code to its place.
constexpr size_t CodeAtPlace(SymbolWidth width, size_t place) {
  return place ^ (AlphabetSize(width) / 2);
}

inline constexpr uint32_t kRansBits = 12;
inline constexpr uint32_t kRansTotal = 1 << kRansBits;

struct RansTable {
  SymbolWidth width = SymbolWidth::kByte;
  // The frequencies by code. Their sum is kRansTotal.
  std::array<uint16_t, 256> frequency = {};
};

// Returns the table for symbols that occur `counts` times: AlphabetSize counts
// by code, at least one of them above 0, with a sum n below 2^32. A symbol that
// occurs gets round(kRansTotal * count / n), halves rounded up, and at least 1.
// Then, as long as the sum is above kRansTotal, the largest frequency loses 1;
// if it is below, the largest gets what is missing. Of equal frequencies the
// first in the order above counts as the largest.
RansTable NormalizedTable(SymbolWidth width, absl::Span<const uint32_t> counts);

// The most bytes that a table takes.
inline constexpr size_t kMaxRansTableBytes = 2 + 256 * 28 / 8;

// Writes `table` to `bytes`, which has room for kMaxRansTableBytes; returns the
// number of bytes.
size_t WriteRansTable(const RansTable& table, char* bytes);

// Reads the table at the front of `bytes` and removes it from there.
//   INVALID_ARGUMENT  `bytes` ends within the table, or holds none that
//                     WriteRansTable could have written.
absl::StatusOr<RansTable> ReadRansTable(SymbolWidth width,
                                        absl::string_view& bytes);

}  // namespace causeway

#endif  // QUANTIZATION_ENTROPY_RANS_TABLE_H_
