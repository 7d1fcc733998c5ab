// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/block_planes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"
#include "quantization/reference.h"

namespace causeway {

static_assert(std::endian::native == std::endian::little,
              "scales and groups of codes are copied as they lie in memory");

// Filled up to one unit. Zero-initialized: filling has scale 0, codes 0 and
// values 0.
struct BlockPlanes::LastUnit {
  float values[kBlockUnit] = {};
  char scales[2 * kBlockUnit / 64] = {};
  char codes[kBlockUnit] = {};
};

BlockPlanes::BlockPlanes(BlockFormat format, uint32_t block_size,
                         const EncodeOptions& options)
    : format_(format),
      block_size_(block_size),
      kernels_(CpuBlockKernels(format)) {
  CHECK(options.rounding == Rounding::kNearest);
}

uint8_t BlockPlanes::Encode(uint64_t, absl::Span<const float> values,
                            StripPart part, absl::Span<float> decoded) const {
  const uint64_t units = values.size() / kBlockUnit;
  kernels_.encode(block_size_, units, values.data(), part.scales, part.codes,
                  decoded.empty() ? nullptr : decoded.data());
  const uint64_t whole = units * kBlockUnit;
  const absl::Span<const float> rest = values.subspan(whole);
  if (rest.empty()) return 0;
  LastUnit last;
  absl::c_copy(rest, last.values);
  kernels_.encode(block_size_, 1, last.values, last.scales, last.codes,
                  decoded.empty() ? nullptr : last.values);
  std::memcpy(part.scales + ScaleBytes(whole), last.scales,
              ScaleBytes(rest.size()));
  std::memcpy(part.codes + CodeBytes(whole), last.codes,
              CodeBytes(rest.size()));
  if (decoded.empty()) return 0;
  std::copy_n(last.values, rest.size(), decoded.data() + whole);
  return 0;
}

void BlockPlanes::Decode(ConstStripPart part, absl::Span<float> values) const {
  const uint64_t units = values.size() / kBlockUnit;
  kernels_.decode(block_size_, units, part.scales, part.codes, values.data());
  const uint64_t whole = units * kBlockUnit;
  const absl::Span<float> rest = values.subspan(whole);
  if (rest.empty()) return;
  LastUnit last;
  DecodeLast(part, whole, rest.size(), last);
  std::copy_n(last.values, rest.size(), rest.data());
}

void BlockPlanes::DecodeAccumulate(ConstStripPart part, float weight,
                                   absl::Span<float> accumulator) const {
  const uint64_t units = accumulator.size() / kBlockUnit;
  kernels_.decode_accumulate(block_size_, units, part.scales, part.codes,
                             weight, accumulator.data());
  const uint64_t whole = units * kBlockUnit;
  const absl::Span<float> rest = accumulator.subspan(whole);
  if (rest.empty()) return;
  LastUnit last;
  DecodeLast(part, whole, rest.size(), last);
  for (size_t i = 0; i < rest.size(); ++i) {
    rest[i] = Accumulate(rest[i], weight, last.values[i]);
  }
}

void BlockPlanes::DecodeLast(ConstStripPart part, uint64_t whole,
                             uint64_t count, LastUnit& last) const {
  std::memcpy(last.scales, part.scales + ScaleBytes(whole), ScaleBytes(count));
  std::memcpy(last.codes, part.codes + CodeBytes(whole), CodeBytes(count));
  kernels_.decode(block_size_, 1, last.scales, last.codes, last.values);
}

absl::Status BlockPlanes::CheckFinite(ConstStripPart part, uint64_t count,
                                      uint64_t begin, uint64_t size) const {
  const uint16_t largest = LargestScale(format_);
  for (uint64_t at = 0; at < count; at += block_size_) {
    uint16_t scale;
    std::memcpy(&scale, part.scales + ScaleBytes(at), sizeof(scale));
    // Also infinities, NaN and whatever has a sign.
    if (scale > largest) return BadScale(scale, begin + at, size);
  }
  if (format_ != BlockFormat::kFp8E4m3) return absl::OkStatus();
  const absl::string_view plane(part.codes, count);
  const auto nan =
      absl::c_find_if(plane, [](char code) { return (code & 0x7f) == 0x7f; });
  if (nan == plane.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "value %d of %d is NaN (code 0x%02x), which no encoder writes in a "
      "block with a finite scale",
      begin + static_cast<uint64_t>(nan - plane.begin()), size,
      static_cast<uint8_t>(*nan)));
}

absl::Status BlockPlanes::BadScale(uint16_t scale, uint64_t begin,
                                   uint64_t size) const {
  const uint64_t end = std::min<uint64_t>(begin + block_size_, size);
  const float value = FloatFromBf16(scale);
  if (std::isfinite(value)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the block of value %d of %d (to value %d) has scale %g, but scales "
        "are 0 to %g: the sender's encoder is at fault",
        begin, size, end - 1, value, FloatFromBf16(LargestScale(format_))));
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "the block of value %d of %d (to value %d) has scale %g; only finite "
      "values can be merged: the sender's training has diverged",
      begin, size, end - 1, value));
}

}  // namespace causeway
