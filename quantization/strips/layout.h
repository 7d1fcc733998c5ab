// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Divides encoded vectors into strips.
//
// A strip is 65 536 consecutive values; the last one of a vector may be
// shorter. The encoding of a vector is the concatenation of its strips'
// encodings. A strip's encoding depends only on its own values. So, in every
// format, different threads can encode and decode strips, even while the bytes
// of others are in transit.
//
// In formats of a fixed rate all strips but the last take the same number of
// bytes. Entropy-coded strips begin with a header of 4 bytes, a little-endian
// number (docs/encodings.md):
//
//   bits 0 .. 23   bytes of the strip after the header
//   bits 24 .. 30  the format's parameter; 0 if it has none
//   bit 31         whether the codes are compressed
#ifndef QUANTIZATION_STRIPS_LAYOUT_H_
#define QUANTIZATION_STRIPS_LAYOUT_H_

#include <algorithm>
#include <cstdint>

namespace causeway {

inline constexpr uint64_t kStripValues = 65536;

// Pieces of a vector begin at multiples of this number of values, which is
// whole blocks of every size. Encoders may need a larger alignment:
// PieceAlignment() of quantization/codec.h.
inline constexpr uint64_t kPieceAlignment = 256;

// Returns the number of strips of a vector of `values` values.
constexpr uint64_t StripCount(uint64_t values) {
  return values / kStripValues + (values % kStripValues != 0);
}

// Returns the number of values in strip `strip` of a vector of `values` values;
// `strip` is less than StripCount(values).
constexpr uint64_t ValuesOfStrip(uint64_t strip, uint64_t values) {
  return std::min(kStripValues, values - strip * kStripValues);
}

// Calls visit(begin, count) for each strip's share of values [begin,
// begin + count).
template <typename Visitor>
void ForEachStripPart(uint64_t begin, uint64_t count, const Visitor& visit) {
  const uint64_t end = begin + count;
  while (begin < end) {
    const uint64_t part =
        std::min(end - begin, kStripValues - begin % kStripValues);
    visit(begin, part);
    begin += part;
  }
}

// The header of an entropy-coded strip.
struct StripHeader {
  static constexpr uint64_t kBytes = 4;

  // The bytes after the header; less than 2^24.
  uint32_t bytes = 0;
  // Less than 2^7.
  uint8_t parameter = 0;
  bool compressed = false;

  friend bool operator==(const StripHeader&, const StripHeader&) = default;
};

// Converts a header to and from kBytes bytes. Any four bytes are a header.
void WriteStripHeader(const StripHeader& header, char* bytes);
StripHeader ReadStripHeader(const char* bytes);

}  // namespace causeway

#endif  // QUANTIZATION_STRIPS_LAYOUT_H_
