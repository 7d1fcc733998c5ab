// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "quantization/strips/encoding_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "glog/logging.h"

namespace causeway {

EncodingReader::EncodingReader(const StripPlanes& planes, bool entropy_coded,
                               uint64_t values, Task task)
    : planes_(&planes),
      entropy_coded_(entropy_coded),
      values_(values),
      task_(task) {}

absl::Status EncodingReader::Read(absl::string_view bytes) {
  while (layout_.ok() && !bytes.empty()) {
    if (complete() == strips()) {
      layout_ = absl::InvalidArgumentError(absl::StrFormat(
          "the encoding of %d values ends after %d bytes, but %d more arrived",
          values_, EndOf(complete()), bytes.size()));
      break;
    }
    bytes.remove_prefix(ReadStrip(bytes));
  }
  return layout_;
}

uint64_t EncodingReader::ReadStrip(absl::string_view bytes) {
  uint64_t taken = 0;
  if (incoming_.bytes == 0) {
    taken = ReadHeader(bytes);
    if (incoming_.bytes == 0) return taken;
  }
  const absl::string_view part =
      bytes.substr(taken, incoming_.bytes - incoming_.read);
  incoming_.read += part.size();
  if (task_ == Task::kMeasureValues) {
    if (entropy_coded_) {
      incoming_.kept.append(part.data(), part.size());
    } else {
      MeasurePlain(part);
    }
  }
  if (incoming_.read == incoming_.bytes) EndStrip();
  return taken + part.size();
}

uint64_t EncodingReader::ReadHeader(absl::string_view bytes) {
  const uint64_t values = ValuesOfStrip(complete(), values_);
  if (!entropy_coded_) {
    incoming_.bytes = planes_->Bytes(values);
    return 0;
  }
  const absl::string_view part =
      bytes.substr(0, StripHeader::kBytes - incoming_.read);
  incoming_.kept.append(part.data(), part.size());
  incoming_.read += part.size();
  if (incoming_.read < StripHeader::kBytes) return part.size();
  const uint64_t strip_bytes =
      StripHeader::kBytes + ReadStripHeader(incoming_.kept.data()).bytes;
  const uint64_t most = MaxEntropyStripBytes(*planes_, values);
  if (strip_bytes <= most) {
    incoming_.bytes = strip_bytes;
  } else {
    layout_ = absl::InvalidArgumentError(absl::StrFormat(
        "strip %d of %d says that it has %d bytes; its %d values take at most "
        "%d",
        complete(), strips(), strip_bytes, values, most));
  }
  return part.size();
}

void EncodingReader::EndStrip() {
  if (task_ == Task::kMeasureValues && entropy_coded_) MeasureEntropyCoded();
  complete_.push_back({.end = EndOf(complete()) + incoming_.bytes,
                       .squares = incoming_.squares});
  // clear() keeps the memory.
  incoming_.kept.clear();
  incoming_.codes.clear();
  incoming_.read = incoming_.bytes = incoming_.measured = 0;
  incoming_.squares = 0;
}

void EncodingReader::MeasurePlain(absl::string_view bytes) {
  // Moves bytes to `to` until it has `size` bytes.
  const auto take = [&bytes](uint64_t size, std::string& to) {
    const absl::string_view taken = bytes.substr(0, size - to.size());
    to.append(taken.data(), taken.size());
    bytes.remove_prefix(taken.size());
  };
  std::string& scales = incoming_.kept;
  std::string& codes = incoming_.codes;
  take(planes_->ScaleBytes(ValuesOfStrip(complete(), values_)), scales);
  while (!bytes.empty()) {
    const char* const tile_scales =
        scales.data() + planes_->ScaleBytes(incoming_.measured);
    const uint64_t tile_bytes = planes_->CodeBytes(TileValues());
    if (codes.empty() && bytes.size() >= tile_bytes) {
      MeasureTile({.scales = tile_scales, .codes = bytes.data()});
      bytes.remove_prefix(tile_bytes);
      continue;
    }
    take(tile_bytes, codes);
    if (codes.size() < tile_bytes) return;
    MeasureTile({.scales = tile_scales, .codes = codes.data()});
    codes.clear();
  }
}

void EncodingReader::MeasureTile(ConstStripPart part) {
  const uint64_t count = TileValues();
  const uint64_t begin = complete() * kStripValues + incoming_.measured;
  incoming_.measured += count;
  if (std::isnan(incoming_.squares)) return;
  const absl::Status finite = planes_->CheckFinite(part, count, begin, values_);
  if (!finite.ok()) return NoteNotFinite(finite);
  incoming_.squares += planes_->SumOfSquares(part, count);
}

void EncodingReader::MeasureEntropyCoded() {
  const uint64_t index = complete();
  const uint64_t values = ValuesOfStrip(index, values_);
  const absl::StatusOr<ConstStripPart> strip =
      OpenBytes(incoming_.kept, index, [&](EntropyStrip& found) {
        if (!codes_.empty()) {
          return Decompress(*planes_, CodesOf(index, codes_), found);
        }
        decompressed_.resize(planes_->CodeBytes(values));
        return Decompress(*planes_, absl::MakeSpan(decompressed_), found);
      });
  const absl::Status finite =
      strip.ok()
          ? planes_->CheckFinite(*strip, values, index * kStripValues, values_)
          : strip.status();
  if (!finite.ok()) return NoteNotFinite(finite);
  for (uint64_t at = 0; at < values; at += StripPlanes::kTileValues) {
    incoming_.squares +=
        planes_->SumOfSquares(planes_->PartFrom(*strip, at),
                              std::min(StripPlanes::kTileValues, values - at));
  }
}

void EncodingReader::NoteNotFinite(const absl::Status& status) {
  incoming_.squares = std::numeric_limits<double>::quiet_NaN();
  if (!finite_.ok()) return;
  finite_ = status;
  not_finite_strip_ = complete();
}

uint64_t EncodingReader::TileValues() const {
  return std::min(StripPlanes::kTileValues,
                  ValuesOfStrip(complete(), values_) - incoming_.measured);
}

void EncodingReader::GoBack(absl::string_view encoding) {
  while (EndOf(complete()) > encoding.size()) complete_.pop_back();
  incoming_ = {};
  layout_ = absl::OkStatus();
  if (not_finite_strip_ >= complete()) finite_ = absl::OkStatus();
  Read(encoding.substr(EndOf(complete()))).IgnoreError();
}

absl::Status EncodingReader::CheckComplete() const {
  RETURN_IF_ERROR(layout_);
  if (complete() == strips()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("the encoding of %d values breaks off in strip %d of %d",
                      values_, complete(), strips()));
}

absl::string_view EncodingReader::Strip(absl::string_view encoding,
                                        uint64_t strip) const {
  CHECK_LT(strip, complete());
  return encoding.substr(EndOf(strip), EndOf(strip + 1) - EndOf(strip));
}

absl::StatusOr<ConstStripPart> EncodingReader::Open(
    absl::string_view encoding, uint64_t strip,
    std::vector<char>& codes) const {
  return OpenBytes(Strip(encoding, strip), strip, [&](EntropyStrip& found) {
    codes.resize(planes_->CodeBytes(ValuesOfStrip(strip, values_)));
    return Decompress(*planes_, absl::MakeSpan(codes), found);
  });
}

absl::StatusOr<ConstStripPart> EncodingReader::OpenKept(
    absl::string_view encoding, uint64_t strip,
    absl::Span<const char> kept) const {
  return OpenBytes(Strip(encoding, strip), strip, [&](EntropyStrip& found) {
    found.part.codes = CodesOf(strip, kept).data();
    return absl::OkStatus();
  });
}

absl::StatusOr<ConstStripPart> EncodingReader::OpenBytes(
    absl::string_view bytes, uint64_t strip,
    absl::FunctionRef<absl::Status(EntropyStrip& found)> open) const {
  const uint64_t values = ValuesOfStrip(strip, values_);
  if (!entropy_coded_) {
    return ConstStripPart{.scales = bytes.data(),
                          .codes = bytes.data() + planes_->ScaleBytes(values)};
  }
  absl::StatusOr<EntropyStrip> found = FindPlanes(*planes_, values, bytes);
  absl::Status status = found.status();
  if (status.ok() && found->part.codes == nullptr) status = open(*found);
  if (status.ok()) return found->part;
  const uint64_t begin = strip * kStripValues;
  return absl::InvalidArgumentError(
      absl::StrFormat("strip %d of %d (values %d to %d): %s", strip, strips(),
                      begin, begin + values - 1, status.message()));
}

absl::Status EncodingReader::CheckStrip(absl::string_view encoding,
                                        uint64_t strip) const {
  std::vector<char> codes;
  ASSIGN_OR_RETURN(const ConstStripPart part, Open(encoding, strip, codes));
  return planes_->CheckFinite(part, ValuesOfStrip(strip, values_),
                              strip * kStripValues, values_);
}

absl::Status EncodingReader::DecodeStrip(absl::string_view encoding,
                                         uint64_t strip,
                                         absl::Span<float> values) const {
  CHECK_EQ(values.size(), ValuesOfStrip(strip, values_));
  std::vector<char> codes;
  ASSIGN_OR_RETURN(const ConstStripPart part, Open(encoding, strip, codes));
  RETURN_IF_ERROR(
      planes_->CheckFinite(part, values.size(), strip * kStripValues, values_));
  planes_->Decode(part, values);
  return absl::OkStatus();
}

absl::StatusOr<double> EncodingReader::Norm() const {
  CHECK(task_ == Task::kMeasureValues);
  RETURN_IF_ERROR(CheckComplete());
  if (!finite_.ok()) return absl::OutOfRangeError(finite_.message());
  double squares = 0;
  for (const CompleteStrip& strip : complete_) squares += strip.squares;
  return std::sqrt(squares);
}

std::vector<StripRun> EncodingReader::Runs(
    absl::Span<const uint64_t> ends) const {
  CHECK(task_ == Task::kMeasureValues);
  std::vector<StripRun> runs;
  uint32_t first = 0;
  for (uint64_t strip = 0; strip < complete(); ++strip) {
    const uint64_t begin = strip * kStripValues;
    const uint64_t end = begin + ValuesOfStrip(strip, values_);
    while (first < ends.size() && ends[first] <= begin) ++first;
    uint32_t last = first;
    while (last < ends.size() && ends[last] < end) ++last;
    if (last >= ends.size()) break;
    if (runs.empty() || runs.back().first_range != first ||
        runs.back().last_range != last) {
      runs.push_back({.first_range = first, .last_range = last});
    }
    ++runs.back().strips;
    runs.back().squares += complete_[strip].squares;
  }
  return runs;
}

}  // namespace causeway
