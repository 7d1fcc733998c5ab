// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Whether what arrives can be merged, and how long it is, while its bytes come
// in and are still in the cache.
//
//   EncodingCheck check(spec, size);
//   check.Look(bytes);  // the next ones, whenever some have come
//   ASSIGN_OR_RETURN(const double norm, check.Norm());  // after the last byte
//
// Bytes that turn out to be damaged can be taken back:
//
//   const EncodingCheck::Mark mark = check.mark();
//   check.Look(bytes);
//   if (damaged) check.GoBack(mark, received);  // what had come before them
#ifndef QUANTIZATION_ENCODING_CHECK_H_
#define QUANTIZATION_ENCODING_CHECK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "quantization/codec.h"
#include "quantization/strip_index.h"
#include "quantization/strip_planes.h"
#include "quantization/strip_squares.h"

namespace causeway {

// Holds at most the bytes of one strip. For one thread at a time.
class EncodingCheck {
 public:
  // What is known of the strips before the one that is coming in.
  struct Mark {
    uint64_t strips = 0;
    // Of these strips.
    uint64_t bytes = 0;
    // What is wrong with their lengths, and with the first that is not finite;
    // the sum of the squares of those before it.
    absl::Status layout;
    absl::Status finite;
    double squares = 0;
  };

  // Of an encoding of `values` values; `spec` must pass CheckCodecSpec.
  EncodingCheck(const CodecSpec& spec, uint64_t values);

  // Looks at the next bytes.
  void Look(absl::string_view bytes);

  const Mark& mark() const { return before_; }

  // Goes back to the time when only `received` had come. `mark` is from then.
  void GoBack(const Mark& mark, absl::string_view received);

  // After the last byte: the Euclidean norm of the values, summed as
  // Decoder::SumOfSquares does. It does not depend on how the bytes came.
  //   INVALID_ARGUMENT  they are no encoding of so many values.
  //   OUT_OF_RANGE      they are, but a value is not finite or cannot be had.
  absl::StatusOr<double> Norm() const;

 private:
  // Take what belongs to the strip that is coming in, and return how many bytes
  // that is. The first looks at them where they lie, in strips that are planes
  // side by side; the other one waits for the last of them.
  uint64_t LookAtPlanes(absl::string_view bytes);
  uint64_t Collect(absl::string_view bytes);
  // The strip that was coming in has so many bytes, and this sum of squares.
  void EndStrip(uint64_t bytes, const absl::StatusOr<double>& squares);

  const CodecSpec spec_;
  const uint64_t values_;
  const StripIndex index_;
  // Null if strips are not planes side by side.
  const std::unique_ptr<const StripPlanes> planes_;
  Mark before_;
  // Of the strip that is coming in: one or the other.
  std::optional<StripSquares> looked_;
  std::string collected_;
};

}  // namespace causeway

#endif  // QUANTIZATION_ENCODING_CHECK_H_
