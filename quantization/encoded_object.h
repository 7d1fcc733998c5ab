// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Encoded vectors on their way: the description that is sent first
// (v1::EncodedObject) and what the receiver checks against it.
//
// Sender:    *header.mutable_object() = DescribeEncoding(spec, size, encoded);
// Receiver:  RETURN_IF_ERROR(CheckDescription(header.object(), spec, size));
//            ... allocate header.object().encoded_bytes(), take the chunks
//            (quantization/chunk.h) ...
//            RETURN_IF_ERROR(VerifyEncoding(header.object(), encoded));
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

// Whether an object is what the run expects; before a byte of it is accepted.
// After OK, object.encoded_bytes() is safe to allocate.
//   FAILED_PRECONDITION  format, block size or entropy coding is not the run's.
//   INVALID_ARGUMENT     number of values or bytes, or the digest's length.
absl::Status CheckDescription(const v1::EncodedObject& object,
                              const CodecSpec& expected_spec,
                              uint64_t expected_values);

// Whether `encoded` is the object that was described, and can be merged.
//   DATA_LOSS         length or digest differ: send it again.
//   INVALID_ARGUMENT  the bytes arrived as sent, but do not decode to finite
//                     values: sending them again is no use.
absl::Status VerifyEncoding(const v1::EncodedObject& object,
                            absl::string_view encoded);

}  // namespace causeway

#endif  // QUANTIZATION_ENCODED_OBJECT_H_
