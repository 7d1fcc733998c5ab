// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Whether what arrives can be merged, and how long it is, strip by strip while
// its bytes come in and are still in the cache.
//
//   EncodingCheck check(spec, size);
//   check.Look(received);  // whenever more has come
//   ASSIGN_OR_RETURN(const double norm, check.Norm());  // after the last byte
#ifndef QUANTIZATION_ENCODING_CHECK_H_
#define QUANTIZATION_ENCODING_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "quantization/codec.h"
#include "quantization/strip_index.h"

namespace causeway {

// Holds no bytes. For one thread at a time.
class EncodingCheck {
 public:
  // Of an encoding of `values` values; `spec` must pass CheckCodecSpec.
  EncodingCheck(const CodecSpec& spec, uint64_t values);

  // Looks at the strips that have become complete. `received` is all that has
  // come; it begins with the bytes that the last call got, but may have moved.
  void Look(absl::string_view received);

  // After the last byte: the Euclidean norm of the values, summed as
  // Decoder::SumOfSquares does. It does not depend on how the bytes came.
  //   INVALID_ARGUMENT  they are no encoding of so many values.
  //   OUT_OF_RANGE      they are, but a value is not finite or cannot be had.
  absl::StatusOr<double> Norm() const;

 private:
  const CodecSpec spec_;
  const uint64_t values_;
  StripIndex strips_;
  // What is wrong with the strips' lengths.
  absl::Status layout_;
  // Strips that have been looked at, what is wrong with the first bad one, and
  // the sum of the squares of those before.
  uint64_t looked_ = 0;
  absl::Status finite_;
  double squares_ = 0;
};

}  // namespace causeway

#endif  // QUANTIZATION_ENCODING_CHECK_H_
