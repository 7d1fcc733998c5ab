// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/codec.h"

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "quantization/formats/block_planes.h"
#include "quantization/formats/dense_planes.h"
#include "quantization/formats/ecq/planes.h"
#include "quantization/strips/layout.h"

namespace causeway {
namespace {

constexpr v1::Format kFormats[] = {v1::FP32, v1::BF16, v1::INT8,
                                   v1::INT4, v1::E3M0, v1::ECQ};

// Returns whether the format has scales. Only codes of such formats can be
// compressed.
bool HasScales(v1::Format format) {
  return format != v1::FP32 && format != v1::BF16;
}

// `spec` must pass CheckCodecSpec.
const StripPlanes& PlanesOf(const CodecSpec& spec) {
  switch (spec.format) {
    case v1::FP32:
      return Fp32Planes();
    case v1::BF16:
      return Bf16Planes();
    case v1::INT8:
      return BlockPlanesOf(BlockFormat::kInt8, spec.block_size);
    case v1::INT4:
      return BlockPlanesOf(BlockFormat::kInt4, spec.block_size);
    case v1::E3M0:
      return BlockPlanesOf(BlockFormat::kE3m0, spec.block_size);
    case v1::ECQ:
      return EcqPlanesOf(spec.block_size);
    default:
      LOG(FATAL) << "format " << spec.format << " was not checked";
  }
}

// Every format takes at least two bytes, a scale, for every 256 values.
// Refusing larger claims of a peer keeps computed numbers of bytes from
// overflowing.
constexpr uint64_t kMaxValuesPerByte = 128;

absl::Status CheckEcqTarget(const EncodeOptions& options) {
  if (options.ecq_bits == 0) {
    if (options.ecq_distortion >= 1e-4 && options.ecq_distortion <= 0.9) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrFormat("ECQ's target distortion is %g; want 0.0001 to 0.9",
                        options.ecq_distortion));
  }
  if (options.ecq_bits >= kLeastEcqBits && options.ecq_bits <= kMostEcqBits) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "ECQ's target rate is %g bits per value; want 0.5 to 8, or 0 to aim at a "
      "distortion",
      options.ecq_bits));
}

}  // namespace

bool operator==(const CodecSpec& a, const CodecSpec& b) {
  return a.format == b.format && a.entropy_coded == b.entropy_coded &&
         (a.block_size == b.block_size || !HasScales(a.format));
}

absl::Status CheckCodecSpec(const CodecSpec& spec) {
  if (!absl::c_linear_search(kFormats, spec.format)) {
    const std::string name = v1::Format_Name(spec.format);
    return absl::InvalidArgumentError(absl::StrFormat(
        "unknown format %d (%s); this version knows %s", spec.format,
        name.empty() ? "no name" : name,
        absl::StrJoin(kFormats, ", ", [](std::string* names, v1::Format known) {
          names->append(v1::Format_Name(known));
        })));
  }
  if (spec.block_size != 64 && spec.block_size != 128 &&
      spec.block_size != 256) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "block size %d is not one of 64, 128, 256", spec.block_size));
  }
  if (spec.entropy_coded && !HasScales(spec.format)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "there is no entropy coder for %s", v1::Format_Name(spec.format)));
  }
  if (!spec.entropy_coded && spec.format == v1::ECQ) {
    return absl::InvalidArgumentError("ECQ is always entropy coded");
  }
  return absl::OkStatus();
}

absl::Status CheckEncodeOptions(const CodecSpec& spec,
                                const EncodeOptions& options) {
  if (spec.format == v1::ECQ) return CheckEcqTarget(options);
  return absl::OkStatus();
}

bool IsLossless(v1::Format format) { return format == v1::FP32; }

uint64_t MaxEncodedBytes(const CodecSpec& spec, uint64_t values) {
  const uint64_t headers =
      spec.entropy_coded ? StripCount(values) * StripHeader::kBytes : 0;
  return headers + PlanesOf(spec).Bytes(values);
}

uint64_t CodeBytes(const CodecSpec& spec, uint64_t values) {
  return spec.entropy_coded ? PlanesOf(spec).CodeBytes(values) : 0;
}

uint64_t PieceAlignment(const CodecSpec& spec) {
  return spec.entropy_coded ? kStripValues : kPieceAlignment;
}

std::unique_ptr<Encoder> NewEncoder(const CodecSpec& spec,
                                    const EncodeOptions& options,
                                    uint64_t values, absl::Span<char> buffer) {
  CHECK_EQ(buffer.size(), MaxEncodedBytes(spec, values));
  return std::make_unique<Encoder>(PlanesOf(spec), spec.entropy_coded, options,
                                   values, buffer);
}

EncodingReader NewEncodingReader(const CodecSpec& spec, uint64_t values,
                                 EncodingReader::Task task) {
  return EncodingReader(PlanesOf(spec), spec.entropy_coded, values, task);
}

absl::StatusOr<std::unique_ptr<Decoder>> OpenDecoder(
    const CodecSpec& spec, absl::string_view encoded, uint64_t values,
    absl::Span<const char> codes) {
  RETURN_IF_ERROR(CheckCodecSpec(spec));
  if (values / kMaxValuesPerByte > encoded.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s encoding has %d bytes, too few for %d values",
                        v1::Format_Name(spec.format), encoded.size(), values));
  }
  if (!spec.entropy_coded && encoded.size() != MaxEncodedBytes(spec, values)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s encoding has %d bytes, but %d values take %d bytes",
                        v1::Format_Name(spec.format), encoded.size(), values,
                        MaxEncodedBytes(spec, values)));
  }
  EncodingReader reader = NewEncodingReader(spec, values);
  RETURN_IF_ERROR(reader.Read(encoded));
  RETURN_IF_ERROR(reader.CheckComplete());
  CHECK(codes.empty() || codes.size() == CodeBytes(spec, values));
  return std::make_unique<Decoder>(std::move(reader), encoded, codes);
}

}  // namespace causeway
