// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/checksum.h"

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

// Lengths around the word, stripe and block sizes of both algorithms.
const std::vector<size_t> kLengths = {0,   1,   3,   8,    16,   17,  128,
                                      129, 240, 241, 1023, 1024, 5000};

std::string Pattern(size_t length) {
  std::string data(length, '\0');
  for (size_t i = 0; i < length; ++i) {
    data[i] = static_cast<char>(i * 131 + i / 7);
  }
  return data;
}

// Computes the CRC one bit at a time, from the definition.
uint32_t Crc32cBitByBit(absl::string_view data) {
  uint32_t crc = 0xffffffff;
  for (const char c : data) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    }
  }
  return ~crc;
}

TEST(Crc32cTest, HasThePublishedCheckValues) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283);
  EXPECT_EQ(Crc32c(""), 0u);
  // The examples of RFC 3720 B.4.
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aa);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43);
}

TEST(Crc32cTest, EqualsTheBitwiseDefinitionAtAnyLengthAndAlignment) {
  const std::string data = Pattern(5016);
  for (const size_t length : kLengths) {
    for (size_t start = 0; start < 16; start += 5) {
      const absl::string_view piece(data.data() + start, length);
      EXPECT_EQ(Crc32c(piece), Crc32cBitByBit(piece)) << start << "+" << length;
    }
  }
}

TEST(Crc32cTest, ExtendsOverAnyCut) {
  const std::string data = Pattern(1000);
  for (const size_t cut : {0, 1, 7, 500, 999, 1000}) {
    const absl::string_view all(data);
    EXPECT_EQ(ExtendCrc32c(Crc32c(all.substr(0, cut)), all.substr(cut)),
              Crc32c(data));
  }
}

// Golden values from xxHash's own xxhsum -H2 (0.8.1).
TEST(Digest128Test, IsTheCanonicalBigEndianForm) {
  EXPECT_EQ(DigestToHex(Digest128("")), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(DigestToHex(Digest128("123456789")),
            "33119477ede5dcd5e9716427681d5860");
  EXPECT_EQ(DigestToHex(Digest128(Pattern(5000))),
            "5c44c01fe3ac1de3e2a14a0ccc42f4f0");
}

TEST(Digest128Test, StreamEqualsOneShotForAnyCut) {
  for (const size_t length : kLengths) {
    const std::string data = Pattern(length);
    for (const size_t piece : {1, 13, 256, 6000}) {
      Digest128Stream stream;
      for (size_t i = 0; i < length; i += piece) {
        stream.Update(absl::string_view(data).substr(i, piece));
      }
      EXPECT_EQ(stream.Finish(), Digest128(data)) << length << "/" << piece;
    }
  }
}

TEST(Digest128Test, StreamCanBeReadBetweenUpdates) {
  Digest128Stream stream;
  stream.Update("ab");
  EXPECT_EQ(stream.Finish(), Digest128("ab"));
  stream.Update("c");
  EXPECT_EQ(stream.Finish(), Digest128("abc"));
}

TEST(Digest128Test, ContinuesFromASavedStateInAnotherStream) {
  for (const size_t size : {0u, 1u, 3u, 59u, 60u, 61u, 64u, 1000u, 100'003u}) {
    std::vector<float> values(size);
    for (size_t i = 0; i < size; ++i) values[i] = 0.5f * static_cast<float>(i);
    const absl::Span<const float> all = values;
    for (const size_t parts : {1u, 2u, 3u, 7u}) {
      std::string state = Digest128Stream().Save();
      std::string digest;
      for (size_t part = 0; part < parts; ++part) {
        Digest128Stream next;
        // Restore replaces any earlier state.
        next.Update({1.0f, 2.0f});
        next.Restore(state);
        const size_t begin = size * part / parts;
        next.Update(all.subspan(begin, size * (part + 1) / parts - begin));
        state = next.Save();
        digest = next.Finish();
      }
      EXPECT_EQ(state.size(), Digest128Stream::kStateBytes);
      EXPECT_EQ(digest, Digest128(all)) << size << " in " << parts;
    }
  }
}

TEST(Digest128Test, ValuesAreHashedAsLittleEndianBinary32) {
  const std::vector<float> values = {1.0f, -2.0f};
  const std::string bytes("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8);
  EXPECT_EQ(Digest128(values), Digest128(bytes));
  Digest128Stream stream;
  stream.Update(values);
  EXPECT_EQ(stream.Finish(), Digest128(bytes));
}

TEST(Digest128Test, TellsZeroFromNegativeZero) {
  EXPECT_NE(Digest128(std::vector<float>{0.0f}),
            Digest128(std::vector<float>{-0.0f}));
}

}  // namespace
}  // namespace causeway
