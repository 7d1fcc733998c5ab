// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/encoded_object.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checksum.h"
#include "common/status_macros.h"

namespace causeway {
namespace {

std::string Words(const CodecSpec& spec) {
  const std::string name = v1::Format_Name(spec.format);
  return absl::StrFormat(
      "%s in blocks of %d%s",
      name.empty() ? absl::StrCat("unknown format ", spec.format) : name,
      spec.block_size, spec.entropy_coded ? ", entropy coded" : "");
}

}  // namespace

CodecSpec SpecOf(const v1::EncodedObject& object) {
  return {.format = object.format(),
          .block_size = object.block_size(),
          .entropy_coded = object.entropy_coded()};
}

v1::EncodedObject DescribeOpen(const CodecSpec& spec, uint64_t values) {
  v1::EncodedObject object;
  object.set_format(spec.format);
  object.set_size(values);
  object.set_block_size(spec.block_size);
  object.set_entropy_coded(spec.entropy_coded);
  return object;
}

bool IsOpen(const v1::EncodedObject& object) {
  return object.encoded_bytes() == 0 && object.digest().empty();
}

absl::Status CheckOffer(const v1::EncodedObject& object,
                        const CodecSpec& expected_spec,
                        uint64_t expected_values) {
  RETURN_IF_ERROR(CheckCodecSpec(expected_spec));
  if (SpecOf(object) != expected_spec) {
    return absl::FailedPreconditionError(
        absl::StrCat("object is ", Words(SpecOf(object)), "; the run uses ",
                     Words(expected_spec)));
  }
  if (object.size() != expected_values) {
    return absl::InvalidArgumentError(
        absl::StrFormat("object has %d values; the fragment has %d",
                        object.size(), expected_values));
  }
  if (IsOpen(object)) return absl::OkStatus();
  const uint64_t most = MaxEncodedBytes(expected_spec, expected_values);
  const bool fits = expected_spec.entropy_coded
                        ? object.encoded_bytes() <= most
                        : object.encoded_bytes() == most;
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrFormat("object has %d bytes; %d values of %s take %s%d",
                        object.encoded_bytes(), expected_values,
                        v1::Format_Name(object.format()),
                        expected_spec.entropy_coded ? "at most " : "", most));
  }
  if (object.digest().size() != kDigestBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "digest has %d bytes, want %d", object.digest().size(), kDigestBytes));
  }
  return absl::OkStatus();
}

absl::Status CheckDescription(const v1::EncodedObject& object,
                              const CodecSpec& expected_spec,
                              uint64_t expected_values) {
  RETURN_IF_ERROR(CheckOffer(object, expected_spec, expected_values));
  if (IsOpen(object)) {
    return absl::InvalidArgumentError(
        "the description lacks the size in bytes and the digest");
  }
  return absl::OkStatus();
}

absl::Status CheckTrailer(const v1::EncodedObject& trailer,
                          const v1::EncodedObject& offered) {
  if (IsOpen(trailer)) {
    return absl::InvalidArgumentError(
        "the trailer lacks the size in bytes and the digest");
  }
  if (SpecOf(trailer) != SpecOf(offered) || trailer.size() != offered.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the trailer describes %d values of %s; the header said %d of %s",
        trailer.size(), Words(SpecOf(trailer)), offered.size(),
        Words(SpecOf(offered))));
  }
  return absl::OkStatus();
}

absl::Status CheckArrival(const v1::EncodedObject& object, uint64_t bytes,
                          absl::string_view digest) {
  if (bytes != object.encoded_bytes()) {
    return absl::DataLossError(
        absl::StrFormat("object arrived with %d bytes, described as %d", bytes,
                        object.encoded_bytes()));
  }
  if (digest != object.digest()) {
    return absl::DataLossError(absl::StrFormat(
        "digest of the %d bytes that arrived is %s, described as %s", bytes,
        DigestToHex(digest), DigestToHex(object.digest())));
  }
  return absl::OkStatus();
}

}  // namespace causeway
