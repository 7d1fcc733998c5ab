// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Encoded vectors in transit: the description that is sent first
// (v1::EncodedObject) and the receiver's checks against it.
//
//   RETURN_IF_ERROR(CheckDescription(header.object(), spec, size));
//   ... allocate header.object().encoded_bytes(), take the chunks
//   (common/transport/chunk.h) ...
//   RETURN_IF_ERROR(CheckArrival(header.object(), bytes, digest));
//
// quantization/strips/encoding_reader.h checks whether the bytes can be merged.
//
// A sender that is still encoding sends an open description, which lacks the
// size in bytes and the digest. The complete description follows the last chunk
// as the trailer.
//
// Pure functions, thread-safe.
#ifndef QUANTIZATION_ENCODED_OBJECT_H_
#define QUANTIZATION_ENCODED_OBJECT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/fragment.pb.h"
#include "quantization/codec.h"

namespace causeway {

CodecSpec SpecOf(const v1::EncodedObject& object);

// Returns the open description of `values` values that will be encoded by
// `spec`.
v1::EncodedObject DescribeOpen(const CodecSpec& spec, uint64_t values);

// Returns whether the size in bytes and the digest are missing.
bool IsOpen(const v1::EncodedObject& object);

// Checks that an object is what the run expects, before any of its bytes are
// accepted. After OK, object.encoded_bytes() is safe to allocate.
//   FAILED_PRECONDITION  the CodecSpec is not the run's.
//   INVALID_ARGUMENT     wrong number of values or bytes, or length of digest.
absl::Status CheckDescription(const v1::EncodedObject& object,
                              const CodecSpec& expected_spec,
                              uint64_t expected_values);

// Checks what CheckDescription checks, except that the description may be open;
// the encoding then has at most MaxEncodedBytes.
absl::Status CheckOffer(const v1::EncodedObject& object,
                        const CodecSpec& expected_spec,
                        uint64_t expected_values);

// Checks that `trailer` completes the open description `offered`.
//   INVALID_ARGUMENT  it is open, or describes something else.
absl::Status CheckTrailer(const v1::EncodedObject& trailer,
                          const v1::EncodedObject& offered);

// Checks that the `bytes` bytes that arrived, with this Digest128, are the
// object that was described.
//   DATA_LOSS  they are not: send the object again.
absl::Status CheckArrival(const v1::EncodedObject& object, uint64_t bytes,
                          absl::string_view digest);

}  // namespace causeway

#endif  // QUANTIZATION_ENCODED_OBJECT_H_
