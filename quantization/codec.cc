// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/codec.h"

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "quantization/block_codec.h"
#include "quantization/block_planes.h"
#include "quantization/codec_planes.h"
#include "quantization/dense_codec.h"
#include "quantization/ecq/planes.h"
#include "quantization/entropy_codec.h"
#include "quantization/part_encoder.h"

namespace causeway {
namespace {

// One row per format.
struct FormatEntry {
  v1::Format format;
  bool lossless;
  // Null if the format has no planes, and so no codes to compress.
  std::unique_ptr<StripPlanes> (*new_planes)(const CodecSpec& spec,
                                             const EncodeOptions& options,
                                             uint64_t first_value);
  // The rest is about encodings that are not entropy coded.
  uint64_t (*encoded_bytes)(const CodecSpec& spec, uint64_t values);
  std::unique_ptr<Encoder> (*new_encoder)(const CodecSpec& spec,
                                          const EncodeOptions& options,
                                          uint64_t first_value, uint64_t values,
                                          absl::Span<char> buffer);
  std::unique_ptr<Decoder> (*new_decoder)(const CodecSpec& spec,
                                          uint64_t values,
                                          absl::string_view encoded);

  bool always_entropy_coded = false;
};

template <uint64_t kBytes,
          std::unique_ptr<Encoder> (*kNewEncoder)(uint64_t, absl::Span<char>),
          std::unique_ptr<Decoder> (*kNewDecoder)(uint64_t, absl::string_view)>
constexpr FormatEntry Dense(v1::Format format, bool lossless) {
  return {format,
          lossless,
          /*new_planes=*/nullptr,
          [](const CodecSpec&, uint64_t values) { return kBytes * values; },
          [](const CodecSpec&, const EncodeOptions&, uint64_t /*first_value*/,
             uint64_t values,
             absl::Span<char> buffer) { return kNewEncoder(values, buffer); },
          [](const CodecSpec&, uint64_t values, absl::string_view encoded) {
            return kNewDecoder(values, encoded);
          }};
}

template <BlockFormat kFormat>
constexpr FormatEntry Blocks(v1::Format format) {
  return {
      format,
      /*lossless=*/false,
      [](const CodecSpec& spec, const EncodeOptions& options,
         uint64_t first_value) -> std::unique_ptr<StripPlanes> {
        return std::make_unique<BlockPlanes>(kFormat, spec.block_size, options,
                                             first_value);
      },
      [](const CodecSpec& spec, uint64_t values) {
        return BlockEncodedBytes(kFormat, spec.block_size, values);
      },
      [](const CodecSpec& spec, const EncodeOptions& options,
         uint64_t first_value, uint64_t values, absl::Span<char> buffer) {
        return NewBlockEncoder(kFormat, spec.block_size, options, first_value,
                               values, buffer);
      },
      [](const CodecSpec& spec, uint64_t values, absl::string_view encoded) {
        return NewBlockDecoder(kFormat, spec.block_size, values, encoded);
      }};
}

constexpr FormatEntry Ecq() {
  FormatEntry entry = Blocks<BlockFormat::kInt8>(v1::ECQ);
  entry.always_entropy_coded = true;
  entry.new_planes =
      [](const CodecSpec& spec, const EncodeOptions& options,
         uint64_t /*first_value*/) -> std::unique_ptr<StripPlanes> {
    return std::make_unique<EcqPlanes>(spec.block_size, options);
  };
  return entry;
}

constexpr FormatEntry kFormats[] = {
    Dense<kFp32Bytes, NewFp32Encoder, NewFp32Decoder>(v1::FP32, true),
    Dense<kBf16Bytes, NewBf16Encoder, NewBf16Decoder>(v1::BF16, false),
    Blocks<BlockFormat::kInt8>(v1::INT8),
    Blocks<BlockFormat::kInt4>(v1::INT4),
    Blocks<BlockFormat::kE3m0>(v1::E3M0),
    Ecq(),
};

// All formats have at least a scale of two bytes for every 256 values. Beyond
// this, bytes are not computed: `values` may be anything that a peer says, and
// must not overflow.
constexpr uint64_t kMaxValuesPerByte = 128;

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

absl::Status CheckEcqTarget(const EncodeOptions& options) {
  if (options.ecq_bits == 0) {
    if (options.ecq_distortion >= 1e-4 && options.ecq_distortion <= 0.9) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrFormat("ECQ's distortion is to be %g; want 0.0001 to 0.9",
                        options.ecq_distortion));
  }
  if (options.ecq_bits >= 0.5 && options.ecq_bits <= 8) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "ECQ's rate is to be %g bits per value; want 0.5 to 8, or 0 to aim at a "
      "distortion",
      options.ecq_bits));
}

// Of encodings of any kinds.
class OneByOneSumCursor final : public SumCursor {
 public:
  explicit OneByOneSumCursor(
      absl::Span<const std::unique_ptr<Decoder>> decoders) {
    for (const std::unique_ptr<Decoder>& decoder : decoders) {
      cursors_.push_back(decoder->NewCursor());
    }
  }

  void Sum(uint64_t begin, absl::Span<const float> weights,
           absl::Span<float> sum) override {
    CHECK_EQ(weights.size(), cursors_.size());
    absl::c_fill(sum, 0.0f);
    for (size_t i = 0; i < cursors_.size(); ++i) {
      cursors_[i]->DecodeAccumulate(begin, weights[i], sum);
    }
  }

 private:
  std::vector<std::unique_ptr<DecodeCursor>> cursors_;
};

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
  if (spec.entropy_coded && KnownFormat(spec.format).new_planes == nullptr) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "there is no entropy coder for %s", v1::Format_Name(spec.format)));
  }
  if (!spec.entropy_coded && KnownFormat(spec.format).always_entropy_coded) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s is always entropy coded", v1::Format_Name(spec.format)));
  }
  return absl::OkStatus();
}

absl::Status CheckEncodeOptions(const CodecSpec& spec,
                                const EncodeOptions& options) {
  if (options.rounding == Rounding::kStochastic &&
      (KnownFormat(spec.format).new_planes == nullptr ||
       spec.format == v1::ECQ)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("there is no stochastic rounding for %s",
                        v1::Format_Name(spec.format)));
  }
  if (spec.format == v1::ECQ) return CheckEcqTarget(options);
  return absl::OkStatus();
}

bool IsLossless(v1::Format format) { return KnownFormat(format).lossless; }

uint64_t MaxEncodedBytes(const CodecSpec& spec, uint64_t values) {
  const uint64_t headers =
      spec.entropy_coded ? StripCount(values) * StripHeader::kBytes : 0;
  return headers + KnownFormat(spec.format).encoded_bytes(spec, values);
}

StripIndex NewStripIndex(const CodecSpec& spec, uint64_t values) {
  const uint64_t last = values % kStripValues;
  return StripIndex(values, spec.entropy_coded,
                    MaxEncodedBytes(spec, kStripValues),
                    MaxEncodedBytes(spec, last == 0 ? kStripValues : last));
}

std::unique_ptr<const StripPlanes> NewStripPlanes(const CodecSpec& spec) {
  const FormatEntry& entry = KnownFormat(spec.format);
  if (spec.entropy_coded || entry.new_planes == nullptr) return nullptr;
  return entry.new_planes(spec, {}, /*first_value=*/0);
}

uint64_t PieceAlignment(const CodecSpec& spec) {
  return spec.entropy_coded ? kStripValues : kPieceAlignment;
}

std::unique_ptr<Encoder> NewEncoder(const CodecSpec& spec,
                                    const EncodeOptions& options,
                                    uint64_t values, absl::Span<char> buffer) {
  return NewPartEncoder(spec, options, /*first_value=*/0, values, buffer);
}

std::unique_ptr<Encoder> NewPartEncoder(const CodecSpec& spec,
                                        const EncodeOptions& options,
                                        uint64_t first_value, uint64_t values,
                                        absl::Span<char> buffer) {
  CHECK_EQ(first_value % kStripValues, 0u);
  const FormatEntry& entry = KnownFormat(spec.format);
  if (spec.entropy_coded) {
    CHECK_EQ(buffer.size(), MaxEncodedBytes(spec, values));
    return NewEntropyEncoder(entry.new_planes(spec, options, first_value),
                             values, buffer);
  }
  return entry.new_encoder(spec, options, first_value, values, buffer);
}

absl::StatusOr<std::unique_ptr<Decoder>> OpenDecoder(const CodecSpec& spec,
                                                     absl::string_view encoded,
                                                     uint64_t values) {
  RETURN_IF_ERROR(CheckCodecSpec(spec));
  const FormatEntry& entry = KnownFormat(spec.format);
  if (values / kMaxValuesPerByte > encoded.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s encoding has %d bytes, too few for %d values",
                        v1::Format_Name(spec.format), encoded.size(), values));
  }
  if (spec.entropy_coded) {
    StripIndex index = NewStripIndex(spec, values);
    RETURN_IF_ERROR(index.Scan(encoded).status());
    RETURN_IF_ERROR(index.CheckComplete());
    return NewEntropyDecoder(entry.new_planes(spec, {}, 0), values,
                             std::move(index), encoded);
  }
  const uint64_t bytes = entry.encoded_bytes(spec, values);
  if (encoded.size() != bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s encoding has %d bytes, but %d values take %d bytes",
        v1::Format_Name(spec.format), encoded.size(), values, bytes));
  }
  return entry.new_decoder(spec, values, encoded);
}

std::unique_ptr<SumCursor> NewSumCursor(
    absl::Span<const std::unique_ptr<Decoder>> decoders) {
  std::unique_ptr<SumCursor> cursor = NewBlockSumCursor(decoders);
  if (cursor != nullptr) return cursor;
  return std::make_unique<OneByOneSumCursor>(decoders);
}

absl::StatusOr<std::string> Encode(const CodecSpec& spec,
                                   absl::Span<const float> values,
                                   const EncodeOptions& options) {
  RETURN_IF_ERROR(CheckCodecSpec(spec));
  RETURN_IF_ERROR(CheckEncodeOptions(spec, options));
  std::string encoded(MaxEncodedBytes(spec, values.size()), '\0');
  const std::unique_ptr<Encoder> encoder =
      NewEncoder(spec, options, values.size(), absl::MakeSpan(encoded));
  encoder->Encode(0, values, {});
  encoded.resize(encoder->Finish());
  return encoded;
}

absl::Status Decode(const CodecSpec& spec, absl::string_view encoded,
                    absl::Span<float> values) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                   OpenDecoder(spec, encoded, values.size()));
  RETURN_IF_ERROR(decoder->CheckFinite());
  decoder->NewCursor()->Decode(0, values);
  return absl::OkStatus();
}

absl::Status DecodeAccumulate(const CodecSpec& spec, absl::string_view encoded,
                              float weight, absl::Span<float> accumulator) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                   OpenDecoder(spec, encoded, accumulator.size()));
  RETURN_IF_ERROR(decoder->CheckFinite());
  decoder->NewCursor()->DecodeAccumulate(0, weight, accumulator);
  return absl::OkStatus();
}

}  // namespace causeway
