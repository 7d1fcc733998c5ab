// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads foreign bytes as a stream of messages with chunks. Accepted messages
// must be those that protobuf reads from the same bytes, if it accepts them.
// Input:
//
//   byte 0    the network's slices have 1 + byte bytes
//   the rest  messages: length (2 bytes, little-endian), bytes
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/checksum.h"
#include "common/transport/chunk.h"
#include "common/transport/chunk_message.h"
#include "glog/logging.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "proto/coordinator.pb.h"

namespace causeway {
namespace {

constexpr uint64_t kObjectBytes = 4096;

grpc::ByteBuffer BufferOf(absl::string_view bytes, size_t slice_bytes) {
  std::vector<grpc::Slice> slices;
  for (size_t begin = 0; begin < bytes.size(); begin += slice_bytes) {
    const absl::string_view slice = bytes.substr(begin, slice_bytes);
    slices.emplace_back(slice.data(), slice.size());
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

void CheckAgainstProtobuf(absl::string_view bytes, bool has_chunk,
                          v1::FetchUpdateResponse fields, const Chunk& chunk) {
  v1::FetchUpdateResponse whole;
  // Protobuf refuses varints with more bytes than their numbers need;
  // CodedInputStream reads them.
  if (!whole.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return;
  }
  CHECK_EQ(whole.has_chunk(), has_chunk);
  std::string data;
  for (const absl::string_view piece : chunk.pieces) {
    absl::StrAppend(&data, piece);
  }
  CHECK_EQ(whole.chunk().offset(), chunk.offset);
  CHECK_EQ(whole.chunk().crc32c(), chunk.crc32c);
  CHECK(whole.chunk().data() == data);
  whole.clear_chunk();
  CHECK(whole.SerializeAsString() == fields.SerializeAsString());
}

void Run(absl::string_view input) {
  if (input.empty()) return;
  const size_t slice_bytes = 1 + static_cast<uint8_t>(input[0]);
  input.remove_prefix(1);
  std::string object(kObjectBytes, '\0');
  ChunkAssembler assembler(absl::MakeSpan(object));
  while (input.size() >= 2) {
    const size_t length =
        static_cast<uint8_t>(input[0]) | static_cast<uint8_t>(input[1]) << 8;
    const absl::string_view message = input.substr(2, length);
    input.remove_prefix(2 + message.size());
    grpc::ByteBuffer buffer = BufferOf(message, slice_bytes);
    v1::FetchUpdateResponse fields;
    Chunk chunk;
    const absl::StatusOr<bool> has_chunk = ParseByteBuffer(
        buffer, v1::FetchUpdateResponse::kChunkFieldNumber, fields, chunk);
    if (!has_chunk.ok()) continue;
    CheckAgainstProtobuf(message, *has_chunk, fields, chunk);
    const uint64_t before = assembler.next_offset();
    const bool added = assembler.Add(chunk).ok();
    CHECK_EQ(assembler.next_offset(), before + (added ? chunk.size() : 0));
    CHECK_EQ(assembler.digest(), Digest128(absl::string_view(object).substr(
                                     0, assembler.next_offset())));
  }
}

}  // namespace
}  // namespace causeway

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  causeway::Run(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
