// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strip_index.h"

#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {

StripIndex::StripIndex(uint64_t values, bool entropy_coded, uint64_t most_bytes,
                       uint64_t most_bytes_of_last)
    : values_(values),
      entropy_coded_(entropy_coded),
      most_bytes_(most_bytes),
      most_bytes_of_last_(most_bytes_of_last) {}

absl::StatusOr<uint64_t> StripIndex::Scan(absl::string_view received) {
  uint64_t end = ends_.empty() ? 0 : ends_.back();
  CHECK_LE(end, received.size());
  while (ends_.size() < strips()) {
    const absl::string_view rest = received.substr(end);
    ASSIGN_OR_RETURN(const uint64_t bytes, StripBytes(ends_.size(), rest));
    if (bytes > rest.size()) return ends_.size();
    end += bytes;
    ends_.push_back(end);
  }
  if (received.size() > end) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the encoding of %d values ends after %d bytes, but %d have come",
        values_, end, received.size()));
  }
  return ends_.size();
}

absl::StatusOr<uint64_t> StripIndex::StripBytes(uint64_t strip,
                                                absl::string_view rest) const {
  const uint64_t most =
      strip + 1 == strips() ? most_bytes_of_last_ : most_bytes_;
  if (!entropy_coded_) return most;
  if (rest.size() < StripHeader::kBytes) return StripHeader::kBytes;
  const uint64_t bytes =
      StripHeader::kBytes + ReadStripHeader(rest.data()).bytes;
  if (bytes > most) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "strip %d of %d says that it has %d bytes; its %d values take at most "
        "%d",
        strip, strips(), bytes, ValuesOfStrip(strip, values_), most));
  }
  return bytes;
}

absl::Status StripIndex::CheckComplete(uint64_t complete) const {
  if (complete == strips()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("the encoding of %d values breaks off in strip %d of %d",
                      values_, complete, strips()));
}

absl::string_view StripIndex::Strip(absl::string_view received,
                                    uint64_t strip) const {
  CHECK_LT(strip, ends_.size());
  const uint64_t begin = strip == 0 ? 0 : ends_[strip - 1];
  return received.substr(begin, ends_[strip] - begin);
}

}  // namespace causeway
