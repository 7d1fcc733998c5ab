// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/chunk.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace causeway {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

std::string Object(size_t bytes) {
  std::string object(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) object[i] = static_cast<char>(i * 37 + 1);
  return object;
}

TEST(ChunkTest, HasOffsetAndCrcOfItsData) {
  const v1::Chunk chunk = MakeChunk("xx123456789yy", 2, 9);
  EXPECT_EQ(chunk.offset(), 2u);
  EXPECT_EQ(chunk.data(), "123456789");
  EXPECT_EQ(chunk.crc32c(), 0xe3069283);
}

TEST(ChunkTest, CutAndAssembledIsTheSameObjectForAnyChunkSize) {
  for (const size_t bytes : {1, 2, 9, 10, 11, 1000}) {
    const std::string object = Object(bytes);
    for (const uint64_t chunk_bytes : {1, 10, 999, 1000, 1001}) {
      std::string assembled(bytes, '\0');
      ChunkAssembler assembler(absl::MakeSpan(assembled));
      while (!assembler.complete()) {
        ASSERT_OK(assembler.Add(
            MakeChunk(object, assembler.next_offset(), chunk_bytes)));
      }
      EXPECT_EQ(assembled, object);
    }
  }
}

TEST(ChunkTest, AnAssemblerGoesOnWhereAnotherBrokeOff) {
  const std::string object = Object(10);
  std::string assembled(10, '\0');
  ChunkAssembler first(absl::MakeSpan(assembled));
  ASSERT_OK(first.Add(MakeChunk(object, 0, 7)));
  ChunkAssembler second(absl::MakeSpan(assembled), first.next_offset());
  EXPECT_FALSE(second.complete());
  ASSERT_OK(second.Add(MakeChunk(object, 7)));
  EXPECT_TRUE(second.complete());
  EXPECT_EQ(assembled, object);
}

TEST(ChunkTest, NoChunkExceedsTheLimit) {
  const std::string object = Object(kMaxChunkBytes + 1);
  EXPECT_EQ(MakeChunk(object, 0).data().size(), kMaxChunkBytes);
  EXPECT_EQ(MakeChunk(object, kMaxChunkBytes).data().size(), 1u);
}

TEST(ChunkTest, AnEmptyObjectIsCompleteWithoutAChunk) {
  EXPECT_TRUE(ChunkAssembler({}).complete());
}

class ChunkAssemblerTest : public testing::Test {
 protected:
  // Expects that `chunk` is refused and that the transfer goes on as if it
  // had never come.
  void ExpectRefused(const v1::Chunk& chunk, StatusCode code,
                     const std::string& message) {
    EXPECT_THAT(assembler_.Add(chunk), StatusIs(code, HasSubstr(message)));
    EXPECT_EQ(assembler_.next_offset(), 4u);
    EXPECT_EQ(assembled_, object_.substr(0, 4) + std::string(6, '\0'));
  }

  const std::string object_ = Object(10);
  std::string assembled_ = std::string(10, '\0');
  ChunkAssembler assembler_{absl::MakeSpan(assembled_)};

  void SetUp() override { ASSERT_OK(assembler_.Add(MakeChunk(object_, 0, 4))); }
  void TearDown() override {
    EXPECT_OK(assembler_.Add(MakeChunk(object_, 4)));
    EXPECT_TRUE(assembler_.complete());
    EXPECT_EQ(assembled_, object_);
  }
};

TEST_F(ChunkAssemblerTest, RefusesGapsAndRepetitions) {
  ExpectRefused(MakeChunk(object_, 5, 2), StatusCode::kInvalidArgument,
                "begins at offset 5, want 4");
  ExpectRefused(MakeChunk(object_, 0, 4), StatusCode::kInvalidArgument,
                "begins at offset 0, want 4");
}

TEST_F(ChunkAssemblerTest, RefusesDataBeyondTheEnd) {
  ExpectRefused(MakeChunk(Object(11), 4, 7), StatusCode::kInvalidArgument,
                "chunk of 7 bytes at offset 4 goes beyond the object's 10");
}

TEST_F(ChunkAssemblerTest, RefusesEmptyAndOversizedChunks) {
  v1::Chunk chunk;
  chunk.set_offset(4);
  ExpectRefused(chunk, StatusCode::kInvalidArgument, "has 0 bytes, want 1 to");
  chunk.set_data(std::string(kMaxChunkBytes + 1, 'a'));
  ExpectRefused(chunk, StatusCode::kInvalidArgument, "has 1048577 bytes");
}

TEST_F(ChunkAssemblerTest, RefusesDamagedData) {
  v1::Chunk chunk = MakeChunk(object_, 4);
  (*chunk.mutable_data())[2] ^= 0x10;
  ExpectRefused(chunk, StatusCode::kDataLoss,
                "chunk of 6 bytes at offset 4 has CRC-32C");
}

}  // namespace
}  // namespace causeway
