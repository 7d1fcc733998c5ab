// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/entropy/rans_kernels_cpu.h"

#include <algorithm>
#include <bit>
#include <cstdint>

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantization/entropy/rans_kernels_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors have at most 16 lanes, a row of nibbles of one group.
using Lanes = hn::CappedTag<uint32_t, 16>;
using SignedLanes = hn::RebindToSigned<Lanes>;
using WordsOfLanes = hn::Rebind<uint16_t, Lanes>;
using BytesOfLanes = hn::Rebind<uint8_t, Lanes>;
using Vec = hn::Vec<Lanes>;
using Mask = hn::Mask<Lanes>;

constexpr size_t kWidth = hn::MaxLanes(Lanes());
constexpr size_t kVectors = kRansLanes / kWidth;
constexpr size_t kFrontVectors = kRansFrontLanes / kWidth;

HWY_INLINE Vec Gather(const uint32_t* table, Vec index) {
  return hn::GatherIndex(Lanes(), table, hn::BitCast(SignedLanes(), index));
}

// The entries of an encoder's tables for the symbols of some lanes.
struct Coding {
  Vec multiplier;
  Vec packed;
};

// The tables of an encoder. kNear is true if RansEncodeTable::is_near is.
template <SymbolWidth kSymbols, bool kNear>
class CodingTable {
 public:
  explicit CodingTable(const RansEncodeTable& table)
      : multiplier_(table.multiplier.data()), packed_(table.packed.data()) {
    CopyNear(multiplier_, near_multiplier_);
    CopyNear(packed_, near_packed_);
  }

  HWY_INLINE Coding operator[](Vec code) const {
    const Lanes lanes;
    if constexpr (kWidth >= 8 && kSymbols == SymbolWidth::kNibble) {
      return InRegisters(code);
    } else if constexpr (kWidth >= 8 && kNear) {
      const Vec from_least =
          hn::And(hn::Add(code, hn::Set(lanes, 8)), hn::Set(lanes, 0xff));
      if (HWY_LIKELY(hn::AllTrue(
              lanes, hn::Lt(from_least, hn::Set(lanes, kNearCodes))))) {
        return InRegisters(hn::And(code, hn::Set(lanes, kNearCodes - 1)));
      }
    }
    return {.multiplier = Gather(multiplier_, code),
            .packed = Gather(packed_, code)};
  }

 private:
  static constexpr size_t kNearCodes = 16;
  static constexpr size_t kNearVectors = kNearCodes / kWidth;

  // Copies the entries of codes -8 .. 7, which are looked up by their lowest
  // four bits. They fit one or two registers, and suffice for most vectors of
  // codes with little entropy.
  static void CopyNear(const uint32_t* table, Vec* near) {
    alignas(64) uint32_t entries[kNearCodes];
    for (size_t i = 0; i < kNearCodes; ++i) {
      const size_t above = kSymbols == SymbolWidth::kByte && i >= 8 ? 240 : 0;
      entries[i] = table[above + i];
    }
    for (size_t i = 0; i < kNearVectors; ++i) {
      near[i] = hn::Load(Lanes(), entries + i * kWidth);
    }
  }

  HWY_INLINE Coding InRegisters(Vec code) const {
    const Lanes lanes;
    const auto index =
        hn::IndicesFromVec(lanes, hn::And(code, hn::Set(lanes, kWidth - 1)));
    const Coding low = {
        .multiplier = hn::TableLookupLanes(near_multiplier_[0], index),
        .packed = hn::TableLookupLanes(near_packed_[0], index)};
    if constexpr (kNearVectors == 1) {
      return low;
    } else {
      const Mask is_low = hn::Lt(code, hn::Set(lanes, kWidth));
      return {.multiplier = hn::IfThenElse(
                  is_low, low.multiplier,
                  hn::TableLookupLanes(near_multiplier_[1], index)),
              .packed =
                  hn::IfThenElse(is_low, low.packed,
                                 hn::TableLookupLanes(near_packed_[1], index))};
    }
  }

  const uint32_t* const multiplier_;
  const uint32_t* const packed_;
  Vec near_multiplier_[kNearVectors];
  Vec near_packed_[kNearVectors];
};

HWY_INLINE Vec HighHalfOfProduct(Vec a, Vec b) {
  const hn::RepartitionToWide<Lanes> pairs;
  const auto odd = [&](Vec v) {
    return hn::BitCast(Lanes(), hn::ShiftRight<32>(hn::BitCast(pairs, v)));
  };
  const auto even_product = hn::MulEven(a, b);
  const auto odd_product = hn::MulEven(odd(a), odd(b));
  return hn::OddEven(hn::BitCast(Lanes(), odd_product),
                     hn::BitCast(Lanes(), hn::ShiftRight<32>(even_product)));
}

#if HWY_TARGET > HWY_AVX3
// The places to which the lanes of a mask of up to 8 move.
struct LaneMoves {
  constexpr LaneMoves() {
    for (uint32_t bits = 0; bits < 1u << kWidth; ++bits) {
      const size_t count = static_cast<size_t>(std::popcount(bits));
      size_t rank = 0;
      for (size_t lane = 0; lane < kWidth; ++lane) {
        ranks[bits][lane] = static_cast<uint8_t>(rank);
        if ((bits >> lane & 1) == 0) continue;
        first[bits][rank] = static_cast<uint8_t>(lane);
        last[bits][kWidth - count + rank] = static_cast<uint8_t>(lane);
        ++rank;
      }
    }
  }

  // For each lane, the number of the mask's lanes below it.
  uint8_t ranks[1 << kWidth][8] = {};
  // The mask's lanes, in order, in the first or last places of a vector.
  uint8_t first[1 << kWidth][8] = {};
  uint8_t last[1 << kWidth][8] = {};
};
constexpr LaneMoves kLaneMoves;

HWY_INLINE size_t BitsOf(Mask mask) {
  uint8_t bits[8] = {};
  hn::StoreMaskBits(Lanes(), mask, bits);
  return bits[0];
}

HWY_INLINE Vec Move(Vec lanes, const uint8_t* from) {
  const Vec index = hn::PromoteTo(Lanes(), hn::LoadU(BytesOfLanes(), from));
  return hn::TableLookupLanes(lanes, hn::IndicesFromVec(Lanes(), index));
}
#endif

// The next word of each lane in a mask of lanes whose states are full.
struct Overflow {
  // Writes the words, in the order of lanes, right below `front`, and returns
  // their start. May overwrite memory below them.
  HWY_INLINE char* ToFront(char* front) const {
    const WordsOfLanes tag;
    const size_t count = hn::CountTrue(Lanes(), mask);
    uint16_t* const end = reinterpret_cast<uint16_t*>(front);
#if HWY_TARGET <= HWY_AVX3
    hn::BlendedStore(hn::TruncateTo(tag, hn::Compress(state, mask)),
                     hn::FirstN(tag, count), tag, end - count);
#else
    hn::StoreU(hn::TruncateTo(tag, Move(state, kLaneMoves.last[BitsOf(mask)])),
               tag, end - kWidth);
#endif
    return front - kRansWordBytes * count;
  }

  // Writes the words to `back` and returns their end. May overwrite memory
  // behind them.
  HWY_INLINE char* ToBack(char* back) const {
    const WordsOfLanes tag;
#if HWY_TARGET <= HWY_AVX3
    const Vec first = hn::Compress(state, mask);
#else
    const Vec first = Move(state, kLaneMoves.first[BitsOf(mask)]);
#endif
    hn::StoreU(hn::TruncateTo(tag, first), tag,
               reinterpret_cast<uint16_t*>(back));
    return back + kRansWordBytes * hn::CountTrue(Lanes(), mask);
  }

  Vec state;
  Mask mask;
};

// Loads the words at `words`, one into each lane.
HWY_INLINE Vec LoadWords(const char* words) {
  return hn::PromoteTo(
      Lanes(),
      hn::LoadU(WordsOfLanes(), reinterpret_cast<const uint16_t*>(words)));
}

// Moves lane i of `next` to the i-th lane of those in `mask`. The other lanes
// become 0.
HWY_INLINE Vec Expand(Vec next, Mask mask) {
#if HWY_TARGET <= HWY_AVX3
  return Vec{_mm512_maskz_expand_epi32(mask.raw, next.raw)};
#else
  return hn::IfThenElseZero(mask, Move(next, kLaneMoves.ranks[BitsOf(mask)]));
#endif
}

// Makes room in `state` for a symbol and returns the words that this moves out.
HWY_INLINE Overflow MakeRoom(const Coding& coding, Vec& state) {
  const SignedLanes ints;
  const Vec frequency = hn::And(coding.packed, hn::Set(Lanes(), 0x1fff));
  const auto high = hn::BitCast(ints, hn::ShiftRight<32 - kRansBits>(state));
  const Mask full = hn::Not(
      hn::RebindMask(Lanes(), hn::Lt(high, hn::BitCast(ints, frequency))));
  const Overflow overflow{.state = state, .mask = full};
  state = hn::IfThenElse(full, hn::ShiftRight<16>(state), state);
  return overflow;
}

HWY_INLINE Vec PutSymbol(const Coding& coding, Vec state) {
  const Lanes lanes;
  const Vec packed = coding.packed;
  const Vec frequency = hn::And(packed, hn::Set(lanes, 0x1fff));
  const Vec first_slot =
      hn::And(hn::ShiftRight<13>(packed), hn::Set(lanes, 0xfff));
  const Vec shift = hn::And(hn::ShiftRight<25>(packed), hn::Set(lanes, 15));
  const Vec addend = hn::ShiftRight<29>(packed);
  const Vec quotient = hn::Shr(
      HighHalfOfProduct(hn::Add(state, addend), coding.multiplier), shift);
  // (quotient << 12) + (state - quotient * frequency) + first_slot
  const Vec rest = hn::Sub(hn::Set(lanes, kRansTotal), frequency);
  return hn::Add(hn::Add(state, first_slot), hn::Mul(quotient, rest));
}

// Loads vector i of the 16 numbers that end at `end`, in reverse order.
HWY_INLINE Vec LoadReversed(const uint32_t* end, size_t i) {
  return hn::Reverse(Lanes(), hn::LoadU(Lanes(), end - (i + 1) * kWidth));
}

// An encoder's states and stream. The lanes of the back are in reverse order,
// the order in which their words are written.
template <SymbolWidth kSymbols, bool kNear>
class EncoderLanes {
 public:
  EncoderLanes(const RansEncodeTable& table, const RansStates& states,
               const RansStream& stream)
      : codings_(table), stream_(stream) {
    for (size_t i = 0; i < kFrontVectors; ++i) {
      front_[i] = hn::LoadU(Lanes(), states.data() + i * kWidth);
      back_[i] = LoadReversed(states.data() + kRansLanes, i);
    }
  }
  void Store(RansStates& states) const {
    for (size_t i = 0; i < kFrontVectors; ++i) {
      hn::StoreU(front_[i], Lanes(), states.data() + i * kWidth);
      hn::StoreU(hn::Reverse(Lanes(), back_[i]), Lanes(),
                 states.data() + kRansLanes - (i + 1) * kWidth);
    }
  }

  const RansStream& stream() const { return stream_; }

  HWY_INLINE void PutFront(size_t i, Vec code) {
    const Coding coding = codings_[code];
    stream_.front = MakeRoom(coding, front_[i]).ToFront(stream_.front);
    front_[i] = PutSymbol(coding, front_[i]);
  }
  HWY_INLINE void PutBack(size_t i, Vec code) {
    const Coding coding = codings_[code];
    stream_.back = MakeRoom(coding, back_[i]).ToBack(stream_.back);
    back_[i] = PutSymbol(coding, back_[i]);
  }

 private:
  const CodingTable<kSymbols, kNear> codings_;
  RansStream stream_;
  Vec front_[kFrontVectors];
  Vec back_[kFrontVectors];
};

template <bool kNear>
HWY_INLINE void EncodeUnit(const uint8_t* codes,
                           EncoderLanes<SymbolWidth::kByte, kNear>& lanes) {
  const auto load = [codes](size_t at) HWY_ATTR {
    return hn::PromoteTo(Lanes(), hn::LoadU(BytesOfLanes(), codes + at));
  };
  for (size_t i = kFrontVectors; i-- > 0;) {
    lanes.PutFront(i, load(i * kWidth));
  }
  for (size_t i = 0; i < kFrontVectors; ++i) {
    lanes.PutBack(i, hn::Reverse(Lanes(), load(kRansLanes - (i + 1) * kWidth)));
  }
}

HWY_INLINE void EncodeUnit(const uint8_t* codes,
                           EncoderLanes<SymbolWidth::kNibble, true>& lanes) {
  const uint32_t* const words = reinterpret_cast<const uint32_t*>(codes);
  Vec front[kFrontVectors];
  Vec back[kFrontVectors];
  for (size_t i = 0; i < kFrontVectors; ++i) {
    front[i] = hn::LoadU(Lanes(), words + i * kWidth);
    back[i] = LoadReversed(words + kRansLanes, i);
  }
  // The last row is in the highest bits.
  for (size_t row = 0; row < RansUnitSteps(SymbolWidth::kNibble); ++row) {
    for (size_t i = kFrontVectors; i-- > 0;) {
      lanes.PutFront(i, hn::ShiftRight<28>(front[i]));
      front[i] = hn::ShiftLeft<4>(front[i]);
    }
    for (size_t i = 0; i < kFrontVectors; ++i) {
      lanes.PutBack(i, hn::ShiftRight<28>(back[i]));
      back[i] = hn::ShiftLeft<4>(back[i]);
    }
  }
}

template <SymbolWidth kSymbols, bool kNear>
bool EncodeUnitsBy(const RansEncodeTable& table, const char* codes,
                   size_t units, size_t most_bytes, RansStates& states,
                   RansStream& stream) {
  EncoderLanes<kSymbols, kNear> lanes(table, states, stream);
  for (size_t unit = units; unit-- > 0;) {
    if (lanes.stream().Bytes() > most_bytes) return false;
    EncodeUnit(reinterpret_cast<const uint8_t*>(codes) +
                   unit * RansUnitBytes(kSymbols),
               lanes);
  }
  lanes.Store(states);
  stream = lanes.stream();
  return true;
}

template <SymbolWidth kSymbols>
bool EncodeUnits(const RansEncodeTable& table, const char* codes, size_t units,
                 size_t most_bytes, RansStates& states, RansStream& stream) {
  if constexpr (kSymbols == SymbolWidth::kByte) {
    if (!table.is_near) {
      return EncodeUnitsBy<kSymbols, false>(table, codes, units, most_bytes,
                                            states, stream);
    }
  }
  return EncodeUnitsBy<kSymbols, true>(table, codes, units, most_bytes, states,
                                       stream);
}

// A decoder's states and stream, [front, back).
class DecoderLanes {
 public:
  DecoderLanes(const RansDecodeTable& table, const RansStates& states,
               const char* front, const char* back)
      : entries_(table.entries.data()), front_(front), back_(back) {
    for (size_t i = 0; i < kVectors; ++i) {
      states_[i] = hn::LoadU(Lanes(), states.data() + i * kWidth);
    }
  }
  void Store(RansStates& states) const {
    for (size_t i = 0; i < kVectors; ++i) {
      hn::StoreU(states_[i], Lanes(), states.data() + i * kWidth);
    }
  }

  const char* front() const { return front_; }
  const char* back() const { return back_; }

  // Takes a symbol out of each lane of vector i. Returns it in the highest
  // bits; the bits below hold anything.
  HWY_INLINE Vec TakeSymbols(size_t i) {
    const Lanes lanes;
    const bool is_front = i < kFrontVectors;
    const Vec words =
        is_front
            ? LoadWords(front_)
            : hn::Reverse(lanes, LoadWords(back_ - kRansWordBytes * kWidth));
    const Vec state = states_[i];
    const Vec low = hn::Set(lanes, kRansTotal - 1);
    const Vec entry = Gather(entries_, hn::And(state, low));
    const Vec frequency = hn::And(hn::ShiftRight<kRansBits>(entry), low);
    const Vec rest =
        hn::Add(hn::Mul(frequency, hn::ShiftRight<kRansBits>(state)),
                hn::And(entry, low));
    const Mask empty = hn::Lt(rest, hn::Set(lanes, kRansLowerBound));
    const Vec shifted = hn::IfThenElse(empty, hn::ShiftLeft<16>(rest), rest);
    states_[i] = hn::Or(shifted, Expand(words, empty));
    const size_t bytes = kRansWordBytes * hn::CountTrue(lanes, empty);
    if (is_front) {
      front_ += bytes;
    } else {
      back_ -= bytes;
    }
    return entry;
  }

 private:
  const uint32_t* const entries_;
  const char* front_;
  const char* back_;
  Vec states_[kVectors];
};

HWY_INLINE void DecodeBytes(DecoderLanes& lanes, uint8_t* codes) {
  for (size_t i = 0; i < kVectors; ++i) {
    const Vec code = hn::ShiftRight<24>(lanes.TakeSymbols(i));
    hn::StoreU(hn::TruncateTo(BytesOfLanes(), code), BytesOfLanes(),
               codes + i * kWidth);
  }
}

HWY_INLINE void DecodeNibbles(DecoderLanes& lanes, uint8_t* codes) {
  const Vec top = hn::Set(Lanes(), 0xf0000000u);
  Vec nibbles[kVectors];
  for (Vec& vector : nibbles) vector = hn::Zero(Lanes());
  for (size_t row = 0; row < RansUnitSteps(SymbolWidth::kNibble); ++row) {
    for (size_t i = 0; i < kVectors; ++i) {
      nibbles[i] =
          hn::OrAnd(hn::ShiftRight<4>(nibbles[i]), lanes.TakeSymbols(i), top);
    }
  }
  for (size_t i = 0; i < kVectors; ++i) {
    hn::StoreU(nibbles[i], Lanes(),
               reinterpret_cast<uint32_t*>(codes) + i * kWidth);
  }
}

template <SymbolWidth kSymbols>
size_t DecodeUnits(const RansDecodeTable& table, size_t units,
                   ptrdiff_t least_bytes, RansStates& states,
                   const char*& front, const char*& back, char* codes) {
  DecoderLanes lanes(table, states, front, back);
  size_t unit = 0;
  for (; unit < units && lanes.back() - lanes.front() >= least_bytes; ++unit) {
    uint8_t* const unit_codes =
        reinterpret_cast<uint8_t*>(codes) + unit * RansUnitBytes(kSymbols);
    if constexpr (kSymbols == SymbolWidth::kByte) {
      DecodeBytes(lanes, unit_codes);
    } else {
      DecodeNibbles(lanes, unit_codes);
    }
  }
  lanes.Store(states);
  front = lanes.front();
  back = lanes.back();
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
  // With the reciprocal rounded up, the product with a state x exceeds x /
  // frequency * 2^(32 + shift) by x * excess / frequency, which must not reach
  // the next quotient. With the reciprocal rounded down and 1 added to x, the
  // same holds for frequency - excess. One of the two is at most half the
  // frequency, which is small enough.
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
  uint32_t far = 0;
  for (size_t code = 0; code < AlphabetSize(table.width); ++code) {
    const uint32_t frequency = table.frequency[code];
    if (frequency == 0) continue;
    if (code >= 8 && code < AlphabetSize(table.width) - 8) far += frequency;
    const RansReciprocal reciprocal = ReciprocalOf(frequency);
    multiplier[code] = reciprocal.multiplier;
    packed[code] = frequency | uint32_t{first_slots[code]} << 13 |
                   reciprocal.shift << 25 | reciprocal.addend << 29;
  }
  is_near = far <= kRansTotal / 64;
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
