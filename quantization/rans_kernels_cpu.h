// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of the entropy coder (quantization/rans_reference.h) for
// CPUs: one source in Highway, compiled for several instruction sets, of which
// the best that the machine has is taken at run time. The same bytes as the
// reference on all of them.
//
// Kernels work on whole units: a pair of groups (8 steps) of nibbles, or one
// step of bytes. Thread-safe.
#ifndef QUANTIZATION_RANS_KERNELS_CPU_H_
#define QUANTIZATION_RANS_KERNELS_CPU_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "quantization/block_format.h"
#include "quantization/rans_reference.h"
#include "quantization/rans_table.h"

namespace causeway {

// Of codes.
constexpr size_t RansUnitBytes(SymbolWidth width) {
  return width == SymbolWidth::kNibble ? 2 * kNibbleGroupBytes : kRansLanes;
}
constexpr size_t RansUnitSteps(SymbolWidth width) {
  return width == SymbolWidth::kNibble ? 8 : 1;
}

// A unit has at most so many words, one for each symbol.
inline constexpr size_t kMaxRansUnitWords = 8 * kRansLanes;
// Decoding a unit reads no further than this behind its first word.
inline constexpr size_t kMaxRansUnitReadBytes =
    kRansWordBytes * (kMaxRansUnitWords + 16);

// floor(state / frequency) = ((state + addend) * multiplier) >> (32 + shift)
// for every state below frequency * 2^20, which is what an encoder divides.
struct RansReciprocal {
  uint32_t multiplier;
  uint32_t shift;
  uint32_t addend;
};
RansReciprocal ReciprocalOf(uint32_t frequency);

// By code; `packed` holds, from the lowest bit on, the frequency in 13 bits,
// the first slot in 12, the reciprocal's shift in 4 and its addend.
struct RansEncodeTable {
  explicit RansEncodeTable(const RansTable& table);

  alignas(64) std::array<uint32_t, 256> multiplier = {};
  alignas(64) std::array<uint32_t, 256> packed = {};
};

// By slot, from the lowest bit on: the slot less the first of its symbol in 12
// bits, the frequency in 12, and the symbol in the highest 8 bits, or 4 for
// nibbles. No frequency may be kRansTotal: such a plane needs no decoding.
struct RansDecodeTable {
  explicit RansDecodeTable(const RansTable& table);

  alignas(64) std::array<uint32_t, kRansTotal> entries;
};

struct RansKernels {
  // Encodes units [0, units), the last first, to words downwards from `words`,
  // and returns where the last was written; null if a unit was left with less
  // than kMaxRansUnitWords of room above `begin`.
  uint16_t* (*encode)(const RansEncodeTable& table, const char* codes,
                      size_t units, RansStates& states, const uint16_t* begin,
                      uint16_t* words);
  // Decodes up to `units` units, as long as `words` is not above `limit`
  // before each; returns how many. Advances `words`, and reads up to
  // kMaxRansUnitReadBytes behind `limit`.
  size_t (*decode)(const RansDecodeTable& table, size_t units,
                   RansStates& states, const char*& words, const char* limit,
                   char* codes);
};

// Of the best instruction set that this machine has.
const RansKernels& CpuRansKernels(SymbolWidth width);

}  // namespace causeway

#endif  // QUANTIZATION_RANS_KERNELS_CPU_H_
