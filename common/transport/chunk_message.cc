// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/chunk_message.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/slice.h"
#include "proto/fragment.pb.h"

namespace causeway {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;
using Wire = google::protobuf::internal::WireFormatLite;

constexpr uint32_t kOffsetTag =
    v1::Chunk::kOffsetFieldNumber << 3 | Wire::WIRETYPE_VARINT;
constexpr uint32_t kCrcTag =
    v1::Chunk::kCrc32CFieldNumber << 3 | Wire::WIRETYPE_FIXED32;
constexpr uint32_t kDataTag =
    v1::Chunk::kDataFieldNumber << 3 | Wire::WIRETYPE_LENGTH_DELIMITED;
constexpr uint32_t kCompressionTag =
    v1::Chunk::kCompressionFieldNumber << 3 | Wire::WIRETYPE_VARINT;
constexpr uint32_t kRawBytesTag =
    v1::Chunk::kRawBytesFieldNumber << 3 | Wire::WIRETYPE_VARINT;

uint32_t MessageTag(int field) {
  return static_cast<uint32_t>(field) << 3 | Wire::WIRETYPE_LENGTH_DELIMITED;
}

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the bytes are not the message that is expected: ", what));
}

void ReleaseOwner(void* owner) {
  delete static_cast<std::shared_ptr<const void>*>(owner);
}

// Returns the chunk's fields up to its data.
std::string ChunkHead(const Chunk& chunk) {
  std::string head;
  StringOutputStream stream(&head);
  CodedOutputStream out(&stream);
  // Like protobuf, this leaves out fields that are zero.
  if (chunk.offset != 0) {
    out.WriteTag(kOffsetTag);
    out.WriteVarint64(chunk.offset);
  }
  if (chunk.crc32c != 0) {
    out.WriteTag(kCrcTag);
    out.WriteLittleEndian32(chunk.crc32c);
  }
  out.WriteTag(kDataTag);
  out.WriteVarint64(chunk.size());
  out.Trim();
  return head;
}

// Returns the chunk's fields after its data.
std::string ChunkTail(const Chunk& chunk) {
  std::string tail;
  StringOutputStream stream(&tail);
  CodedOutputStream out(&stream);
  if (chunk.compression != 0) {
    out.WriteTag(kCompressionTag);
    out.WriteVarint32(chunk.compression);
  }
  if (chunk.raw_bytes != 0) {
    out.WriteTag(kRawBytesTag);
    out.WriteVarint32(chunk.raw_bytes);
  }
  out.Trim();
  return tail;
}

// Takes `bytes` bytes from `in` as pieces that point into its buffers.
bool TakePieces(CodedInputStream& in, uint32_t bytes,
                std::vector<absl::string_view>& pieces) {
  while (bytes > 0) {
    const void* data = nullptr;
    int available = 0;
    if (!in.GetDirectBufferPointer(&data, &available)) return false;
    const uint32_t taken = std::min(bytes, static_cast<uint32_t>(available));
    pieces.emplace_back(static_cast<const char*>(data), taken);
    in.Skip(static_cast<int>(taken));
    bytes -= taken;
  }
  return true;
}

// Reads one field of a v1::Chunk; false if it is cut off.
bool ParseChunkField(CodedInputStream& in, uint32_t tag, Chunk& chunk) {
  uint32_t length = 0;
  switch (tag) {
    case kOffsetTag:
      return in.ReadVarint64(&chunk.offset);
    case kCrcTag:
      return in.ReadLittleEndian32(&chunk.crc32c);
    case kDataTag:
      return in.ReadVarint32(&length) &&
             length <= static_cast<uint32_t>(in.BytesUntilLimit()) &&
             TakePieces(in, length, chunk.pieces);
    case kCompressionTag:
      return in.ReadVarint32(&chunk.compression);
    case kRawBytesTag:
      return in.ReadVarint32(&chunk.raw_bytes);
    default:
      return Wire::SkipField(&in, tag);
  }
}

absl::Status ParseChunk(CodedInputStream& in, Chunk& chunk) {
  uint32_t length = 0;
  if (!in.ReadVarint32(&length) ||
      length > static_cast<uint32_t>(in.BytesUntilLimit())) {
    return Malformed("the chunk ends beyond the message");
  }
  const CodedInputStream::Limit outer = in.PushLimit(static_cast<int>(length));
  std::set<uint32_t> seen;
  while (in.BytesUntilLimit() > 0) {
    const uint32_t tag = in.ReadTag();
    if (!seen.insert(tag).second) {
      return Malformed("the chunk has a field more than once");
    }
    if (!ParseChunkField(in, tag, chunk)) {
      return Malformed("the chunk is cut off");
    }
  }
  in.PopLimit(outer);
  return absl::OkStatus();
}

// Splits the message into the chunk and the bytes of all other fields. Returns
// whether there is a chunk.
absl::StatusOr<bool> Split(CodedInputStream& in, uint32_t chunk_tag,
                           std::string& fields, Chunk& chunk) {
  StringOutputStream stream(&fields);
  CodedOutputStream out(&stream);
  bool has_chunk = false;
  while (in.BytesUntilLimit() > 0) {
    const uint32_t tag = in.ReadTag();
    if (tag == chunk_tag) {
      if (has_chunk) return Malformed("it has more than one chunk");
      has_chunk = true;
      RETURN_IF_ERROR(ParseChunk(in, chunk));
    } else if (!Wire::SkipField(&in, tag, &out)) {
      return Malformed("a field is cut off");
    }
  }
  return has_chunk;
}

}  // namespace

grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message,
                              int chunk_field, const Chunk& chunk,
                              std::shared_ptr<const void> owner) {
  const std::string chunk_head = ChunkHead(chunk);
  const std::string chunk_tail = ChunkTail(chunk);
  std::string head = message.SerializeAsString();
  {
    StringOutputStream stream(&head);
    CodedOutputStream out(&stream);
    out.WriteTag(MessageTag(chunk_field));
    out.WriteVarint64(chunk_head.size() + chunk.size() + chunk_tail.size());
    out.WriteString(chunk_head);
  }
  std::vector<grpc::Slice> slices = {grpc::Slice(head)};
  for (const absl::string_view piece : chunk.pieces) {
    slices.emplace_back(const_cast<char*>(piece.data()), piece.size(),
                        ReleaseOwner, new std::shared_ptr<const void>(owner));
  }
  if (!chunk_tail.empty()) slices.emplace_back(chunk_tail);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::StatusOr<bool> ParseByteBuffer(grpc::ByteBuffer& buffer, int chunk_field,
                                     google::protobuf::MessageLite& fields,
                                     Chunk& chunk) {
  fields.Clear();
  chunk = {};
  const uint64_t bytes = buffer.Length();
  if (bytes > kMaxChunkBytes + kMaxFieldBytes) {
    return Malformed(absl::StrCat("it has ", bytes, " bytes"));
  }
  if (bytes == 0) return false;
  grpc::ProtoBufferReader reader(&buffer);
  if (!reader.status().ok()) return Malformed(reader.status().error_message());
  std::string field_bytes;
  bool has_chunk = false;
  {
    CodedInputStream in(&reader);
    in.PushLimit(static_cast<int>(bytes));
    ASSIGN_OR_RETURN(has_chunk,
                     Split(in, MessageTag(chunk_field), field_bytes, chunk));
  }
  if (field_bytes.size() > kMaxFieldBytes) {
    return Malformed(
        absl::StrCat("it has ", field_bytes.size(), " bytes beside the chunk"));
  }
  if (!fields.ParseFromString(field_bytes)) {
    return Malformed("a field is not what its type says");
  }
  return has_chunk;
}

absl::Status ParseByteBuffer(grpc::ByteBuffer& buffer,
                             google::protobuf::MessageLite& message) {
  if (buffer.Length() > kMaxFieldBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the message has ", buffer.Length(), " bytes; at most ",
                     kMaxFieldBytes, " are allowed"));
  }
  // Field numbers begin at 1, so no field is taken for a chunk.
  Chunk none;
  return ParseByteBuffer(buffer, 0, message, none).status();
}

}  // namespace causeway
