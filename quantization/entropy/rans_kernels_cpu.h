// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of the entropy coder (quantization/entropy/rans_reference.h)
// for CPUs. One source in Highway is compiled for several instruction sets; the
// best one that the machine has is chosen at run time. All give the same bytes
// as the reference.
//
// Kernels work on whole units: a pair of groups (8 steps) of nibbles, or one
// step of bytes. Thread-safe.
#ifndef QUANTIZATION_ENTROPY_RANS_KERNELS_CPU_H_
#define QUANTIZATION_ENTROPY_RANS_KERNELS_CPU_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "quantization/entropy/rans_reference.h"
#include "quantization/entropy/rans_table.h"
#include "quantization/formats/block_format.h"

namespace causeway {

// The bytes of codes in a unit, and its steps.
constexpr size_t RansUnitBytes(SymbolWidth width) {
  return width == SymbolWidth::kNibble ? 2 * kNibbleGroupBytes : kRansLanes;
}
constexpr size_t RansUnitSteps(SymbolWidth width) {
  return width == SymbolWidth::kNibble ? 8 : 1;
}

// The most bytes of words that a unit takes from each end of the stream, and
// the most bytes that decoding a unit reads at each end.
inline constexpr size_t kMaxRansUnitWordBytes =
    8 * kRansFrontLanes * kRansWordBytes;
inline constexpr size_t kMaxRansUnitReadBytes =
    kMaxRansUnitWordBytes + 16 * kRansWordBytes;

// floor(state / frequency) = ((state + addend) * multiplier) >> (32 + shift)
// for every state below frequency * 2^20. Encoders divide only such states.
struct RansReciprocal {
  uint32_t multiplier;
  uint32_t shift;
  uint32_t addend;
};
RansReciprocal ReciprocalOf(uint32_t frequency);

// The encoder's entries by code. `packed` holds, from the lowest bit on, the
// frequency in 13 bits, the first slot in 12, the reciprocal's shift in 4 and
// its addend.
struct RansEncodeTable {
  explicit RansEncodeTable(const RansTable& table);

  alignas(64) std::array<uint32_t, 256> multiplier = {};
  alignas(64) std::array<uint32_t, 256> packed = {};
  // At most one code in 64 is outside of -8 .. 7. This is so in every plane of
  // nibbles, and in planes of few bits a code.
  bool is_near = false;
};

// The decoder's entries by slot. Each holds, from the lowest bit on, the slot
// minus its symbol's first slot in 12 bits, the frequency in 12, and the symbol
// in the highest 8 bits, or 4 for nibbles. No frequency may be kRansTotal: such
// a plane needs no decoding.
struct RansDecodeTable {
  explicit RansDecodeTable(const RansTable& table);

  alignas(64) std::array<uint32_t, kRansTotal> entries;
};

struct RansKernels {
  // Encodes units [0, units), the last one first. Returns false if `stream` had
  // more than `most_bytes` before a unit. There must be room for that many
  // bytes and kMaxRansUnitReadBytes more on either side of where the stream
  // began.
  bool (*encode)(const RansEncodeTable& table, const char* codes, size_t units,
                 size_t most_bytes, RansStates& states, RansStream& stream);
  // Decodes up to `units` units, as long as the stream [front, back) has
  // `least_bytes` before each; returns their number. Reads up to
  // kMaxRansUnitReadBytes - least_bytes beyond both ends, and may leave the
  // front behind the back.
  size_t (*decode)(const RansDecodeTable& table, size_t units,
                   ptrdiff_t least_bytes, RansStates& states,
                   const char*& front, const char*& back, char* codes);
};

// Returns the kernels of the best instruction set that this machine has.
const RansKernels& CpuRansKernels(SymbolWidth width);

}  // namespace causeway

#endif  // QUANTIZATION_ENTROPY_RANS_KERNELS_CPU_H_
