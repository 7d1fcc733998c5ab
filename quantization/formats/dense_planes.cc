// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/formats/dense_planes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "quantization/formats/dense_kernels_cpu.h"

namespace causeway {
namespace {

static_assert(std::endian::native == std::endian::little,
              "encoded values are copied as they lie in memory");

struct Fp32 {
  static constexpr uint64_t kBytes = 4;
  static void Encode(const float* values, size_t count, char* encoded) {
    std::memcpy(encoded, values, count * kBytes);
  }
  static void Decode(const char* encoded, size_t count, float* values) {
    std::memcpy(values, encoded, count * kBytes);
  }
  static constexpr auto kDecodeAccumulate = DecodeAccumulateFp32;
  static constexpr auto kAllFinite = AllFiniteFp32;
};

struct Bf16 {
  static constexpr uint64_t kBytes = 2;
  static void Encode(const float* values, size_t count, char* encoded) {
    EncodeBf16(values, count, encoded);
  }
  static void Decode(const char* encoded, size_t count, float* values) {
    DecodeBf16(encoded, count, values);
  }
  static constexpr auto kDecodeAccumulate = DecodeAccumulateBf16;
  static constexpr auto kAllFinite = AllFiniteBf16;
};

template <typename Value>
class DensePlanes final : public StripPlanes {
 public:
  uint32_t code_bits() const override { return 8 * Value::kBytes; }
  uint64_t ScaleBytes(uint64_t /*values*/) const override { return 0; }
  uint64_t CodeBytes(uint64_t values) const override {
    return values * Value::kBytes;
  }

  uint8_t Encode(const EncodeOptions&, absl::Span<const float> values,
                 StripPart part, absl::Span<float> decoded) const override {
    Value::Encode(values.data(), values.size(), part.codes);
    if (!decoded.empty()) {
      Value::Decode(part.codes, decoded.size(), decoded.data());
    }
    return 0;
  }

  void Decode(ConstStripPart part, absl::Span<float> values) const override {
    Value::Decode(part.codes, values.size(), values.data());
  }

  void DecodeSum(absl::Span<const WeightedPart> terms,
                 absl::Span<float> sum) const override {
    absl::c_fill(sum, 0.0f);
    for (const auto& [part, weight] : terms) {
      Value::kDecodeAccumulate(part.codes, sum.size(), weight, sum.data());
    }
  }

  absl::Status CheckFinite(ConstStripPart part, uint64_t count, uint64_t begin,
                           uint64_t size) const override {
    std::array<float, 1024> piece;
    for (uint64_t at = 0; at < count; at += piece.size()) {
      const char* const encoded = part.codes + CodeBytes(at);
      const size_t values = std::min<uint64_t>(piece.size(), count - at);
      if (Value::kAllFinite(encoded, values)) continue;
      Value::Decode(encoded, values, piece.data());
      const float* const bad =
          std::find_if(piece.begin(), piece.begin() + values,
                       [](float value) { return !std::isfinite(value); });
      return absl::InvalidArgumentError(absl::StrFormat(
          "value %d of %d is %g; only finite values can be merged: the "
          "sender's training has diverged",
          begin + at + static_cast<uint64_t>(bad - piece.begin()), size, *bad));
    }
    return absl::OkStatus();
  }
};

}  // namespace

const StripPlanes& Fp32Planes() {
  static const DensePlanes<Fp32> planes;
  return planes;
}

const StripPlanes& Bf16Planes() {
  static const DensePlanes<Bf16> planes;
  return planes;
}

}  // namespace causeway
