// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/dense_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "quantization/kernels_cpu.h"
#include "quantization/strip_layout.h"
#include "quantization/strip_progress.h"

namespace causeway {
namespace {

static_assert(std::endian::native == std::endian::little,
              "encoded values are copied as they lie in memory");

struct Fp32 {
  static constexpr uint64_t kBytes = kFp32Bytes;
  static void Encode(const float* values, size_t count, char* encoded) {
    std::memcpy(encoded, values, count * kBytes);
  }
  static void Decode(const char* encoded, size_t count, float* values) {
    std::memcpy(values, encoded, count * kBytes);
  }
  static void DecodeAccumulate(const char* encoded, size_t count, float weight,
                               float* accumulator) {
    DecodeAccumulateFp32(encoded, count, weight, accumulator);
  }
  static bool AllFinite(const char* encoded, size_t count) {
    return AllFiniteFp32(encoded, count);
  }
};

struct Bf16 {
  static constexpr uint64_t kBytes = kBf16Bytes;
  static void Encode(const float* values, size_t count, char* encoded) {
    EncodeBf16(values, count, encoded);
  }
  static void Decode(const char* encoded, size_t count, float* values) {
    DecodeBf16(encoded, count, values);
  }
  static void DecodeAccumulate(const char* encoded, size_t count, float weight,
                               float* accumulator) {
    DecodeAccumulateBf16(encoded, count, weight, accumulator);
  }
  static bool AllFinite(const char* encoded, size_t count) {
    return AllFiniteBf16(encoded, count);
  }
};

// A piece outside the vector is our own bug.
void CheckPiece(uint64_t begin, uint64_t count, uint64_t values) {
  CHECK_EQ(begin % kPieceAlignment, 0u);
  CHECK_LE(begin, values);
  CHECK_LE(count, values - begin);
}

template <typename Value>
class DenseEncoder final : public Encoder {
 public:
  DenseEncoder(uint64_t values, absl::Span<char> buffer)
      : values_(values), buffer_(buffer), progress_(values) {
    CHECK_EQ(buffer.size(), values * Value::kBytes);
  }

  void Encode(uint64_t begin, absl::Span<const float> values,
              absl::Span<float> decoded) override {
    CheckPiece(begin, values.size(), values_);
    const uint64_t end = begin + values.size();
    CHECK(end == values_ || end % kPieceAlignment == 0) << end;
    if (values.empty()) return;
    char* const encoded = buffer_.data() + begin * Value::kBytes;
    Value::Encode(values.data(), values.size(), encoded);
    if (!decoded.empty()) {
      CHECK_EQ(decoded.size(), values.size());
      Value::Decode(encoded, decoded.size(), decoded.data());
    }
    progress_.Add(begin, values.size());
  }

  uint64_t ready() const override {
    const uint64_t values = progress_.leading_strips() * kStripValues;
    return std::min(values, values_) * Value::kBytes;
  }

  uint64_t Finish() override {
    CHECK(progress_.finished());
    return buffer_.size();
  }

 private:
  const uint64_t values_;
  const absl::Span<char> buffer_;
  StripProgress progress_;
};

// Keeps nothing between calls.
template <typename Value>
class DenseCursor final : public DecodeCursor {
 public:
  DenseCursor(uint64_t values, absl::string_view encoded)
      : values_(values), encoded_(encoded) {}

  void Decode(uint64_t begin, absl::Span<float> values) override {
    CheckPiece(begin, values.size(), values_);
    if (values.empty()) return;
    Value::Decode(At(begin), values.size(), values.data());
  }

  void DecodeAccumulate(uint64_t begin, float weight,
                        absl::Span<float> accumulator) override {
    CheckPiece(begin, accumulator.size(), values_);
    Value::DecodeAccumulate(At(begin), accumulator.size(), weight,
                            accumulator.data());
  }

  double SumOfSquares() const {
    double sum = 0;
    ForEachStripPart(0, values_, [&](uint64_t begin, uint64_t count) {
      std::array<float, 4096> tile;
      double sum_of_strip = 0;
      for (uint64_t at = 0; at < count; at += tile.size()) {
        const size_t size = std::min<uint64_t>(tile.size(), count - at);
        Value::Decode(At(begin + at), size, tile.data());
        sum_of_strip += causeway::SumOfSquares(tile.data(), size);
      }
      sum += sum_of_strip;
    });
    return sum;
  }

  absl::Status CheckFinite() const {
    std::array<float, 1024> piece;
    for (uint64_t begin = 0; begin < values_; begin += piece.size()) {
      const size_t count = std::min<uint64_t>(piece.size(), values_ - begin);
      if (Value::AllFinite(At(begin), count)) continue;
      Value::Decode(At(begin), count, piece.data());
      const float* const bad =
          std::find_if(piece.begin(), piece.begin() + count,
                       [](float value) { return !std::isfinite(value); });
      return absl::InvalidArgumentError(absl::StrFormat(
          "value %d of %d is %g; only finite values can be merged: the "
          "sender's training has diverged",
          begin + static_cast<uint64_t>(bad - piece.begin()), values_, *bad));
    }
    return absl::OkStatus();
  }

 private:
  const char* At(uint64_t index) const {
    return encoded_.data() + index * Value::kBytes;
  }

  const uint64_t values_;
  const absl::string_view encoded_;
};

template <typename Value>
class DenseDecoder final : public Decoder {
 public:
  DenseDecoder(uint64_t values, absl::string_view encoded)
      : cursor_(values, encoded) {
    CHECK_EQ(encoded.size(), values * Value::kBytes);
  }

  std::unique_ptr<DecodeCursor> NewCursor() const override {
    return std::make_unique<DenseCursor<Value>>(cursor_);
  }
  absl::Status CheckFinite() const override { return cursor_.CheckFinite(); }
  absl::StatusOr<double> SumOfSquares() const override {
    RETURN_IF_ERROR(cursor_.CheckFinite());
    return cursor_.SumOfSquares();
  }

 private:
  const DenseCursor<Value> cursor_;
};

}  // namespace

std::unique_ptr<Encoder> NewFp32Encoder(uint64_t values,
                                        absl::Span<char> buffer) {
  return std::make_unique<DenseEncoder<Fp32>>(values, buffer);
}

std::unique_ptr<Encoder> NewBf16Encoder(uint64_t values,
                                        absl::Span<char> buffer) {
  return std::make_unique<DenseEncoder<Bf16>>(values, buffer);
}

std::unique_ptr<Decoder> NewFp32Decoder(uint64_t values,
                                        absl::string_view encoded) {
  return std::make_unique<DenseDecoder<Fp32>>(values, encoded);
}

std::unique_ptr<Decoder> NewBf16Decoder(uint64_t values,
                                        absl::string_view encoded) {
  return std::make_unique<DenseDecoder<Bf16>>(values, encoded);
}

}  // namespace causeway
