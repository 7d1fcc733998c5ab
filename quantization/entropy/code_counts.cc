// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/entropy/code_counts.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

// Highway compiles this file once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantization/entropy/code_counts.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace causeway {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void CountBytes(const char* codes, size_t size, CodeCounts& counts) {
  // With several tables, equal codes in a row do not wait for each other.
  constexpr size_t kTables = 8;
  std::array<std::array<uint32_t, 256>, kTables> tables = {};
  for (size_t i = 0; i < size; i += 8) {
    uint64_t eight;
    std::memcpy(&eight, codes + i, sizeof(eight));
    for (size_t k = 0; k < kTables; ++k) {
      ++tables[k][eight >> (8 * k) & 0xff];
    }
  }
  for (size_t code = 0; code < 256; ++code) {
    for (const auto& table : tables) counts[code] += table[code];
  }
}

using Bytes = hn::CappedTag<uint8_t, 64>;
using Sums = hn::Repartition<uint64_t, Bytes>;

HWY_INLINE hn::Vec<Bytes> LowNibbles(hn::Vec<Bytes> bytes) {
  return hn::And(bytes, hn::Set(Bytes(), 15));
}
HWY_INLINE hn::Vec<Bytes> HighNibbles(hn::Vec<Bytes> bytes) {
  const hn::Repartition<uint16_t, Bytes> words;
  const auto shifted = hn::ShiftRight<4>(hn::BitCast(words, bytes));
  return LowNibbles(hn::BitCast(Bytes(), shifted));
}

// One look-up counts two symbols, in the two halves of each byte.
void CountNibbles(const char* codes, size_t size, CodeCounts& counts) {
  constexpr size_t kPairs = 8;
  // Each byte has two nibbles, so the counts may be full after seven rounds.
  constexpr size_t kRounds = 7;
  hn::Vec<Bytes> is_pair[kPairs];
  for (size_t pair = 0; pair < kPairs; ++pair) {
    alignas(16) uint8_t table[16] = {};
    table[2 * pair] = 1;
    table[2 * pair + 1] = 16;
    is_pair[pair] = hn::LoadDup128(Bytes(), table);
  }
  hn::Vec<Sums> sums[2 * kPairs];
  for (auto& sum : sums) sum = hn::Zero(Sums());

  for (size_t i = 0; i < size;) {
    hn::Vec<Bytes> pairs[kPairs];
    for (auto& pair : pairs) pair = hn::Zero(Bytes());
    const size_t end = std::min(size, i + kRounds * hn::Lanes(Bytes()));
    for (; i < end; i += hn::Lanes(Bytes())) {
      const auto both =
          hn::LoadU(Bytes(), reinterpret_cast<const uint8_t*>(codes) + i);
      const auto low = LowNibbles(both);
      const auto high = HighNibbles(both);
      for (size_t pair = 0; pair < kPairs; ++pair) {
        const auto counted = hn::Add(hn::TableLookupBytes(is_pair[pair], low),
                                     hn::TableLookupBytes(is_pair[pair], high));
        pairs[pair] = hn::Add(pairs[pair], counted);
      }
    }
    for (size_t pair = 0; pair < kPairs; ++pair) {
      const auto even = hn::SumsOf8(LowNibbles(pairs[pair]));
      const auto odd = hn::SumsOf8(HighNibbles(pairs[pair]));
      sums[2 * pair] = hn::Add(sums[2 * pair], even);
      sums[2 * pair + 1] = hn::Add(sums[2 * pair + 1], odd);
    }
  }
  for (size_t code = 0; code < 2 * kPairs; ++code) {
    counts[code] +=
        static_cast<uint32_t>(hn::GetLane(hn::SumOfLanes(Sums(), sums[code])));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace causeway
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace causeway {

HWY_EXPORT(CountBytes);
HWY_EXPORT(CountNibbles);

CodeCounts CountCodes(SymbolWidth width, absl::string_view codes) {
  // A unit is a whole vector of every instruction set.
  constexpr size_t kUnit = 64;
  CodeCounts counts = {};
  const size_t whole = codes.size() / kUnit * kUnit;
  if (width == SymbolWidth::kByte) {
    HWY_DYNAMIC_DISPATCH(CountBytes)(codes.data(), whole, counts);
  } else {
    HWY_DYNAMIC_DISPATCH(CountNibbles)(codes.data(), whole, counts);
  }
  for (const char last : codes.substr(whole)) {
    const uint8_t byte = static_cast<uint8_t>(last);
    if (width == SymbolWidth::kByte) {
      ++counts[byte];
    } else {
      ++counts[byte & 15];
      ++counts[byte >> 4];
    }
  }
  return counts;
}

}  // namespace causeway
#endif  // HWY_ONCE
