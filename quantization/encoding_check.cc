// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/encoding_check.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "quantization/codec_planes.h"
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
    : spec_(spec),
      values_(values),
      index_(NewStripIndex(spec, values)),
      planes_(NewStripPlanes(spec)) {}

void EncodingCheck::Look(absl::string_view bytes) {
  while (before_.layout.ok() && !bytes.empty()) {
    if (before_.strips == index_.strips()) {
      before_.layout = absl::InvalidArgumentError(absl::StrFormat(
          "the encoding of %d values ends after %d bytes, but more have come",
          values_, before_.bytes));
      return;
    }
    bytes.remove_prefix(planes_ != nullptr ? LookAtPlanes(bytes)
                                           : Collect(bytes));
  }
}

uint64_t EncodingCheck::LookAtPlanes(absl::string_view bytes) {
  const uint64_t values = ValuesOfStrip(before_.strips, values_);
  if (!looked_.has_value()) looked_.emplace(*planes_, values);
  const absl::string_view taken = bytes.substr(0, looked_->missing_bytes());
  looked_->Look(taken);
  if (looked_->missing_bytes() == 0) {
    const absl::StatusOr<double> squares = looked_->Sum();
    looked_.reset();
    EndStrip(planes_->ScaleBytes(values) + planes_->CodeBytes(values), squares);
  }
  return taken.size();
}

uint64_t EncodingCheck::Collect(absl::string_view bytes) {
  const uint64_t strip = before_.strips;
  uint64_t taken = 0;
  while (true) {
    // Entropy-coded strips say how long they are once their header has come.
    const absl::StatusOr<uint64_t> wanted =
        index_.StripBytes(strip, collected_);
    if (!wanted.ok()) {
      before_.layout = wanted.status();
      return taken;
    }
    if (collected_.size() == *wanted) break;
    const absl::string_view part =
        bytes.substr(taken, *wanted - collected_.size());
    if (part.empty()) return taken;
    collected_.append(part.data(), part.size());
    taken += part.size();
  }
  EndStrip(collected_.size(),
           SumOfSquares(spec_, collected_, ValuesOfStrip(strip, values_)));
  collected_.clear();
  return taken;
}

void EncodingCheck::EndStrip(uint64_t bytes,
                             const absl::StatusOr<double>& squares) {
  if (before_.finite.ok()) {
    if (squares.ok()) {
      before_.squares += *squares;
    } else {
      before_.finite = absl::OutOfRangeError(absl::StrFormat(
          "strip %d of %d, from value %d on: %s", before_.strips,
          index_.strips(), before_.strips * kStripValues,
          squares.status().message()));
    }
  }
  ++before_.strips;
  before_.bytes += bytes;
}

void EncodingCheck::GoBack(const Mark& mark, absl::string_view received) {
  before_ = mark;
  looked_.reset();
  collected_.clear();
  Look(received.substr(before_.bytes));
}

absl::StatusOr<double> EncodingCheck::Norm() const {
  RETURN_IF_ERROR(before_.layout);
  RETURN_IF_ERROR(index_.CheckComplete(before_.strips));
  RETURN_IF_ERROR(before_.finite);
  return std::sqrt(before_.squares);
}

}  // namespace causeway
