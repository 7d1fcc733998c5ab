// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/entropy_codec.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "quantization/entropy/entropy_coder.h"
#include "quantization/strip_layout.h"

namespace causeway {
namespace {

SymbolWidth WidthOf(const StripPlanes& planes) {
  return planes.code_bits() == 8 ? SymbolWidth::kByte : SymbolWidth::kNibble;
}

uint64_t MaxStripBytes(const StripPlanes& planes, uint64_t values) {
  return StripHeader::kBytes + planes.ScaleBytes(values) +
         planes.CodeBytes(values);
}

class EntropyEncoder final : public Encoder {
 public:
  EntropyEncoder(std::unique_ptr<StripPlanes> planes, uint64_t values,
                 absl::Span<char> buffer)
      : planes_(std::move(planes)),
        values_(values),
        buffer_(buffer),
        waiting_(StripCount(values)) {}

  void Encode(uint64_t begin, absl::Span<const float> values,
              absl::Span<float> decoded) override {
    CHECK_EQ(begin % kStripValues, 0u);
    CHECK_LE(begin, values_);
    CHECK_LE(values.size(), values_ - begin);
    const uint64_t end = begin + values.size();
    CHECK(end == values_ || end % kStripValues == 0) << end;
    if (!decoded.empty()) CHECK_EQ(decoded.size(), values.size());
    std::vector<char> codes(
        planes_->CodeBytes(std::min(kStripValues, values.size())));
    ForEachStripPart(begin, values.size(), [&](uint64_t part, uint64_t count) {
      const uint64_t strip = part / kStripValues;
      char* const place = PlaceOf(strip);
      const uint64_t bytes = EncodeStrip(
          part, values.subspan(part - begin, count),
          decoded.empty() ? decoded : decoded.subspan(part - begin, count),
          codes.data(), place);
      Finished(strip, place, bytes);
    });
  }

  uint64_t ready() const override { return ready_; }

  uint64_t Finish() override {
    absl::MutexLock lock(&mutex_);
    CHECK_EQ(placed_, waiting_.size()) << "strips are missing";
    return ready_;
  }

 private:
  // A finished strip, as long as one before it is not.
  struct Waiting {
    const char* place = nullptr;
    uint64_t bytes = 0;
  };

  // Where strip `strip` is written: where it stays if everything before it is
  // there, otherwise where it would begin if nothing were compressed. That is
  // never before its end, and never within another strip.
  char* PlaceOf(uint64_t strip) {
    absl::MutexLock lock(&mutex_);
    return buffer_.data() +
           (strip == placed_ ? ready_.load()
                             : strip * MaxStripBytes(*planes_, kStripValues));
  }

  // Writes a whole strip to `place`; returns its bytes. `codes` has room for
  // its code plane.
  uint64_t EncodeStrip(uint64_t begin, absl::Span<const float> values,
                       absl::Span<float> decoded, char* codes, char* place) {
    const uint64_t scale_bytes = planes_->ScaleBytes(values.size());
    const uint64_t code_bytes = planes_->CodeBytes(values.size());
    char* const scales = place + StripHeader::kBytes;
    char* const coded = scales + scale_bytes;
    StripHeader header;
    header.parameter = planes_->Encode(
        begin, values, {.scales = scales, .codes = codes}, decoded);
    uint64_t coded_bytes =
        CompressCodes(WidthOf(*planes_), absl::string_view(codes, code_bytes),
                      absl::MakeSpan(coded, code_bytes));
    header.compressed = coded_bytes > 0;
    if (!header.compressed) {
      std::memcpy(coded, codes, code_bytes);
      coded_bytes = code_bytes;
    }
    header.bytes = static_cast<uint32_t>(scale_bytes + coded_bytes);
    WriteStripHeader(header, place);
    return StripHeader::kBytes + header.bytes;
  }

  // Moves what can be moved to where it stays.
  void Finished(uint64_t strip, const char* place, uint64_t bytes) {
    absl::MutexLock lock(&mutex_);
    CHECK(waiting_[strip].place == nullptr) << strip << " came twice";
    waiting_[strip] = {.place = place, .bytes = bytes};
    for (; placed_ < waiting_.size(); ++placed_) {
      const Waiting& next = waiting_[placed_];
      if (next.place == nullptr) break;
      char* const to = buffer_.data() + ready_;
      if (next.place != to) std::memmove(to, next.place, next.bytes);
      ready_ += next.bytes;
    }
  }

  const std::unique_ptr<StripPlanes> planes_;
  const uint64_t values_;
  const absl::Span<char> buffer_;

  absl::Mutex mutex_;
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  // Strips that are where they stay.
  uint64_t placed_ ABSL_GUARDED_BY(mutex_) = 0;
  // Their bytes; written under the lock.
  std::atomic<uint64_t> ready_ = 0;
};

class EntropyDecoder;

// Keeps the planes of one strip.
class EntropyCursor final : public DecodeCursor {
 public:
  explicit EntropyCursor(const EntropyDecoder& decoder) : decoder_(decoder) {}

  void Decode(uint64_t begin, absl::Span<float> values) override;
  void DecodeAccumulate(uint64_t begin, float weight,
                        absl::Span<float> accumulator) override;

  // The strip's planes, until the next call.
  //   INVALID_ARGUMENT  its length or its codes are wrong; it decodes to NaN.
  const absl::StatusOr<ConstStripPart>& Planes(uint64_t strip);

 private:
  absl::StatusOr<ConstStripPart> Open(uint64_t strip);

  // The planes from value `begin` on; nothing if they cannot be had.
  // CheckFinite() is where damage is reported.
  std::optional<ConstStripPart> From(uint64_t begin);

  const EntropyDecoder& decoder_;
  // What planes_ is of.
  uint64_t strip_ = std::numeric_limits<uint64_t>::max();
  absl::StatusOr<ConstStripPart> planes_;
  std::vector<char> codes_;
};

class EntropyDecoder final : public Decoder {
 public:
  EntropyDecoder(std::unique_ptr<StripPlanes> planes, uint64_t values,
                 StripIndex strips, absl::string_view encoded)
      : planes_(std::move(planes)),
        values_(values),
        strips_(std::move(strips)),
        encoded_(encoded) {}

  std::unique_ptr<DecodeCursor> NewCursor() const override {
    return std::make_unique<EntropyCursor>(*this);
  }

  absl::Status CheckFinite() const override {
    EntropyCursor cursor(*this);
    for (uint64_t strip = 0; strip < StripCount(values_); ++strip) {
      ASSIGN_OR_RETURN(const ConstStripPart part, cursor.Planes(strip));
      RETURN_IF_ERROR(planes_->CheckFinite(part, ValuesOfStrip(strip, values_),
                                           strip * kStripValues, values_));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> SumOfSquares() const override {
    EntropyCursor cursor(*this);
    double sum = 0;
    for (uint64_t strip = 0; strip < StripCount(values_); ++strip) {
      const uint64_t count = ValuesOfStrip(strip, values_);
      ASSIGN_OR_RETURN(const ConstStripPart part, cursor.Planes(strip));
      RETURN_IF_ERROR(
          planes_->CheckFinite(part, count, strip * kStripValues, values_));
      sum += planes_->SumOfSquares(part, count);
    }
    return sum;
  }

  const StripPlanes& planes() const { return *planes_; }
  uint64_t values() const { return values_; }
  absl::string_view Strip(uint64_t strip) const {
    return strips_.Strip(encoded_, strip);
  }

 private:
  const std::unique_ptr<StripPlanes> planes_;
  const uint64_t values_;
  const StripIndex strips_;
  const absl::string_view encoded_;
};

void EntropyCursor::Decode(uint64_t begin, absl::Span<float> values) {
  CHECK_EQ(begin % kPieceAlignment, 0u);
  CHECK_LE(begin, decoder_.values());
  CHECK_LE(values.size(), decoder_.values() - begin);
  ForEachStripPart(begin, values.size(), [&](uint64_t at, uint64_t count) {
    const absl::Span<float> piece = values.subspan(at - begin, count);
    if (const auto part = From(at); part.has_value()) {
      decoder_.planes().Decode(*part, piece);
    } else {
      std::fill(piece.begin(), piece.end(),
                std::numeric_limits<float>::quiet_NaN());
    }
  });
}

void EntropyCursor::DecodeAccumulate(uint64_t begin, float weight,
                                     absl::Span<float> accumulator) {
  CHECK_EQ(begin % kPieceAlignment, 0u);
  CHECK_LE(begin, decoder_.values());
  CHECK_LE(accumulator.size(), decoder_.values() - begin);
  ForEachStripPart(begin, accumulator.size(), [&](uint64_t at, uint64_t count) {
    const absl::Span<float> piece = accumulator.subspan(at - begin, count);
    if (const auto part = From(at); part.has_value()) {
      decoder_.planes().DecodeAccumulate(*part, weight, piece);
    } else {
      std::fill(piece.begin(), piece.end(),
                std::numeric_limits<float>::quiet_NaN());
    }
  });
}

const absl::StatusOr<ConstStripPart>& EntropyCursor::Planes(uint64_t strip) {
  if (strip != strip_) {
    strip_ = strip;
    planes_ = Open(strip);
  }
  return planes_;
}

std::optional<ConstStripPart> EntropyCursor::From(uint64_t begin) {
  const absl::StatusOr<ConstStripPart>& planes = Planes(begin / kStripValues);
  if (!planes.ok()) return std::nullopt;
  const uint64_t offset = begin % kStripValues;
  return ConstStripPart{
      .scales = planes->scales + decoder_.planes().ScaleBytes(offset),
      .codes = planes->codes + decoder_.planes().CodeBytes(offset),
      .parameter = planes->parameter};
}

absl::StatusOr<ConstStripPart> EntropyCursor::Open(uint64_t strip) {
  const StripPlanes& planes = decoder_.planes();
  const uint64_t values = ValuesOfStrip(strip, decoder_.values());
  const uint64_t scale_bytes = planes.ScaleBytes(values);
  const uint64_t code_bytes = planes.CodeBytes(values);
  const absl::string_view bytes = decoder_.Strip(strip);
  const StripHeader header = ReadStripHeader(bytes.data());
  const auto damaged = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrFormat("strip %d of %d (values %d to %d): %s", strip,
                        StripCount(decoder_.values()), strip * kStripValues,
                        strip * kStripValues + values - 1, what));
  };
  if (header.compressed ? header.bytes < scale_bytes
                        : header.bytes != scale_bytes + code_bytes) {
    return damaged(absl::StrFormat(
        "it has %d bytes, but its scales take %d and its codes %s%d",
        header.bytes, scale_bytes, header.compressed ? "at most " : "",
        code_bytes));
  }
  const char* const scales = bytes.data() + StripHeader::kBytes;
  const absl::string_view coded =
      bytes.substr(StripHeader::kBytes + scale_bytes);
  const char* codes = coded.data();
  if (header.compressed) {
    codes_.resize(planes.CodeBytes(kStripValues));
    const absl::Status status = DecompressCodes(
        WidthOf(planes), coded, absl::MakeSpan(codes_).subspan(0, code_bytes));
    if (!status.ok()) return damaged(status.message());
    codes = codes_.data();
  }
  return ConstStripPart{
      .scales = scales, .codes = codes, .parameter = header.parameter};
}

}  // namespace

std::unique_ptr<Encoder> NewEntropyEncoder(std::unique_ptr<StripPlanes> planes,
                                           uint64_t values,
                                           absl::Span<char> buffer) {
  return std::make_unique<EntropyEncoder>(std::move(planes), values, buffer);
}

std::unique_ptr<Decoder> NewEntropyDecoder(std::unique_ptr<StripPlanes> planes,
                                           uint64_t values, StripIndex strips,
                                           absl::string_view encoded) {
  return std::make_unique<EntropyDecoder>(std::move(planes), values,
                                          std::move(strips), encoded);
}

}  // namespace causeway
