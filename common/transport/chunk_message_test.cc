// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/chunk_message.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/unknown_field_set.h"
#include "grpcpp/support/slice.h"
#include "gtest/gtest.h"
#include "proto/coordinator.pb.h"

namespace causeway {
namespace {

constexpr int kChunkField = v1::FetchUpdateResponse::kChunkFieldNumber;

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

// Returns `bytes` in slices of `slice_bytes`.
grpc::ByteBuffer BufferOf(const std::string& bytes, size_t slice_bytes) {
  std::vector<grpc::Slice> slices;
  for (size_t begin = 0; begin < bytes.size(); begin += slice_bytes) {
    slices.emplace_back(bytes.substr(begin, slice_bytes));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string DataOf(const Chunk& chunk) {
  std::string data;
  for (const absl::string_view piece : chunk.pieces) {
    absl::StrAppend(&data, piece);
  }
  return data;
}

v1::FetchUpdateResponse Response() {
  v1::FetchUpdateResponse response;
  response.mutable_head()->set_version(300);
  response.mutable_object()->set_digest("digest");
  response.set_includes_island(true);
  return response;
}

std::string Data(size_t bytes) {
  std::string data(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 11 + 3);
  return data;
}

// Returns the message with the chunk as protobuf builds it.
v1::FetchUpdateResponse Whole(v1::FetchUpdateResponse response,
                              const Chunk& chunk) {
  response.mutable_chunk()->set_offset(chunk.offset);
  response.mutable_chunk()->set_crc32c(chunk.crc32c);
  response.mutable_chunk()->set_data(DataOf(chunk));
  response.mutable_chunk()->set_compression(
      static_cast<v1::Chunk::Compression>(chunk.compression));
  response.mutable_chunk()->set_raw_bytes(chunk.raw_bytes);
  return response;
}

TEST(ChunkMessageTest, BytesAreThoseOfProtobuf) {
  for (const size_t bytes : {1, 100, 127, 128, 20'000, 1 << 20}) {
    const std::string object = Data(bytes + 1000);
    for (const uint64_t offset : {0, 1, 1000}) {
      Chunk chunk = CutChunk(object, offset, bytes);
      // A peer may send unknown numbers.
      if (offset == 1000) chunk.compression = 77;
      if (offset > 0) chunk.raw_bytes = 1 << 20;
      for (const v1::FetchUpdateResponse& fields :
           {Response(), v1::FetchUpdateResponse()}) {
        EXPECT_EQ(BytesOf(ToByteBuffer(fields, kChunkField, chunk, nullptr)),
                  Whole(fields, chunk).SerializeAsString());
      }
    }
  }
}

TEST(ChunkMessageTest, ReadsWhatProtobufWritesHoweverItIsSliced) {
  const std::string object = Data(5000);
  Chunk sent = CutChunk(object, 7, 4000);
  sent.compression = 1;
  sent.raw_bytes = 5000;
  const std::string bytes = Whole(Response(), sent).SerializeAsString();
  for (const size_t slice_bytes : {1, 2, 3, 10, 23, 24, 100, 10'000}) {
    grpc::ByteBuffer buffer = BufferOf(bytes, slice_bytes);
    v1::FetchUpdateResponse fields;
    Chunk chunk;
    EXPECT_THAT(ParseByteBuffer(buffer, kChunkField, fields, chunk),
                IsOkAndHolds(true));
    EXPECT_EQ(fields.SerializeAsString(), Response().SerializeAsString());
    EXPECT_EQ(chunk.offset, 7u);
    EXPECT_EQ(chunk.crc32c, sent.crc32c);
    EXPECT_EQ(chunk.compression, 1u);
    EXPECT_EQ(chunk.raw_bytes, 5000u);
    EXPECT_EQ(DataOf(chunk), DataOf(sent));
  }
}

TEST(ChunkMessageTest, AMessageMayBeWithoutChunkOrFields) {
  v1::FetchUpdateResponse fields;
  Chunk chunk;
  grpc::ByteBuffer described = ToByteBuffer(Response());
  EXPECT_THAT(ParseByteBuffer(described, kChunkField, fields, chunk),
              IsOkAndHolds(false));
  EXPECT_EQ(fields.SerializeAsString(), Response().SerializeAsString());
  grpc::ByteBuffer empty = ToByteBuffer(v1::FetchUpdateResponse());
  EXPECT_THAT(ParseByteBuffer(empty, kChunkField, fields, chunk),
              IsOkAndHolds(false));
  EXPECT_FALSE(fields.has_head());
}

TEST(ChunkMessageTest, TheLastNumberOfAFieldCountsAsInProtobuf) {
  grpc::ByteBuffer buffer = BufferOf("\x22\x04\x08\x01\x08\x02", 1);
  v1::FetchUpdateResponse fields;
  Chunk chunk;
  EXPECT_THAT(ParseByteBuffer(buffer, kChunkField, fields, chunk),
              IsOkAndHolds(true));
  EXPECT_EQ(chunk.offset, 2u);
}

TEST(ChunkMessageTest, DataIsNotCopiedAndLivesAsLongAsTheBuffer) {
  auto owner = std::make_shared<const std::string>(Data(1 << 20));
  const std::weak_ptr<const std::string> watched = owner;
  const char* const data = owner->data();
  {
    const grpc::ByteBuffer buffer =
        ToByteBuffer(Response(), kChunkField, CutChunk(*owner, 0), owner);
    owner.reset();
    EXPECT_FALSE(watched.expired());
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(buffer.Dump(&slices).ok());
    EXPECT_EQ(reinterpret_cast<const char*>(slices.back().begin()), data);
  }
  EXPECT_TRUE(watched.expired());
}

class MalformedTest : public testing::Test {
 protected:
  void ExpectRefused(const std::string& bytes, const std::string& why) {
    for (const size_t slice_bytes : {size_t{1}, size_t{1} << 20}) {
      if (bytes.size() > 100'000 && slice_bytes == 1) continue;
      grpc::ByteBuffer buffer = BufferOf(bytes, slice_bytes);
      v1::FetchUpdateResponse fields;
      Chunk chunk;
      EXPECT_THAT(ParseByteBuffer(buffer, kChunkField, fields, chunk),
                  IsInvalidArgument(why));
    }
  }
};

TEST_F(MalformedTest, CutOffAnywhere) {
  const std::string object = Data(40);
  const std::string bytes =
      Whole(Response(), CutChunk(object, 7)).SerializeAsString();
  // A message cut between two fields is a valid, shorter message.
  const size_t described = Response().ByteSizeLong();
  for (size_t end = described + 1; end < bytes.size(); ++end) {
    ExpectRefused(bytes.substr(0, end), "");
  }
}

TEST_F(MalformedTest, NoProtobufAtAll) {
  ExpectRefused(std::string(20, '\xff'), "cut off");
  ExpectRefused(std::string(1, '\0'), "cut off");
  // Field 1 is a message, and these bytes are not one.
  ExpectRefused("\x0a\x02\xff\xff", "does not have its declared type");
}

TEST_F(MalformedTest, LengthsBeyondTheMessage) {
  // Field 4 of 2^28 - 1 and of 2^32 - 1 bytes.
  ExpectRefused("\x22\xff\xff\xff\x7f\x08\x01", "beyond the message");
  ExpectRefused("\x22\xff\xff\xff\xff\x0f\x08\x01", "beyond the message");
  // A chunk of 4 bytes whose data has 100.
  ExpectRefused("\x22\x04\x1a\x64\x01\x02", "beyond the message");
}

TEST_F(MalformedTest, ChunksAndDataMoreThanOnce) {
  const std::string object = Data(40);
  const std::string chunk = Whole({}, CutChunk(object, 7)).SerializeAsString();
  ExpectRefused(chunk + chunk, "field 4 more than once");
  ExpectRefused("\x22\x06\x1a\x01x\x1a\x01y", "field 3 more than once");
}

TEST_F(MalformedTest, LargerThanAnyMessage) {
  v1::FetchUpdateResponse response = Response();
  response.mutable_object()->set_digest(std::string(kMaxFieldBytes, 'x'));
  ExpectRefused(response.SerializeAsString(), "bytes beside field 4");
  response.mutable_object()->set_digest(std::string(2 << 20, 'x'));
  ExpectRefused(response.SerializeAsString(), "it has 20");
}

TEST_F(MalformedTest, ChunksWithTooMuchThatIsUnknown) {
  v1::FetchUpdateResponse response;
  v1::Chunk* const chunk = response.mutable_chunk();
  chunk->GetReflection()->MutableUnknownFields(chunk)->AddLengthDelimited(
      15, std::string(kMaxFieldBytes, 'x'));
  ExpectRefused(response.SerializeAsString(), "bytes beside field 3");
}

TEST_F(MalformedTest, DamagedBytesNeverDoHarm) {
  const std::string object = Data(60);
  const std::string bytes =
      Whole(Response(), CutChunk(object, 7)).SerializeAsString();
  uint32_t random = 1;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string damaged = bytes;
    for (int i = 0; i < 3; ++i) {
      random = random * 1664525 + 1013904223;
      damaged[(random >> 8) % damaged.size()] = static_cast<char>(random >> 24);
    }
    grpc::ByteBuffer buffer = BufferOf(damaged, random % 30 + 1);
    v1::FetchUpdateResponse fields;
    Chunk chunk;
    const absl::StatusOr<bool> parsed =
        ParseByteBuffer(buffer, kChunkField, fields, chunk);
    EXPECT_TRUE(!parsed.ok() || chunk.size() <= damaged.size());
  }
}

}  // namespace
}  // namespace causeway
