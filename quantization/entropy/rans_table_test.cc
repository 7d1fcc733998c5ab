// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/entropy/rans_table.h"

#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

uint32_t Sum(const RansTable& table) {
  return std::accumulate(table.frequency.begin(), table.frequency.end(), 0u);
}

std::string Write(const RansTable& table) {
  std::string bytes(kMaxRansTableBytes, '\0');
  bytes.resize(WriteRansTable(table, bytes.data()));
  return bytes;
}

class RansTableTest : public testing::TestWithParam<SymbolWidth> {
 protected:
  const SymbolWidth width_ = GetParam();
  const size_t alphabet_ = AlphabetSize(width_);
};

INSTANTIATE_TEST_SUITE_P(Widths, RansTableTest,
                         testing::Values(SymbolWidth::kNibble,
                                         SymbolWidth::kByte),
                         [](const auto& info) {
                           return info.param == SymbolWidth::kNibble ? "Nibble"
                                                                     : "Byte";
                         });

TEST_P(RansTableTest, KeepsExactProportions) {
  // The proportions are a quarter, a quarter and a half.
  std::vector<uint32_t> counts(alphabet_);
  counts[0] = 1000;
  counts[3] = 1000;
  counts[alphabet_ - 1] = 2000;
  const RansTable table = NormalizedTable(width_, counts);
  EXPECT_EQ(table.frequency[0], 1024);
  EXPECT_EQ(table.frequency[3], 1024);
  EXPECT_EQ(table.frequency[alphabet_ - 1], 2048);
  EXPECT_EQ(Sum(table), kRansTotal);
}

TEST_P(RansTableTest, WhatOccursHasAFrequency) {
  std::vector<uint32_t> counts(alphabet_, 1);
  counts[5] = 1 << 30;
  const RansTable table = NormalizedTable(width_, counts);
  EXPECT_EQ(table.frequency[5], kRansTotal - alphabet_ + 1);
  EXPECT_EQ(table.frequency[6], 1);
  EXPECT_EQ(Sum(table), kRansTotal);
}

TEST_P(RansTableTest, TiesAreDecidedInTheOrderOfTwosComplement) {
  // 3 x 1365.33 leaves 1, which goes to the least symbol.
  std::vector<uint32_t> counts(alphabet_);
  counts[0] = counts[1] = counts[alphabet_ - 2] = 7;
  const RansTable table = NormalizedTable(width_, counts);
  EXPECT_EQ(table.frequency[alphabet_ - 2], 1366);
  EXPECT_EQ(table.frequency[0], 1365);
  EXPECT_EQ(table.frequency[1], 1365);
}

TEST_P(RansTableTest, RoundTripsRandomTables) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<uint32_t> counts(alphabet_);
    const uint32_t spread = random() % 31;
    const size_t symbols = 1 + random() % alphabet_;
    for (size_t i = 0; i < symbols; ++i) {
      counts[random() % alphabet_] = static_cast<uint32_t>(random()) >> spread;
    }
    counts[random() % alphabet_] |= 1;
    const RansTable table = NormalizedTable(width_, counts);
    ASSERT_EQ(Sum(table), kRansTotal);
    for (size_t code = 0; code < alphabet_; ++code) {
      ASSERT_EQ(table.frequency[code] > 0, counts[code] > 0);
    }
    const std::string written = Write(table);
    const std::string longer = written + "rest";
    absl::string_view bytes = longer;
    const absl::StatusOr<RansTable> read = ReadRansTable(width_, bytes);
    ASSERT_THAT(read, IsOk());
    EXPECT_EQ(read->frequency, table.frequency);
    EXPECT_EQ(bytes, "rest");
  }
}

TEST_P(RansTableTest, RefusesEveryPrefix) {
  std::vector<uint32_t> counts(alphabet_);
  std::iota(counts.begin(), counts.end(), 1u);
  const std::string written = Write(NormalizedTable(width_, counts));
  for (size_t size = 0; size < written.size(); ++size) {
    absl::string_view bytes(written.data(), size);
    EXPECT_THAT(ReadRansTable(width_, bytes), IsInvalidArgument());
    EXPECT_EQ(bytes.size(), size);
  }
}

// A reader accepts only tables that a writer could have written.
TEST_P(RansTableTest, ReadsOnlyWhatIsWritten) {
  std::vector<uint32_t> counts(alphabet_);
  for (size_t i = 0; i < 10; ++i) counts[(i * 3) % alphabet_] = 1u << i;
  const std::string good = Write(NormalizedTable(width_, counts));
  std::mt19937 random(2);
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = good;
    for (uint32_t flips = 1 + random() % 3; flips > 0; --flips) {
      damaged[random() % damaged.size()] ^=
          static_cast<char>(1 << random() % 8);
    }
    absl::string_view rest = damaged;
    const absl::StatusOr<RansTable> read = ReadRansTable(width_, rest);
    if (!read.ok()) {
      ASSERT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    ASSERT_EQ(Sum(*read), kRansTotal);
    ASSERT_EQ(Write(*read), damaged.substr(0, damaged.size() - rest.size()));
  }
}

TEST(RansTableBytesTest, OneSymbol) {
  // First and last are -8 + 8 = 0. z = 8192 at order 4 gives v = 8208 and n =
  // 13: nine ones, a zero, and 16 in 13 bits, so that bit 10 + 4 = 14 is set.
  std::vector<uint32_t> counts(16);
  counts[8] = 1;
  const RansTable table = NormalizedTable(SymbolWidth::kNibble, counts);
  EXPECT_EQ(Write(table), std::string("\x00\xff\x41\x00", 4));
}

TEST(RansTableBytesTest, FaultsAreNamed) {
  const auto expect_fault = [](const std::string& bytes, const char* fault) {
    absl::string_view view = bytes;
    EXPECT_THAT(ReadRansTable(SymbolWidth::kNibble, view).status(),
                IsInvalidArgument(fault));
  };
  expect_fault(std::string("\x01\xff\x41\x00", 4), "ends before it begins");
  expect_fault("\xff\xff\xff\xff\xff", "too large");
  expect_fault(std::string("\xff\xff\x01\x00", 4), "sums up to");
  expect_fault(std::string("\xff\xff\x41\x80", 4), "not filled up with zeros");
}

}  // namespace
}  // namespace causeway
