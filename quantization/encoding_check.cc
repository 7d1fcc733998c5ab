// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/encoding_check.h"

#include <cmath>
#include <memory>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "quantization/strip_layout.h"

namespace causeway {
namespace {

// Of one strip, which is the encoding of a vector of its own.
absl::StatusOr<double> SumOfSquares(const CodecSpec& spec,
                                    absl::string_view strip, uint64_t values) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                   OpenDecoder(spec, strip, values));
  return decoder->SumOfSquares();
}

}  // namespace

EncodingCheck::EncodingCheck(const CodecSpec& spec, uint64_t values)
    : spec_(spec), values_(values), strips_(NewStripIndex(spec, values)) {}

void EncodingCheck::Look(absl::string_view received) {
  if (!layout_.ok()) return;
  const absl::StatusOr<uint64_t> complete = strips_.Scan(received);
  if (!complete.ok()) {
    layout_ = complete.status();
    return;
  }
  for (; finite_.ok() && looked_ < *complete; ++looked_) {
    const absl::StatusOr<double> squares =
        SumOfSquares(spec_, strips_.Strip(received, looked_),
                     ValuesOfStrip(looked_, values_));
    if (squares.ok()) {
      squares_ += *squares;
    } else {
      finite_ = absl::OutOfRangeError(absl::StrFormat(
          "strip %d of %d, from value %d on: %s", looked_, strips_.strips(),
          looked_ * kStripValues, squares.status().message()));
    }
  }
}

absl::StatusOr<double> EncodingCheck::Norm() const {
  RETURN_IF_ERROR(layout_);
  RETURN_IF_ERROR(strips_.CheckComplete());
  RETURN_IF_ERROR(finite_);
  return std::sqrt(squares_);
}

}  // namespace causeway
