// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Encoded vectors on their way: the description that is sent first
// (v1::EncodedObject) and what the receiver checks against it.
//
// Sender:    *header.mutable_object() = DescribeEncoding(spec, size, encoded);
// Receiver:  RETURN_IF_ERROR(CheckDescription(header.object(), spec, size));
//            ... allocate header.object().encoded_bytes(), take the chunks
//            (common/transport/chunk.h) ...
//            RETURN_IF_ERROR(CheckArrival(header.object(), bytes, digest));
//
// Whether the bytes can be merged, quantization/strips/encoding_reader.h says.
//
// A sender that still encodes sends an open description, which says how the
// values are encoded, but lacks size in bytes and digest; the whole one follows
// the last chunk, as the trailer.
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

// `encoded` holds `values` values in the format of `spec`.
v1::EncodedObject DescribeEncoding(const CodecSpec& spec, uint64_t values,
                                   absl::string_view encoded);

// The open description of `values` values that will be encoded by `spec`.
v1::EncodedObject DescribeOpen(const CodecSpec& spec, uint64_t values);

// Whether size in bytes and digest are left out.
bool IsOpen(const v1::EncodedObject& object);

// Whether an object is what the run expects; before a byte of it is accepted.
// After OK, object.encoded_bytes() is safe to allocate.
//   FAILED_PRECONDITION  format, block size or entropy coding is not the run's.
//   INVALID_ARGUMENT     number of values or bytes, or the digest's length.
absl::Status CheckDescription(const v1::EncodedObject& object,
                              const CodecSpec& expected_spec,
                              uint64_t expected_values);

// Checks what CheckDescription checks, but the description may be open; then
// the encoding has at most MaxEncodedBytes.
absl::Status CheckOffer(const v1::EncodedObject& object,
                        const CodecSpec& expected_spec,
                        uint64_t expected_values);

// Whether `trailer` is the whole of the open description `offered`.
//   INVALID_ARGUMENT  it is open, or describes something else.
absl::Status CheckTrailer(const v1::EncodedObject& trailer,
                          const v1::EncodedObject& offered);

// Whether what arrived, `bytes` bytes with this Digest128, is the object that
// was described.
//   DATA_LOSS  it is not: send it again.
absl::Status CheckArrival(const v1::EncodedObject& object, uint64_t bytes,
                          absl::string_view digest);

}  // namespace causeway

#endif  // QUANTIZATION_ENCODED_OBJECT_H_
