// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strip_scanner.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {

StripScanner::StripScanner(const CodecSpec& spec, uint64_t values)
    : spec_(spec), values_(values) {}

absl::StatusOr<uint64_t> StripScanner::Scan(absl::string_view received) {
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
        "%s encoding of %d values ends after %d bytes, but %d have come",
        v1::Format_Name(spec_.format), values_, end, received.size()));
  }
  return ends_.size();
}

absl::StatusOr<uint64_t> StripScanner::StripBytes(
    uint64_t strip, absl::string_view rest) const {
  const uint64_t most = MaxEncodedBytes(spec_, ValuesOfStrip(strip, values_));
  if (!spec_.entropy_coded) return most;
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

absl::Status StripScanner::CheckComplete() const {
  if (ends_.size() == strips()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s encoding of %d values breaks off in strip %d of %d",
      v1::Format_Name(spec_.format), values_, ends_.size(), strips()));
}

absl::string_view StripScanner::Strip(absl::string_view received,
                                      uint64_t strip) const {
  CHECK_LT(strip, ends_.size());
  const uint64_t begin = strip == 0 ? 0 : ends_[strip - 1];
  return received.substr(begin, ends_[strip] - begin);
}

absl::Status StripScanner::DecodeStrip(absl::string_view received,
                                       uint64_t strip,
                                       absl::Span<float> values) const {
  CHECK_EQ(values.size(), ValuesOfStrip(strip, values_));
  // A strip is the encoding of a vector of its own.
  const absl::Status status = Decode(spec_, Strip(received, strip), values);
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrFormat("strip %d of %d, from value %d on: %s", strip, strips(),
                      strip * kStripValues, status.message()));
}

}  // namespace causeway
