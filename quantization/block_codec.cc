// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/block_codec.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "quantization/block_planes.h"
#include "quantization/strip_layout.h"
#include "quantization/strip_planes.h"
#include "quantization/strip_progress.h"

namespace causeway {
namespace {

static_assert(kPieceAlignment % kBlockUnit == 0);
static_assert(kStripValues % kPieceAlignment == 0);

// Where the planes lie.
struct Layout {
  uint64_t StripBytes() const {
    return BlockEncodedBytes(format, block_size, kStripValues);
  }
  // Pieces begin at whole blocks and whole groups.
  uint64_t ScaleAt(uint64_t value) const {
    return value / kStripValues * StripBytes() +
           ScalePlaneBytes(value % kStripValues, block_size);
  }
  uint64_t CodeAt(uint64_t value) const {
    const uint64_t strip = value / kStripValues;
    return strip * StripBytes() +
           ScalePlaneBytes(ValuesOfStrip(strip, values), block_size) +
           CodePlaneBytes(format, value % kStripValues);
  }

  BlockFormat format;
  uint32_t block_size;
  uint64_t values;

  friend bool operator==(const Layout&, const Layout&) = default;
};

// A piece outside the vector is our own bug.
void CheckPiece(uint64_t begin, uint64_t count, uint64_t values) {
  CHECK_EQ(begin % kPieceAlignment, 0u);
  CHECK_LE(begin, values);
  CHECK_LE(count, values - begin);
}

class BlockEncoder final : public Encoder {
 public:
  BlockEncoder(const Layout& layout, const EncodeOptions& options,
               uint64_t first_value, absl::Span<char> buffer)
      : layout_(layout),
        planes_(layout.format, layout.block_size, options, first_value),
        buffer_(buffer),
        progress_(layout.values) {
    CHECK_EQ(buffer.size(), BlockEncodedBytes(layout.format, layout.block_size,
                                              layout.values));
  }

  void Encode(uint64_t begin, absl::Span<const float> values,
              absl::Span<float> decoded) override {
    CheckPiece(begin, values.size(), layout_.values);
    const uint64_t end = begin + values.size();
    CHECK(end == layout_.values || end % kPieceAlignment == 0) << end;
    if (!decoded.empty()) CHECK_EQ(decoded.size(), values.size());
    ForEachStripPart(begin, values.size(), [&](uint64_t part, uint64_t count) {
      planes_.Encode(
          part, values.subspan(part - begin, count),
          {.scales = buffer_.data() + layout_.ScaleAt(part),
           .codes = buffer_.data() + layout_.CodeAt(part)},
          decoded.empty() ? decoded : decoded.subspan(part - begin, count));
    });
    progress_.Add(begin, values.size());
  }

  uint64_t ready() const override {
    const uint64_t strips = progress_.leading_strips();
    return std::min(strips * layout_.StripBytes(), buffer_.size());
  }

  uint64_t Finish() override {
    CHECK(progress_.finished());
    return buffer_.size();
  }

 private:
  const Layout layout_;
  const BlockPlanes planes_;
  const absl::Span<char> buffer_;
  StripProgress progress_;
};

// Keeps nothing between calls.
class BlockCursor final : public DecodeCursor {
 public:
  BlockCursor(const Layout& layout, absl::string_view encoded)
      : layout_(layout),
        planes_(layout.format, layout.block_size, {}),
        encoded_(encoded) {}

  void Decode(uint64_t begin, absl::Span<float> values) override {
    CheckPiece(begin, values.size(), layout_.values);
    ForEachStripPart(begin, values.size(), [&](uint64_t part, uint64_t count) {
      planes_.Decode(At(part), values.subspan(part - begin, count));
    });
  }

  void DecodeAccumulate(uint64_t begin, float weight,
                        absl::Span<float> accumulator) override {
    CheckPiece(begin, accumulator.size(), layout_.values);
    ForEachStripPart(
        begin, accumulator.size(), [&](uint64_t part, uint64_t count) {
          planes_.DecodeAccumulate(At(part), weight,
                                   accumulator.subspan(part - begin, count));
        });
  }

  const Layout& layout() const { return layout_; }
  absl::string_view encoded() const { return encoded_; }

  absl::Status CheckFinite() const {
    for (uint64_t strip = 0; strip < StripCount(layout_.values); ++strip) {
      PrefetchScales(strip + 1);
      RETURN_IF_ERROR(CheckFinite(strip));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> SumOfSquares() const {
    double sum = 0;
    for (uint64_t strip = 0; strip < StripCount(layout_.values); ++strip) {
      RETURN_IF_ERROR(CheckFinite(strip));
      sum += planes_.SumOfSquares(At(strip * kStripValues),
                                  ValuesOfStrip(strip, layout_.values));
    }
    return sum;
  }

 private:
  ConstStripPart At(uint64_t value) const {
    return {.scales = encoded_.data() + layout_.ScaleAt(value),
            .codes = encoded_.data() + layout_.CodeAt(value)};
  }

  absl::Status CheckFinite(uint64_t strip) const {
    const uint64_t begin = strip * kStripValues;
    return planes_.CheckFinite(At(begin), ValuesOfStrip(strip, layout_.values),
                               begin, layout_.values);
  }

  // They lie too far apart for the hardware to foresee.
  void PrefetchScales(uint64_t strip) const {
    if (strip >= StripCount(layout_.values)) return;
    const uint64_t begin = layout_.ScaleAt(strip * kStripValues);
    const uint64_t end = layout_.CodeAt(strip * kStripValues);
    for (uint64_t at = begin; at < end; at += 64) {
      __builtin_prefetch(encoded_.data() + at);
    }
  }

  const Layout layout_;
  const BlockPlanes planes_;
  const absl::string_view encoded_;
};

class BlockDecoder final : public Decoder {
 public:
  BlockDecoder(const Layout& layout, absl::string_view encoded)
      : cursor_(layout, encoded) {
    CHECK_EQ(encoded.size(), BlockEncodedBytes(layout.format, layout.block_size,
                                               layout.values));
  }

  std::unique_ptr<DecodeCursor> NewCursor() const override {
    return std::make_unique<BlockCursor>(cursor_);
  }
  absl::Status CheckFinite() const override { return cursor_.CheckFinite(); }
  absl::StatusOr<double> SumOfSquares() const override {
    return cursor_.SumOfSquares();
  }

  const Layout& layout() const { return cursor_.layout(); }
  absl::string_view encoded() const { return cursor_.encoded(); }

 private:
  const BlockCursor cursor_;
};

class BlockSumCursor final : public SumCursor {
 public:
  BlockSumCursor(const Layout& layout, std::vector<absl::string_view> encoded)
      : layout_(layout),
        planes_(layout.format, layout.block_size, {}),
        encoded_(std::move(encoded)),
        terms_(encoded_.size()) {}

  void Sum(uint64_t begin, absl::Span<const float> weights,
           absl::Span<float> sum) override {
    CheckPiece(begin, sum.size(), layout_.values);
    CHECK_EQ(weights.size(), terms_.size());
    ForEachStripPart(begin, sum.size(), [&](uint64_t part, uint64_t count) {
      const uint64_t scale_at = layout_.ScaleAt(part);
      const uint64_t code_at = layout_.CodeAt(part);
      for (size_t i = 0; i < terms_.size(); ++i) {
        terms_[i] = {.scales = encoded_[i].data() + scale_at,
                     .codes = encoded_[i].data() + code_at,
                     .weight = weights[i]};
      }
      planes_.DecodeSum(terms_, sum.subspan(part - begin, count));
    });
  }

 private:
  const Layout layout_;
  const BlockPlanes planes_;
  const std::vector<absl::string_view> encoded_;
  // Those of the part at hand.
  std::vector<BlockTerm> terms_;
};

}  // namespace

uint64_t BlockEncodedBytes(BlockFormat format, uint32_t block_size,
                           uint64_t values) {
  // Strips are whole blocks and whole groups, so the sum of their planes is the
  // planes of the whole.
  return ScalePlaneBytes(values, block_size) + CodePlaneBytes(format, values);
}

std::unique_ptr<Encoder> NewBlockEncoder(BlockFormat format,
                                         uint32_t block_size,
                                         const EncodeOptions& options,
                                         uint64_t first_value, uint64_t values,
                                         absl::Span<char> buffer) {
  return std::make_unique<BlockEncoder>(Layout{format, block_size, values},
                                        options, first_value, buffer);
}

std::unique_ptr<Decoder> NewBlockDecoder(BlockFormat format,
                                         uint32_t block_size, uint64_t values,
                                         absl::string_view encoded) {
  return std::make_unique<BlockDecoder>(Layout{format, block_size, values},
                                        encoded);
}

std::unique_ptr<SumCursor> NewBlockSumCursor(
    absl::Span<const std::unique_ptr<Decoder>> decoders) {
  const BlockDecoder* first = nullptr;
  std::vector<absl::string_view> encoded;
  for (const std::unique_ptr<Decoder>& decoder : decoders) {
    const auto* const block = dynamic_cast<const BlockDecoder*>(decoder.get());
    if (block == nullptr) return nullptr;
    if (first == nullptr) first = block;
    if (block->layout() != first->layout()) return nullptr;
    encoded.push_back(block->encoded());
  }
  if (first == nullptr) return nullptr;
  return std::make_unique<BlockSumCursor>(first->layout(), std::move(encoded));
}

}  // namespace causeway
