// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strip_scanner.h"

#include <memory>

#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "quantization/strip_layout.h"

namespace causeway {

StripScanner::StripScanner(const CodecSpec& spec, uint64_t values)
    : spec_(spec), values_(values), index_(NewStripIndex(spec, values)) {}

absl::Status StripScanner::DecodeStrip(absl::string_view received,
                                       uint64_t strip,
                                       absl::Span<float> values) const {
  CHECK_EQ(values.size(), ValuesOfStrip(strip, values_));
  // A strip is the encoding of a vector of its own.
  return About(strip, Decode(spec_, Strip(received, strip), values));
}

absl::Status StripScanner::CheckStrip(absl::string_view received,
                                      uint64_t strip) const {
  const absl::StatusOr<std::unique_ptr<Decoder>> decoder =
      OpenDecoder(spec_, Strip(received, strip), ValuesOfStrip(strip, values_));
  return About(strip,
               decoder.ok() ? (*decoder)->CheckFinite() : decoder.status());
}

absl::Status StripScanner::About(uint64_t strip,
                                 const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrFormat("strip %d of %d, from value %d on: %s", strip, strips(),
                      strip * kStripValues, status.message()));
}

}  // namespace causeway
