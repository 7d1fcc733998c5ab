// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/chunk.h"

#include <cstdint>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checksum.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;

std::string Object(size_t bytes) {
  std::string object(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) object[i] = static_cast<char>(i * 37 + 1);
  return object;
}

TEST(ChunkTest, HasOffsetAndCrcOfItsData) {
  const Chunk chunk = CutChunk("xx123456789yy", 2, 9);
  EXPECT_EQ(chunk.offset, 2u);
  EXPECT_EQ(chunk.crc32c, 0xe3069283);
  EXPECT_THAT(chunk.pieces, ElementsAre("123456789"));
}

TEST(ChunkTest, CutAndAssembledIsTheSameObjectForAnyChunkSize) {
  for (const size_t bytes : {1, 2, 9, 10, 11, 1000, 100'000}) {
    const std::string object = Object(bytes);
    for (const uint64_t chunk_bytes : {1, 10, 999, 1000, 1001, 70'000}) {
      std::string assembled(bytes, '\0');
      ChunkAssembler assembler(absl::MakeSpan(assembled));
      while (assembler.next_offset() < bytes) {
        ASSERT_OK(assembler.Add(
            CutChunk(object, assembler.next_offset(), chunk_bytes)));
      }
      EXPECT_EQ(assembled, object);
      EXPECT_EQ(assembler.digest(), Digest128(object));
    }
  }
}

TEST(ChunkTest, PiecesAreOneChunk) {
  const std::string object = Object(50'000);
  const absl::string_view data = object;
  for (const size_t piece : {1, 16'384, 20'000}) {
    Chunk chunk = CutChunk(object, 0);
    chunk.pieces.clear();
    for (size_t begin = 0; begin < data.size(); begin += piece) {
      chunk.pieces.push_back(data.substr(begin, piece));
    }
    EXPECT_EQ(chunk.size(), object.size());
    std::string assembled(object.size(), '\0');
    ChunkAssembler assembler(absl::MakeSpan(assembled));
    ASSERT_OK(assembler.Add(chunk));
    EXPECT_EQ(assembled, object);
    EXPECT_EQ(assembler.digest(), Digest128(object));
  }
}

TEST(ChunkTest, DataIsLookedAtInOrderWhereverItIsTo) {
  const std::string object = Object(300'000);
  for (const auto use :
       {ChunkAssembler::Use::kSoon, ChunkAssembler::Use::kLater}) {
    // The destination does not begin at a cache line.
    std::string assembled(object.size() + 1, '\0');
    ChunkAssembler assembler(absl::MakeSpan(assembled).subspan(1), use);
    std::string looked;
    while (assembler.next_offset() < object.size()) {
      ASSERT_OK(
          assembler.Add(CutChunk(object, assembler.next_offset(), 100'001),
                        [&looked](absl::string_view piece) {
                          looked.append(piece.data(), piece.size());
                        }));
      EXPECT_EQ(looked.size(), assembler.next_offset());
    }
    EXPECT_EQ(looked, object);
    EXPECT_EQ(assembled.substr(1), object);
    EXPECT_EQ(assembler.digest(), Digest128(object));
  }
}

TEST(ChunkTest, NoChunkExceedsTheLimit) {
  const std::string object = Object(kMaxChunkBytes + 1);
  EXPECT_EQ(CutChunk(object, 0).size(), kMaxChunkBytes);
  EXPECT_EQ(CutChunk(object, kMaxChunkBytes).size(), 1u);
}

class ChunkAssemblerTest : public testing::Test {
 protected:
  // Expects that `chunk` is refused and that the transfer continues as if it
  // had not arrived.
  void ExpectRefused(const Chunk& chunk, StatusCode code,
                     const std::string& message) {
    EXPECT_THAT(assembler_.Add(chunk), StatusIs(code, HasSubstr(message)));
    EXPECT_EQ(assembler_.next_offset(), 4u);
    EXPECT_EQ(assembled_.substr(0, 4), object_.substr(0, 4));
    EXPECT_EQ(assembler_.digest(), Digest128(object_.substr(0, 4)));
  }

  const std::string object_ = Object(10);
  std::string assembled_ = std::string(10, '\0');
  ChunkAssembler assembler_{absl::MakeSpan(assembled_)};

  void SetUp() override { ASSERT_OK(assembler_.Add(CutChunk(object_, 0, 4))); }
  void TearDown() override {
    EXPECT_OK(assembler_.Add(CutChunk(object_, 4)));
    EXPECT_EQ(assembled_, object_);
    EXPECT_EQ(assembler_.digest(), Digest128(object_));
  }
};

TEST_F(ChunkAssemblerTest, RefusesGapsAndRepetitions) {
  ExpectRefused(CutChunk(object_, 5, 2), StatusCode::kInvalidArgument,
                "begins at offset 5, want 4");
  ExpectRefused(CutChunk(object_, 0, 4), StatusCode::kInvalidArgument,
                "begins at offset 0, want 4");
}

TEST_F(ChunkAssemblerTest, RefusesDataBeyondTheEnd) {
  const std::string longer = Object(11);
  ExpectRefused(CutChunk(longer, 4, 7), StatusCode::kInvalidArgument,
                "chunk of 7 bytes at offset 4 goes beyond the object's 10");
}

TEST_F(ChunkAssemblerTest, RefusesEmptyAndOversizedChunks) {
  Chunk chunk{.offset = 4};
  ExpectRefused(chunk, StatusCode::kInvalidArgument, "has 0 bytes, want 1 to");
  const std::string data(kMaxChunkBytes + 1, 'a');
  chunk.pieces = {data};
  ExpectRefused(chunk, StatusCode::kInvalidArgument, "has 1048577 bytes");
}

TEST_F(ChunkAssemblerTest, RefusesCompressedChunks) {
  Chunk chunk = CutChunk(object_, 4);
  chunk.compression = 1;
  ExpectRefused(chunk, StatusCode::kInvalidArgument,
                "chunk at offset 4 is compressed (1)");
}

TEST_F(ChunkAssemblerTest, RefusesDamagedData) {
  Chunk chunk = CutChunk(object_, 4);
  std::string damaged(chunk.pieces[0]);
  damaged[2] ^= 0x10;
  chunk.pieces = {damaged};
  ExpectRefused(chunk, StatusCode::kDataLoss,
                "chunk of 6 bytes at offset 4 has CRC-32C");
}

// Returns values with similar exponents, followed by noise.
std::string NoisyObject() {
  std::mt19937 random(1);
  std::string object(300'001, '\0');
  for (size_t i = 0; i < object.size(); ++i) {
    const bool is_exponent = i < 200'000 && i % 4 == 3;
    object[i] = is_exponent ? 'a' : static_cast<char>(random());
  }
  return object;
}

TEST(CompressedChunkTest, ObjectsComeBackAndGoOnAtAnyChunk) {
  const std::string object = NoisyObject();
  std::string received(object.size(), '\0');
  ChunkAssembler assembler(absl::MakeSpan(received));
  uint64_t compressed = 0;
  uint64_t raw = 0;
  for (uint64_t offset = 0; offset < object.size();) {
    std::string memory;
    Chunk chunk = CompressChunk(CutChunk(object, offset, 50'000), memory);
    (chunk.compression == 0 ? raw : compressed) += 1;
    if (chunk.compression != 0) {
      EXPECT_LT(chunk.size(), 40'000u);
      // The data are in pieces, as the network delivers them.
      const absl::string_view data = chunk.pieces[0];
      chunk.pieces = {data.substr(0, 7), data.substr(7)};
    }
    std::string decompressed;
    ASSERT_OK_AND_ASSIGN(const Chunk got, DecompressChunk(chunk, decompressed));
    ASSERT_OK(assembler.Add(got));
    offset = assembler.next_offset();
  }
  EXPECT_TRUE(received == object);
  EXPECT_EQ(compressed, 4u);
  EXPECT_EQ(raw, 3u);
}

class BadChunkTest : public testing::Test {
 protected:
  BadChunkTest() : chunk_(CompressChunk(CutChunk(object_, 0), memory_)) {
    EXPECT_EQ(chunk_.compression, 1u);
  }

  absl::Status Decompress() {
    std::string decompressed;
    return DecompressChunk(chunk_, decompressed).status();
  }

  const std::string object_ = NoisyObject().substr(0, 100'000);
  std::string memory_;
  Chunk chunk_;
};

TEST_F(BadChunkTest, OfAnUnknownCompressionIsRefused) {
  EXPECT_OK(Decompress());
  chunk_.compression = 7;
  EXPECT_THAT(Decompress(),
              IsInvalidArgument("method 7, which this version does not "
                                "know"));
}

TEST_F(BadChunkTest, OfAnImpossibleSizeIsRefused) {
  for (const uint32_t bytes :
       {0u, 1u, static_cast<uint32_t>(chunk_.size()), (1u << 20) + 1, ~0u}) {
    chunk_.raw_bytes = bytes;
    EXPECT_THAT(Decompress(), IsInvalidArgument()) << bytes;
  }
  chunk_.raw_bytes = static_cast<uint32_t>(chunk_.size());
  EXPECT_THAT(Decompress(), IsInvalidArgument("want fewer bytes"));
  chunk_.raw_bytes = 100'004;
  EXPECT_THAT(Decompress(), IsInvalidArgument());
}

TEST_F(BadChunkTest, DamagedOnTheWayIsDataLoss) {
  memory_[100] ^= 1;
  EXPECT_THAT(Decompress(), IsDataLoss());
}

TEST_F(BadChunkTest, ThatIsCompressedGoesIntoNoObject) {
  std::string received(object_.size(), '\0');
  ChunkAssembler assembler(absl::MakeSpan(received));
  EXPECT_THAT(assembler.Add(chunk_), IsInvalidArgument("is compressed (1)"));
}

}  // namespace
}  // namespace causeway
