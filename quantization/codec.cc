// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/codec.h"

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "quantization/dense_codec.h"

namespace causeway {
namespace {

// One row per format.
struct FormatEntry {
  v1::Format format;
  bool lossless;
  // Bytes of one value, for formats without scales.
  uint64_t value_bytes;
  std::unique_ptr<Encoder> (*new_encoder)(uint64_t values,
                                          absl::Span<char> buffer);
  std::unique_ptr<Decoder> (*new_decoder)(uint64_t values,
                                          absl::string_view encoded);
};

constexpr FormatEntry kFormats[] = {
    {v1::FP32, true, kFp32Bytes, NewFp32Encoder, NewFp32Decoder},
    {v1::BF16, false, kBf16Bytes, NewBf16Encoder, NewBf16Decoder},
};

// Null if there is no such format.
const FormatEntry* FindFormat(v1::Format format) {
  for (const FormatEntry& entry : kFormats) {
    if (entry.format == format) return &entry;
  }
  return nullptr;
}

const FormatEntry& KnownFormat(v1::Format format) {
  const FormatEntry* const entry = FindFormat(format);
  CHECK(entry != nullptr) << "format " << format << " was not checked";
  return *entry;
}

std::string FormatNames() {
  std::string names;
  for (const FormatEntry& entry : kFormats) {
    absl::StrAppendFormat(&names, "%s%s", names.empty() ? "" : ", ",
                          v1::Format_Name(entry.format));
  }
  return names;
}

}  // namespace

absl::Status CheckCodecSpec(const CodecSpec& spec) {
  if (FindFormat(spec.format) == nullptr) {
    const std::string name = v1::Format_Name(spec.format);
    return absl::InvalidArgumentError(absl::StrFormat(
        "format %d (%s) is not one this version knows: %s", spec.format,
        name.empty() ? "no name" : name, FormatNames()));
  }
  if (spec.block_size != 64 && spec.block_size != 128 &&
      spec.block_size != 256) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "block size %d is not one of 64, 128, 256", spec.block_size));
  }
  return absl::OkStatus();
}

bool IsLossless(v1::Format format) { return KnownFormat(format).lossless; }

uint64_t MaxEncodedBytes(const CodecSpec& spec, uint64_t values) {
  return values * KnownFormat(spec.format).value_bytes;
}

std::unique_ptr<Encoder> NewEncoder(const CodecSpec& spec, uint64_t values,
                                    absl::Span<char> buffer) {
  return KnownFormat(spec.format).new_encoder(values, buffer);
}

absl::StatusOr<std::unique_ptr<Decoder>> OpenDecoder(const CodecSpec& spec,
                                                     absl::string_view encoded,
                                                     uint64_t values) {
  RETURN_IF_ERROR(CheckCodecSpec(spec));
  const FormatEntry& entry = KnownFormat(spec.format);
  // By division: `values` may be anything and must not overflow a product.
  if (encoded.size() % entry.value_bytes != 0 ||
      encoded.size() / entry.value_bytes != values) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s encoding has %d bytes, but %d values take %d bytes each",
        v1::Format_Name(spec.format), encoded.size(), values,
        entry.value_bytes));
  }
  return entry.new_decoder(values, encoded);
}

absl::StatusOr<std::string> Encode(const CodecSpec& spec,
                                   absl::Span<const float> values) {
  RETURN_IF_ERROR(CheckCodecSpec(spec));
  std::string encoded(MaxEncodedBytes(spec, values.size()), '\0');
  const std::unique_ptr<Encoder> encoder =
      NewEncoder(spec, values.size(), absl::MakeSpan(encoded));
  encoder->Encode(0, values, {});
  encoded.resize(encoder->Finish());
  return encoded;
}

absl::Status Decode(const CodecSpec& spec, absl::string_view encoded,
                    absl::Span<float> values) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                   OpenDecoder(spec, encoded, values.size()));
  RETURN_IF_ERROR(decoder->CheckFinite());
  decoder->Decode(0, values);
  return absl::OkStatus();
}

absl::Status DecodeAccumulate(const CodecSpec& spec, absl::string_view encoded,
                              float weight, absl::Span<float> accumulator) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                   OpenDecoder(spec, encoded, accumulator.size()));
  RETURN_IF_ERROR(decoder->CheckFinite());
  decoder->DecodeAccumulate(0, weight, accumulator);
  return absl::OkStatus();
}

}  // namespace causeway
