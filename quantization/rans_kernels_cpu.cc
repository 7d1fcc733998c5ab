// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/rans_kernels_cpu.h"

#include <algorithm>
#include <bit>
#include <cstdint>

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantization/rans_kernels_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 16 lanes at most: a row of nibbles of one group.
using Lanes = hn::CappedTag<uint32_t, 16>;
using SignedLanes = hn::RebindToSigned<Lanes>;
using WordsOfLanes = hn::Rebind<uint16_t, Lanes>;
using BytesOfLanes = hn::Rebind<uint8_t, Lanes>;
using Vec = hn::Vec<Lanes>;
using Mask = hn::Mask<Lanes>;

constexpr size_t kWidth = hn::MaxLanes(Lanes());
constexpr size_t kVectors = kRansLanes / kWidth;

// The states of all lanes, in registers.
struct States {
  explicit States(const RansStates& states) {
    for (size_t i = 0; i < kVectors; ++i) {
      vectors[i] = hn::LoadU(Lanes(), states.data() + i * kWidth);
    }
  }
  void Store(RansStates& states) const {
    for (size_t i = 0; i < kVectors; ++i) {
      hn::StoreU(vectors[i], Lanes(), states.data() + i * kWidth);
    }
  }

  Vec vectors[kVectors];
};

HWY_INLINE Vec Gather(const uint32_t* table, Vec index) {
  return hn::GatherIndex(Lanes(), table, hn::BitCast(SignedLanes(), index));
}

// A table by code, in registers if it fits one.
template <SymbolWidth kSymbols>
class TableByCode {
 public:
  explicit TableByCode(const uint32_t* table)
      : table_(table), vector_(hn::LoadU(Lanes(), table)) {}

  HWY_INLINE Vec operator[](Vec code) const {
    if constexpr (kSymbols == SymbolWidth::kNibble && kWidth == 16) {
      return hn::TableLookupLanes(vector_, hn::IndicesFromVec(Lanes(), code));
    } else {
      return Gather(table_, code);
    }
  }

 private:
  const uint32_t* const table_;
  const Vec vector_;
};

HWY_INLINE Vec HighHalfOfProduct(Vec a, Vec b) {
#if HWY_TARGET == HWY_SCALAR
  return Vec(static_cast<uint32_t>(uint64_t{a.raw} * b.raw >> 32));
#else
  const hn::RepartitionToWide<Lanes> pairs;
  const auto odd = [&](Vec v) {
    return hn::BitCast(Lanes(), hn::ShiftRight<32>(hn::BitCast(pairs, v)));
  };
  const auto even_product = hn::MulEven(a, b);
  const auto odd_product = hn::MulEven(odd(a), odd(b));
  return hn::OddEven(hn::BitCast(Lanes(), odd_product),
                     hn::BitCast(Lanes(), hn::ShiftRight<32>(even_product)));
#endif
}

// The new state; words go below `words`.
HWY_INLINE Vec EncodeVector(Vec state, Vec multiplier, Vec packed,
                            uint16_t*& words) {
  const Lanes lanes;
  const SignedLanes ints;
  const Vec frequency = hn::And(packed, hn::Set(lanes, 0x1fff));
  const Vec first_slot =
      hn::And(hn::ShiftRight<13>(packed), hn::Set(lanes, 0xfff));
  const Vec shift = hn::And(hn::ShiftRight<25>(packed), hn::Set(lanes, 15));
  const Vec addend = hn::ShiftRight<29>(packed);

  const auto high = hn::BitCast(ints, hn::ShiftRight<32 - kRansBits>(state));
  const Mask full = hn::Not(
      hn::RebindMask(lanes, hn::Lt(high, hn::BitCast(ints, frequency))));
  const size_t count = hn::CountTrue(lanes, full);
  words -= count;
  const WordsOfLanes words_tag;
  hn::BlendedStore(hn::TruncateTo(words_tag, hn::Compress(state, full)),
                   hn::FirstN(words_tag, count), words_tag, words);
  state = hn::IfThenElse(full, hn::ShiftRight<16>(state), state);

  const Vec quotient =
      hn::Shr(HighHalfOfProduct(hn::Add(state, addend), multiplier), shift);
  // (quotient << 12) + (state - quotient * frequency) + first_slot
  const Vec rest = hn::Sub(hn::Set(lanes, kRansTotal), frequency);
  return hn::Add(hn::Add(state, first_slot), hn::Mul(quotient, rest));
}

template <SymbolWidth kSymbols>
uint16_t* EncodeUnits(const RansEncodeTable& table, const char* codes,
                      size_t units, RansStates& all_states,
                      const uint16_t* begin, uint16_t* words) {
  const TableByCode<kSymbols> multipliers(table.multiplier.data());
  const TableByCode<kSymbols> packed(table.packed.data());
  States states(all_states);
  for (size_t unit = units; unit-- > 0;) {
    if (words < begin + kMaxRansUnitWords) return nullptr;
    const char* const source = codes + unit * RansUnitBytes(kSymbols);
    if constexpr (kSymbols == SymbolWidth::kByte) {
      for (size_t i = kVectors; i-- > 0;) {
        const Vec code = hn::PromoteTo(
            Lanes(),
            hn::LoadU(BytesOfLanes(),
                      reinterpret_cast<const uint8_t*>(source) + i * kWidth));
        states.vectors[i] = EncodeVector(states.vectors[i], multipliers[code],
                                         packed[code], words);
      }
    } else {
      Vec nibbles[kVectors];
      for (size_t i = 0; i < kVectors; ++i) {
        nibbles[i] = hn::LoadU(
            Lanes(), reinterpret_cast<const uint32_t*>(source) + i * kWidth);
      }
      for (size_t row = 0; row < RansUnitSteps(kSymbols); ++row) {
        for (size_t i = kVectors; i-- > 0;) {
          // The last row is in the highest bits.
          const Vec code = hn::ShiftRight<28>(nibbles[i]);
          nibbles[i] = hn::ShiftLeft<4>(nibbles[i]);
          states.vectors[i] = EncodeVector(states.vectors[i], multipliers[code],
                                           packed[code], words);
        }
      }
    }
  }
  states.Store(all_states);
  return words;
}

// Word i of `words` to the i-th lane of those in `mask`; the others hold
// anything.
HWY_INLINE Vec ExpandWords(const char* words, Mask mask) {
  const auto next = hn::PromoteTo(
      Lanes(),
      hn::LoadU(WordsOfLanes(), reinterpret_cast<const uint16_t*>(words)));
#if HWY_TARGET == HWY_SCALAR
  (void)mask;
  return next;
#elif HWY_TARGET <= HWY_AVX3
  return Vec{_mm512_maskz_expand_epi32(mask.raw, next.raw)};
#else
  // Lane i takes word ranks[bits][i], the number of lanes below it in the mask.
  static_assert(kWidth <= 8);
  struct Ranks {
    constexpr Ranks() {
      for (uint32_t bits = 0; bits < 256; ++bits) {
        for (uint32_t lane = 0; lane < 8; ++lane) {
          ranks[bits][lane] = static_cast<uint8_t>(
              std::popcount(bits & ((1u << lane) - 1)) % kWidth);
        }
      }
    }
    uint8_t ranks[256][8] = {};
  };
  static constexpr Ranks kRanks;
  uint8_t bits[8] = {};
  hn::StoreMaskBits(Lanes(), mask, bits);
  const auto rank =
      hn::PromoteTo(Lanes(), hn::LoadU(BytesOfLanes(), kRanks.ranks[bits[0]]));
  return hn::TableLookupLanes(next, hn::IndicesFromVec(Lanes(), rank));
#endif
}

// The new state. `entry` receives what the table has for the old one.
HWY_INLINE Vec DecodeVector(const RansDecodeTable& table, Vec state,
                            const char*& words, Vec& entry) {
  const Lanes lanes;
  const Vec low = hn::Set(lanes, kRansTotal - 1);
  entry = Gather(table.entries.data(), hn::And(state, low));
  const Vec frequency = hn::And(hn::ShiftRight<kRansBits>(entry), low);
  state = hn::Add(hn::Mul(frequency, hn::ShiftRight<kRansBits>(state)),
                  hn::And(entry, low));
  const Mask empty = hn::Eq(hn::ShiftRight<16>(state), hn::Zero(lanes));
  const Vec filled =
      hn::Or(hn::ShiftLeft<16>(state), ExpandWords(words, empty));
  words += kRansWordBytes * hn::CountTrue(lanes, empty);
  return hn::IfThenElse(empty, filled, state);
}

template <SymbolWidth kSymbols>
size_t DecodeUnits(const RansDecodeTable& table, size_t units,
                   RansStates& all_states, const char*& all_words,
                   const char* limit, char* codes) {
  States states(all_states);
  const char* words = all_words;
  size_t unit = 0;
  for (; unit < units && words <= limit; ++unit) {
    char* const destination = codes + unit * RansUnitBytes(kSymbols);
    if constexpr (kSymbols == SymbolWidth::kByte) {
      for (size_t i = 0; i < kVectors; ++i) {
        Vec entry;
        states.vectors[i] =
            DecodeVector(table, states.vectors[i], words, entry);
        hn::StoreU(hn::TruncateTo(BytesOfLanes(), hn::ShiftRight<24>(entry)),
                   BytesOfLanes(),
                   reinterpret_cast<uint8_t*>(destination) + i * kWidth);
      }
    } else {
      const Vec top = hn::Set(Lanes(), 0xf0000000u);
      Vec nibbles[kVectors];
      for (size_t i = 0; i < kVectors; ++i) nibbles[i] = hn::Zero(Lanes());
      for (size_t row = 0; row < RansUnitSteps(kSymbols); ++row) {
        for (size_t i = 0; i < kVectors; ++i) {
          Vec entry;
          states.vectors[i] =
              DecodeVector(table, states.vectors[i], words, entry);
          nibbles[i] = hn::OrAnd(hn::ShiftRight<4>(nibbles[i]), entry, top);
        }
      }
      for (size_t i = 0; i < kVectors; ++i) {
        hn::StoreU(nibbles[i], Lanes(),
                   reinterpret_cast<uint32_t*>(destination) + i * kWidth);
      }
    }
  }
  states.Store(all_states);
  all_words = words;
  return unit;
}

template <SymbolWidth kSymbols>
constexpr RansKernels kKernels = {EncodeUnits<kSymbols>, DecodeUnits<kSymbols>};

const RansKernels* RansKernelsOfTarget(SymbolWidth width) {
  return width == SymbolWidth::kNibble ? &kKernels<SymbolWidth::kNibble>
                                       : &kKernels<SymbolWidth::kByte>;
}

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace causeway {

RansReciprocal ReciprocalOf(uint32_t frequency) {
  // Rounded up, the product of a state x is above x / frequency * 2^(32 +
  // shift) by x * excess / frequency, which must not reach the next quotient.
  // Rounded down and with 1 added to x it is below by as much as the next
  // quotient was above, and the excess is the other part of the frequency. Of
  // the two one is at most half of it, which is small enough.
  const uint32_t shift = static_cast<uint32_t>(std::bit_width(frequency)) - 1;
  const uint64_t one = uint64_t{1} << (32 + shift);
  const uint64_t up = one / frequency + 1;
  const uint64_t excess = up * frequency - one;
  if (!std::has_single_bit(frequency) &&
      excess * frequency <= one >> (32 - kRansBits)) {
    return {static_cast<uint32_t>(up), shift, 0};
  }
  const uint64_t down = std::min<uint64_t>(one / frequency, 0xffffffff);
  return {static_cast<uint32_t>(down), shift, 1};
}

RansEncodeTable::RansEncodeTable(const RansTable& table) {
  const std::array<uint16_t, 256> first_slots = FirstSlots(table);
  for (size_t code = 0; code < AlphabetSize(table.width); ++code) {
    const uint32_t frequency = table.frequency[code];
    if (frequency == 0) continue;
    const RansReciprocal reciprocal = ReciprocalOf(frequency);
    multiplier[code] = reciprocal.multiplier;
    packed[code] = frequency | uint32_t{first_slots[code]} << 13 |
                   reciprocal.shift << 25 | reciprocal.addend << 29;
  }
}

RansDecodeTable::RansDecodeTable(const RansTable& table) {
  const uint32_t symbol_shift = table.width == SymbolWidth::kNibble ? 28 : 24;
  uint32_t* next = entries.data();
  for (size_t place = 0; place < AlphabetSize(table.width); ++place) {
    const size_t code = CodeAtPlace(table.width, place);
    const uint32_t frequency = table.frequency[code];
    const uint32_t entry =
        static_cast<uint32_t>(code) << symbol_shift | frequency << kRansBits;
    for (uint32_t i = 0; i < frequency; ++i) *next++ = entry | i;
  }
}

HWY_EXPORT(RansKernelsOfTarget);

const RansKernels& CpuRansKernels(SymbolWidth width) {
  return *HWY_DYNAMIC_DISPATCH(RansKernelsOfTarget)(width);
}

}  // namespace causeway
#endif  // HWY_ONCE
