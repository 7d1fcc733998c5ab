// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/transport/chunk_message.h"

#include <string>
#include <utility>
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

// Returns the tag of a field of bytes or of a message.
uint32_t TagOf(int field) {
  return static_cast<uint32_t>(field) << 3 | Wire::WIRETYPE_LENGTH_DELIMITED;
}

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the bytes are not the expected message: ", what));
}

void ReleaseOwner(void* owner) {
  delete static_cast<std::shared_ptr<const void>*>(owner);
}

// Appends the tag and the length of a field of `size` bytes.
void AppendHeader(int field, uint64_t size, std::string& bytes) {
  StringOutputStream stream(&bytes);
  CodedOutputStream out(&stream);
  out.WriteTag(TagOf(field));
  out.WriteVarint64(size);
}

// Takes the bytes up to the limit of `in` as pieces that point into its
// buffers.
absl::Status TakePieces(CodedInputStream& in,
                        std::vector<absl::string_view>& pieces) {
  while (in.BytesUntilLimit() > 0) {
    const void* data = nullptr;
    int size = 0;
    if (!in.GetDirectBufferPointer(&data, &size)) {
      return Malformed("the chunk's data are cut off");
    }
    pieces.emplace_back(static_cast<const char*>(data),
                        static_cast<size_t>(size));
    in.Skip(size);
  }
  return absl::OkStatus();
}

// Splits the message up to the limit of `in`. For the bytes of the field
// `large_field`, calls take(), which reads up to the limit that `in` then has.
// Appends all other fields to `others`. Returns whether there is such a field.
template <typename Take>
absl::StatusOr<bool> Split(CodedInputStream& in, int large_field,
                           const Take& take, std::string& others) {
  StringOutputStream stream(&others);
  CodedOutputStream out(&stream);
  bool has_field = false;
  while (in.BytesUntilLimit() > 0) {
    const uint32_t tag = in.ReadTag();
    if (tag != TagOf(large_field)) {
      if (Wire::SkipField(&in, tag, &out)) continue;
      return Malformed("a field is cut off");
    }
    if (std::exchange(has_field, true)) {
      return Malformed(
          absl::StrCat("it has field ", large_field, " more than once"));
    }
    uint32_t size = 0;
    if (!in.ReadVarint32(&size) ||
        size > static_cast<uint32_t>(in.BytesUntilLimit())) {
      return Malformed("a field ends beyond the message");
    }
    const CodedInputStream::Limit outer = in.PushLimit(static_cast<int>(size));
    RETURN_IF_ERROR(take());
    in.PopLimit(outer);
  }
  out.Trim();
  if (others.size() > kMaxFieldBytes) {
    return Malformed(absl::StrCat("it has ", others.size(),
                                  " bytes beside field ", large_field));
  }
  return has_field;
}

}  // namespace

grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message,
                              int chunk_field, const Chunk& chunk,
                              std::shared_ptr<const void> owner) {
  v1::Chunk before_data;
  before_data.set_offset(chunk.offset);
  before_data.set_crc32c(chunk.crc32c);
  v1::Chunk after_data;
  after_data.set_compression(
      static_cast<v1::Chunk::Compression>(chunk.compression));
  after_data.set_raw_bytes(chunk.raw_bytes);
  std::string chunk_head = before_data.SerializeAsString();
  AppendHeader(v1::Chunk::kDataFieldNumber, chunk.size(), chunk_head);
  const std::string chunk_tail = after_data.SerializeAsString();
  std::string head = message.SerializeAsString();
  AppendHeader(chunk_field,
               chunk_head.size() + chunk.size() + chunk_tail.size(), head);
  head += chunk_head;
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
  std::string chunk_bytes;
  CodedInputStream in(&reader);
  in.PushLimit(static_cast<int>(bytes));
  const auto take_data = [&] { return TakePieces(in, chunk.pieces); };
  const auto take_chunk = [&] {
    return Split(in, v1::Chunk::kDataFieldNumber, take_data, chunk_bytes)
        .status();
  };
  ASSIGN_OR_RETURN(const bool has_chunk,
                   Split(in, chunk_field, take_chunk, field_bytes));
  v1::Chunk beside_data;
  if (!fields.ParseFromString(field_bytes) ||
      !beside_data.ParseFromString(chunk_bytes)) {
    return Malformed("a field does not have its declared type");
  }
  chunk.offset = beside_data.offset();
  chunk.crc32c = beside_data.crc32c();
  chunk.compression = static_cast<uint32_t>(beside_data.compression());
  chunk.raw_bytes = beside_data.raw_bytes();
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
