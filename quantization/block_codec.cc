// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/block_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"
#include "quantization/block_kernels_cpu.h"
#include "quantization/reference.h"

namespace causeway {
namespace {

static_assert(std::endian::native == std::endian::little,
              "scales and groups of codes are copied as they lie in memory");
static_assert(kPieceAlignment % kBlockUnit == 0);

// Where the parts of an encoding lie.
struct Layout {
  // Pieces begin at whole blocks and whole groups.
  uint64_t ScaleAt(uint64_t value) const { return 2 * (value / block_size); }
  uint64_t CodeAt(uint64_t value) const {
    return ScalePlaneBytes(values, block_size) + value * CodeBits(format) / 8;
  }

  BlockFormat format;
  uint32_t block_size;
  uint64_t values;
};

// What is left of a vector after its whole units, filled up to one unit.
// Zero-initialized: filling has scale 0, codes 0 and values 0.
struct LastUnit {
  float values[kBlockUnit] = {};
  char scales[2 * kBlockUnit / 64] = {};
  char codes[kBlockUnit] = {};
};

// A piece outside the vector is our own bug.
void CheckPiece(uint64_t begin, uint64_t count, uint64_t values) {
  CHECK_EQ(begin % kPieceAlignment, 0u);
  CHECK_LE(begin, values);
  CHECK_LE(count, values - begin);
}

class BlockEncoder final : public Encoder {
 public:
  BlockEncoder(const Layout& layout, absl::Span<char> buffer)
      : layout_(layout),
        kernels_(CpuBlockKernels(layout.format)),
        buffer_(buffer) {
    CHECK_EQ(buffer.size(), BlockEncodedBytes(layout.format, layout.block_size,
                                              layout.values));
  }

  void Encode(uint64_t begin, absl::Span<const float> values,
              absl::Span<float> decoded) override {
    CheckPiece(begin, values.size(), layout_.values);
    const uint64_t end = begin + values.size();
    CHECK(end == layout_.values || end % kPieceAlignment == 0) << end;
    if (!decoded.empty()) CHECK_EQ(decoded.size(), values.size());
    if (values.empty()) return;
    const uint64_t units = values.size() / kBlockUnit;
    kernels_.encode(layout_.block_size, units, values.data(),
                    buffer_.data() + layout_.ScaleAt(begin),
                    buffer_.data() + layout_.CodeAt(begin),
                    decoded.empty() ? nullptr : decoded.data());
    const uint64_t whole = units * kBlockUnit;
    if (whole == values.size()) return;
    EncodeLast(begin + whole, values.subspan(whole),
               decoded.empty() ? decoded : decoded.subspan(whole));
  }

  uint64_t Finish() override { return buffer_.size(); }

 private:
  void EncodeLast(uint64_t begin, absl::Span<const float> values,
                  absl::Span<float> decoded) {
    LastUnit last;
    absl::c_copy(values, last.values);
    kernels_.encode(layout_.block_size, 1, last.values, last.scales, last.codes,
                    decoded.empty() ? nullptr : last.values);
    std::memcpy(buffer_.data() + layout_.ScaleAt(begin), last.scales,
                ScalePlaneBytes(values.size(), layout_.block_size));
    std::memcpy(buffer_.data() + layout_.CodeAt(begin), last.codes,
                CodePlaneBytes(layout_.format, values.size()));
    std::copy_n(last.values, decoded.size(), decoded.data());
  }

  const Layout layout_;
  const BlockKernels& kernels_;
  const absl::Span<char> buffer_;
};

class BlockDecoder final : public Decoder {
 public:
  BlockDecoder(const Layout& layout, absl::string_view encoded)
      : layout_(layout),
        kernels_(CpuBlockKernels(layout.format)),
        encoded_(encoded) {
    CHECK_EQ(encoded.size(), BlockEncodedBytes(layout.format, layout.block_size,
                                               layout.values));
  }

  void Decode(uint64_t begin, absl::Span<float> values) const override {
    CheckPiece(begin, values.size(), layout_.values);
    const uint64_t units = values.size() / kBlockUnit;
    kernels_.decode(layout_.block_size, units, Scales(begin), Codes(begin),
                    values.data());
    const absl::Span<float> rest = values.subspan(units * kBlockUnit);
    if (rest.empty()) return;
    LastUnit last;
    DecodeLast(begin + units * kBlockUnit, rest.size(), last);
    std::copy_n(last.values, rest.size(), rest.data());
  }

  void DecodeAccumulate(uint64_t begin, float weight,
                        absl::Span<float> accumulator) const override {
    CheckPiece(begin, accumulator.size(), layout_.values);
    const uint64_t units = accumulator.size() / kBlockUnit;
    kernels_.decode_accumulate(layout_.block_size, units, Scales(begin),
                               Codes(begin), weight, accumulator.data());
    const absl::Span<float> rest = accumulator.subspan(units * kBlockUnit);
    if (rest.empty()) return;
    LastUnit last;
    DecodeLast(begin + units * kBlockUnit, rest.size(), last);
    for (size_t i = 0; i < rest.size(); ++i) {
      rest[i] = Accumulate(rest[i], weight, last.values[i]);
    }
  }

  absl::Status CheckFinite() const override {
    const uint16_t largest = LargestScale(layout_.format);
    for (uint64_t begin = 0; begin < layout_.values;
         begin += layout_.block_size) {
      uint16_t scale;
      std::memcpy(&scale, Scales(begin), sizeof(scale));
      // Also infinities, NaN and whatever has a sign.
      if (scale > largest) return BadScale(begin, scale);
    }
    if (layout_.format != BlockFormat::kFp8E4m3) return absl::OkStatus();
    return CheckNoNanCode();
  }

 private:
  const char* Scales(uint64_t value) const {
    return encoded_.data() + layout_.ScaleAt(value);
  }
  const char* Codes(uint64_t value) const {
    return encoded_.data() + layout_.CodeAt(value);
  }

  // Decodes `count` values from `begin`, less than a unit.
  void DecodeLast(uint64_t begin, uint64_t count, LastUnit& last) const {
    std::memcpy(last.scales, Scales(begin),
                ScalePlaneBytes(count, layout_.block_size));
    std::memcpy(last.codes, Codes(begin),
                CodePlaneBytes(layout_.format, count));
    kernels_.decode(layout_.block_size, 1, last.scales, last.codes,
                    last.values);
  }

  absl::Status BadScale(uint64_t begin, uint16_t scale) const {
    const uint64_t end =
        std::min<uint64_t>(begin + layout_.block_size, layout_.values);
    const float value = FloatFromBf16(scale);
    if (std::isfinite(value)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "the block of value %d of %d (to value %d) has scale %g, but scales "
          "are 0 to %g: the sender's encoder is at fault",
          begin, layout_.values, end - 1, value,
          FloatFromBf16(LargestScale(layout_.format))));
    }
    return absl::InvalidArgumentError(absl::StrFormat(
        "the block of value %d of %d (to value %d) has scale %g; only finite "
        "values can be merged: the sender's training has diverged",
        begin, layout_.values, end - 1, value));
  }

  absl::Status CheckNoNanCode() const {
    const absl::string_view codes(Codes(0), layout_.values);
    const auto nan =
        absl::c_find_if(codes, [](char code) { return (code & 0x7f) == 0x7f; });
    if (nan == codes.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "value %d of %d is NaN (code 0x%02x), which no encoder writes in a "
        "block with a finite scale",
        nan - codes.begin(), layout_.values, static_cast<uint8_t>(*nan)));
  }

  const Layout layout_;
  const BlockKernels& kernels_;
  const absl::string_view encoded_;
};

}  // namespace

uint64_t BlockEncodedBytes(BlockFormat format, uint32_t block_size,
                           uint64_t values) {
  return ScalePlaneBytes(values, block_size) + CodePlaneBytes(format, values);
}

std::unique_ptr<Encoder> NewBlockEncoder(BlockFormat format,
                                         uint32_t block_size, uint64_t values,
                                         absl::Span<char> buffer) {
  return std::make_unique<BlockEncoder>(Layout{format, block_size, values},
                                        buffer);
}

std::unique_ptr<Decoder> NewBlockDecoder(BlockFormat format,
                                         uint32_t block_size, uint64_t values,
                                         absl::string_view encoded) {
  return std::make_unique<BlockDecoder>(Layout{format, block_size, values},
                                        encoded);
}

}  // namespace causeway
