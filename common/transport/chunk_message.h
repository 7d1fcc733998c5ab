// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Converts messages with a v1::Chunk to and from gRPC's byte buffers without
// copying the chunk's data: a sender's buffer refers to the bytes in place, a
// receiver's chunk to the pieces from the network. On the wire they are the
// protobuf messages of proto/coordinator.proto, byte for byte, so either side
// may be a plain protobuf program.
//
// Sender:    stream.Write(ToByteBuffer(response, kChunkField,
//                                      CutChunk(bytes, offset), owner));
// Receiver:  ASSIGN_OR_RETURN(
//                bool has_chunk,
//                ParseByteBuffer(buffer, kChunkField, response, chunk));
//            if (has_chunk) RETURN_IF_ERROR(assembler.Add(chunk));
// with       constexpr int kChunkField =
//                v1::FetchUpdateResponse::kChunkFieldNumber;
//
// The protobuf encoding: https://protobuf.dev/programming-guides/encoding.
#ifndef COMMON_TRANSPORT_CHUNK_MESSAGE_H_
#define COMMON_TRANSPORT_CHUNK_MESSAGE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/transport/chunk.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"

namespace causeway {

// The most bytes of all fields other than the chunk, and of the chunk's fields
// other than its data.
inline constexpr uint64_t kMaxFieldBytes = 64 << 10;

// Returns the bytes of `message`.
grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message);

// Returns the bytes of `message` with `chunk` in its field `chunk_field`, a
// v1::Chunk, which is its last field and not set. The buffer holds `owner`,
// which keeps the chunk's data alive and unchanged, until gRPC has sent it.
grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message,
                              int chunk_field, const Chunk& chunk,
                              std::shared_ptr<const void> owner);

// Reads `buffer` as a message with a v1::Chunk in its field `chunk_field`. The
// chunk goes into `chunk`, whose pieces point into `buffer`; all other fields
// go into `fields`, which is cleared first. Returns whether there is a chunk.
//   INVALID_ARGUMENT  the buffer is not such a message, has more than one chunk
//                     or the chunk's data more than once, more than
//                     kMaxFieldBytes outside the chunk or beside its data, or
//                     more than that and kMaxChunkBytes in all.
absl::StatusOr<bool> ParseByteBuffer(grpc::ByteBuffer& buffer, int chunk_field,
                                     google::protobuf::MessageLite& fields,
                                     Chunk& chunk);

// Reads `buffer` as a message without a chunk.
//   INVALID_ARGUMENT  the buffer is not such a message, or has more than
//                     kMaxFieldBytes.
absl::Status ParseByteBuffer(grpc::ByteBuffer& buffer,
                             google::protobuf::MessageLite& message);

}  // namespace causeway

#endif  // COMMON_TRANSPORT_CHUNK_MESSAGE_H_
