// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/testing/status_matchers.h"
#include "common/transport/chunk.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

// Returns values with similar exponents, followed by noise.
std::string Object() {
  std::mt19937 random(1);
  std::string object(300'001, '\0');
  for (size_t i = 0; i < object.size(); ++i) {
    const bool is_exponent = i < 200'000 && i % 4 == 3;
    object[i] = is_exponent ? 'a' : static_cast<char>(random());
  }
  return object;
}

TEST(CompressedChunkTest, ObjectsComeBackAndGoOnAtAnyChunk) {
  const std::string object = Object();
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

  const std::string object_ = Object().substr(0, 100'000);
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
