// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The entropy coder of code planes, one symbol at a time: the reference that
// the kernels (quantization/entropy/rans_kernels_cpu.h) must equal byte for
// byte.
//
// A range asymmetric numeral system (J. Duda, arXiv 1311.2540), interleaved as
// in F. Giesen, "Interleaved entropy coders", arXiv 1402.3392: kRansLanes
// separate coders share one frequency table and one stream of words, so that
// vectors and GPU warps can work on all of them at once. The states have 32
// bits, are kRansLowerBound or more between symbols, and change by 16-bit
// words.
//
// Steps and lanes. A step has one symbol for each of the lanes 0 .. 31:
//
//   bytes    step t, lane l: byte 32 t + l. The last step ends with the plane;
//            the lanes after it have no symbol.
//   nibbles  a pair of groups has 8 steps. Step 8 p + r, lane l: nibble r (bits
//            4 r .. 4 r + 3) of word l of group 2 p if l < 16, of word l - 16
//            of group 2 p + 1 otherwise. If there is no such group the lane has
//            no symbol.
//
// With f the symbol's frequency and c the sum of the frequencies of the symbols
// before it in the table's order, a lane with state x decodes a symbol by
//
//   slot = x mod 4096; the symbol is the one with c <= slot < c + f
//   x = f * floor(x / 4096) + slot - c
//   if x < kRansLowerBound: x = 65536 x + the next word
//
// Lanes 0 .. 15 take the next word from the front of the stream, lanes 16 .. 31
// from its end, the lanes of a step in ascending order; so neither half waits
// to learn how many words the other took. Decoding ends with every state at
// kRansLowerBound and no word left. The encoder does the inverse, from the last
// symbol to the first.
//
// The bytes are the table (quantization/entropy/rans_table.h), the
// little-endian 32-bit states of lanes 0 .. 31, and the stream of little-endian
// 16-bit words.
#ifndef QUANTIZATION_ENTROPY_RANS_REFERENCE_H_
#define QUANTIZATION_ENTROPY_RANS_REFERENCE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "quantization/entropy/rans_table.h"

namespace causeway {

inline constexpr size_t kRansLanes = 32;
inline constexpr uint32_t kRansLowerBound = 1 << 16;
// Lanes below this one use the front of the stream of words, the others its
// end.
inline constexpr size_t kRansFrontLanes = kRansLanes / 2;
inline constexpr size_t kRansStateBytes = 4 * kRansLanes;
inline constexpr size_t kRansWordBytes = 2;

using RansStates = std::array<uint32_t, kRansLanes>;

// Maps steps and lanes to the symbols of a plane. A plane of nibbles is whole
// groups.
struct RansPlane {
  size_t Steps() const;
  // Returns how many lanes have a symbol in `step`: lanes [0, LanesOf(step)).
  size_t LanesOf(size_t step) const;

  struct Place {
    size_t byte;
    // The place of the symbol's lowest bit in the byte.
    uint32_t shift;
  };
  Place PlaceOf(size_t step, size_t lane) const;

  SymbolWidth width;
  size_t bytes;
};

// Returns the first slot of each code: the sum of the frequencies of the
// symbols before it in the table's order.
std::array<uint16_t, 256> FirstSlots(const RansTable& table);

// An encoder's stream, [front, back): it grows at both ends.
struct RansStream {
  size_t Bytes() const { return static_cast<size_t>(back - front); }

  char* front;
  char* back;
};

// Encodes steps [begin, end) of `plane`, the last one first. There must be room
// for kRansLanes bytes a step at each end of `stream`.
void RansEncodeSteps(const RansTable& table, const RansPlane& plane,
                     const char* codes, size_t begin, size_t end,
                     RansStates& states, RansStream& stream);

// Decodes steps [begin, end), and sets the bits of their symbols, which must be
// zero, in `codes`. Removes the words it reads from both ends of `words`.
//   INVALID_ARGUMENT  there are too few words.
absl::Status RansDecodeSteps(const RansTable& table, const RansPlane& plane,
                             size_t begin, size_t end, RansStates& states,
                             absl::string_view& words, char* codes);

// Returns the states that an encoder begins with and a decoder ends with.
RansStates InitialRansStates();

// Reads the states at the front of `bytes` and removes them from there.
//   INVALID_ARGUMENT  they are cut off, or one is below kRansLowerBound.
absl::StatusOr<RansStates> ReadRansStates(absl::string_view& bytes);

// Checks the states and words after the last symbol.
//   INVALID_ARGUMENT  a word is left, or a state is not the initial one.
absl::Status CheckRansEnd(const RansStates& states, absl::string_view words);

}  // namespace causeway

#endif  // QUANTIZATION_ENTROPY_RANS_REFERENCE_H_
