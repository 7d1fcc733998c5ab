// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Tests the kernels' tables. quantization/entropy/entropy_coder_test.cc
// compares the kernels' bytes with the reference's.
#include "quantization/entropy/rans_kernels_cpu.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "quantization/entropy/rans_reference.h"
#include "quantization/entropy/rans_table.h"

namespace causeway {
namespace {

uint32_t Quotient(const RansReciprocal& reciprocal, uint32_t state) {
  const uint32_t sum = state + reciprocal.addend;
  EXPECT_GE(sum, state);
  return static_cast<uint32_t>(uint64_t{sum} * reciprocal.multiplier >>
                               (32 + reciprocal.shift));
}

// The error of the product grows with the state, so the test looks at the
// largest quotients, and at states right before the next quotient.
TEST(ReciprocalTest, IsExactForAllStatesBelowTheFrequencyTimes2To20) {
  for (uint32_t frequency = 1; frequency < kRansTotal; ++frequency) {
    const RansReciprocal reciprocal = ReciprocalOf(frequency);
    EXPECT_LT(reciprocal.shift, 16u);
    for (uint32_t i = 0; i < 4096; ++i) {
      const uint32_t quotients[] = {i, i * 255, (1u << 20) - 1 - i};
      for (const uint32_t quotient : quotients) {
        for (const uint32_t rest : {0u, frequency / 2, frequency - 1}) {
          const uint32_t state = quotient * frequency + rest;
          // 150 million assertions would take most of the test's time.
          if (Quotient(reciprocal, state) == quotient) continue;
          FAIL() << state << " / " << frequency << " is not " << quotient;
        }
      }
    }
  }
}

TEST(RansTablesTest, HoldWhatTheyAreMadeOf) {
  std::vector<uint32_t> counts(16);
  counts[0] = 3;
  counts[2] = 1;
  counts[15] = 4;
  const RansTable table = NormalizedTable(SymbolWidth::kNibble, counts);
  const RansDecodeTable decode(table);
  // Code 15 is -1 and comes first: 2048 slots, then 1536 of code 0.
  EXPECT_EQ(decode.entries[0], 15u << 28 | 2048u << 12);
  EXPECT_EQ(decode.entries[2047], 15u << 28 | 2048u << 12 | 2047u);
  EXPECT_EQ(decode.entries[2048], 1536u << 12);
  EXPECT_EQ(decode.entries[4095], 2u << 28 | 512u << 12 | 511u);
  const RansEncodeTable encode(table);
  EXPECT_EQ(encode.packed[2] & 0x1fff, 512u);
  EXPECT_EQ(encode.packed[2] >> 13 & 0xfff, 3584u);
}

TEST(RansKernelsTest, EncodingEndsWhenTheStreamIsTooLong) {
  for (const SymbolWidth width : {SymbolWidth::kNibble, SymbolWidth::kByte}) {
    const std::vector<uint32_t> counts(AlphabetSize(width), 1);
    const RansEncodeTable table(NormalizedTable(width, counts));
    const std::vector<char> codes(100 * RansUnitBytes(width), '\x12');
    std::vector<char> room(4096, 'x');
    RansStates states = InitialRansStates();
    RansStream stream{room.data() + 2048, room.data() + 2048};
    EXPECT_FALSE(CpuRansKernels(width).encode(table, codes.data(), 100, 500,
                                              states, stream));
    const auto changed = [&](size_t begin, size_t end) {
      return std::any_of(room.begin() + begin, room.begin() + end,
                         [](char byte) { return byte != 'x'; });
    };
    const size_t most = 500 + kMaxRansUnitReadBytes;
    EXPECT_FALSE(changed(0, 2048 - most));
    EXPECT_TRUE(changed(2048 - most, 2048 + most));
    EXPECT_FALSE(changed(2048 + most, room.size()));
  }
}

}  // namespace
}  // namespace causeway
