// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads an encoding while its bytes arrive: finds its strips, and checks for
// all errors that a peer may have made.
//
// A reader that only finds strips suits callers that decode the strips as they
// arrive, or pass them on:
//
//   EncodingReader reader = NewEncodingReader(spec, size);
//   RETURN_IF_ERROR(reader.Read(bytes));  // the next ones, when some have come
//   for (; decoded < reader.complete(); ++decoded) {
//     RETURN_IF_ERROR(reader.DecodeStrip(received, decoded, values));
//   }
//   RETURN_IF_ERROR(reader.CheckComplete());  // after the last byte
//
// A reader that measures values suits callers that keep the bytes for later. It
// also checks the values while they are in the cache:
//
//   EncodingReader reader =
//       NewEncodingReader(spec, size, EncodingReader::Task::kMeasureValues);
//   reader.Read(bytes).IgnoreError();
//   ASSIGN_OR_RETURN(const double norm, reader.Norm());  // after the last byte
#ifndef QUANTIZATION_STRIPS_ENCODING_READER_H_
#define QUANTIZATION_STRIPS_ENCODING_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quantization/strips/entropy_strip.h"
#include "quantization/strips/layout.h"
#include "quantization/strips/planes.h"

namespace causeway {

// Consecutive strips whose values are in the same ranges of a vector; a strip
// may have values of several ranges.
struct StripRun {
  uint32_t first_range = 0;
  uint32_t last_range = 0;
  uint64_t strips = 0;
  // The sum of the squares of the values; NaN if one of them is not finite.
  double squares = 0;
};

// Holds at most the bytes of one strip. One thread may call Read() and
// GoBack(). The const functions may run on several threads, but not at the same
// time as these two.
//
// `encoding` is always the received part of the encoding; it may have moved in
// memory since the last call.
class EncodingReader {
 public:
  enum class Task { kFindStrips, kMeasureValues };

  // Reads an encoding of `values` values whose strips are the planes of
  // `planes` side by side, or entropy coded
  // (quantization/strips/entropy_strip.h). quantization/codec.h has
  // NewEncodingReader(), which knows all formats.
  EncodingReader(const StripPlanes& planes, bool entropy_coded, uint64_t values,
                 Task task);

  // Reads the next bytes. Reads nothing more after an error.
  //   INVALID_ARGUMENT  a strip claims to be longer than any can be, or
  //                     there are bytes after the last strip.
  absl::Status Read(absl::string_view bytes);

  // Has a reader that measures values keep the codes that it decompresses, side
  // by side in `codes`, so that Open() need not decompress them again. Call it
  // before Read(). `codes` has CodeBytes(spec, values) of quantization/codec.h
  // and outlives the reader.
  void KeepCodes(absl::Span<char> codes) { codes_ = codes; }

  // Forgets all bytes beyond `encoding`, which turned out to be damaged in
  // transit. The reader must have read all of `encoding`.
  void GoBack(absl::string_view encoding);

  const StripPlanes& planes() const { return *planes_; }
  uint64_t values() const { return values_; }
  // Return the number of strips in the whole vector, and of completely read
  // ones.
  uint64_t strips() const { return StripCount(values_); }
  uint64_t complete() const { return complete_.size(); }
  // Returns the number of bytes that have been read.
  uint64_t bytes() const { return EndOf(complete()) + incoming_.read; }

  // Checks that everything was read.
  //   INVALID_ARGUMENT  there was an error, or strips are missing.
  absl::Status CheckComplete() const;

  // Returns the bytes of complete strip `strip`.
  absl::string_view Strip(absl::string_view encoding, uint64_t strip) const;

  // Returns the planes of complete strip `strip`. They lie in `encoding` and,
  // if codes are compressed, in `codes`.
  //   INVALID_ARGUMENT  its length or its codes are wrong.
  absl::StatusOr<ConstStripPart> Open(absl::string_view encoding,
                                      uint64_t strip,
                                      std::vector<char>& codes) const;
  // Does the same with codes that the reader kept while it measured the
  // encoding (KeepCodes).
  absl::StatusOr<ConstStripPart> OpenKept(absl::string_view encoding,
                                          uint64_t strip,
                                          absl::Span<const char> kept) const;

  // Checks complete strip `strip`.
  //   INVALID_ARGUMENT  it does not decode to finite values.
  absl::Status CheckStrip(absl::string_view encoding, uint64_t strip) const;
  // Checks complete strip `strip` and decodes it to `values`, whose size is the
  // strip's. Does not change `values` on errors.
  absl::Status DecodeStrip(absl::string_view encoding, uint64_t strip,
                           absl::Span<float> values) const;

  // Returns the Euclidean norm of the values. Call it after the last byte, with
  // kMeasureValues. Squares are summed in binary64: within each tile
  // (StripPlanes::SumOfSquares), then over a strip's tiles and over the strips,
  // in order. The norm does not depend on the pieces in which the bytes
  // arrived.
  //   INVALID_ARGUMENT  as CheckComplete().
  //   OUT_OF_RANGE      a value is not finite or cannot be decoded.
  absl::StatusOr<double> Norm() const;
  // Returns the squares that Norm() sums, by ranges of values: range i ends
  // before value ends[i], and the next one begins there. Runs are as long as
  // possible and in order. A value that is not finite makes the squares of its
  // strip NaN. If `ends` are not in order, or end too early, strips are missing
  // or in other ranges.
  std::vector<StripRun> Runs(absl::Span<const uint64_t> ends) const;

 private:
  struct CompleteStrip {
    // The offset of the first byte behind the strip.
    uint64_t end = 0;
    // NaN if a value is not finite or cannot be decoded.
    double squares = 0;
  };
  struct IncomingStrip {
    uint64_t read = 0;
    // 0 until the header is complete.
    uint64_t bytes = 0;
    // The received bytes of the strip if it is entropy coded and will be
    // measured; otherwise its scales.
    std::string kept;
    // The first bytes of a tile's codes.
    std::string codes;
    // The number of values that have been measured, and the sum of their
    // squares.
    uint64_t measured = 0;
    double squares = 0;
  };

  uint64_t EndOf(uint64_t strips) const {
    return strips == 0 ? 0 : complete_[strips - 1].end;
  }
  // Reads bytes of the strip that is being received; returns how many.
  uint64_t ReadStrip(absl::string_view bytes);
  // Reads the missing bytes of the header, and then the strip's length from it.
  uint64_t ReadHeader(absl::string_view bytes);
  void EndStrip();

  // Measure the values of the strip that is being received: MeasurePlain those
  // of the received tiles, MeasureEntropyCoded all at once.
  void MeasurePlain(absl::string_view bytes);
  void MeasureTile(ConstStripPart part);
  void MeasureEntropyCoded();
  // Records an error of the strip that is being received, whose other values
  // are not measured.
  void NoteNotFinite(const absl::Status& status);
  // Returns the number of values in the next tile.
  uint64_t TileValues() const;

  // Finds the planes of the strip with these bytes; `open` is called if the
  // codes are compressed, and sets them.
  absl::StatusOr<ConstStripPart> OpenBytes(
      absl::string_view bytes, uint64_t strip,
      absl::FunctionRef<absl::Status(EntropyStrip& found)> open) const;
  // Returns the strip's part of the codes of all strips.
  template <typename Char>
  absl::Span<Char> CodesOf(uint64_t strip, absl::Span<Char> all) const {
    return all.subspan(strip * planes_->CodeBytes(kStripValues),
                       planes_->CodeBytes(ValuesOfStrip(strip, values_)));
  }

  const StripPlanes* planes_;
  bool entropy_coded_;
  uint64_t values_;
  Task task_;
  std::vector<CompleteStrip> complete_;
  IncomingStrip incoming_;
  // The codes of all strips, if they are kept; otherwise those of one.
  absl::Span<char> codes_;
  std::vector<char> decompressed_;
  // The error in the strips' lengths, if any.
  absl::Status layout_;
  // The error of the first value that is not finite, if any, and its strip.
  absl::Status finite_;
  uint64_t not_finite_strip_ = 0;
};

}  // namespace causeway

#endif  // QUANTIZATION_STRIPS_ENCODING_READER_H_
