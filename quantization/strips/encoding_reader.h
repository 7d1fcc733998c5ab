// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads an encoding while its bytes come in: finds its strips, and checks what
// a stranger may have got wrong.
//
// A reader that only finds strips is for whoever decodes them as they come, or
// hands them on:
//
//   EncodingReader reader = NewEncodingReader(spec, size);
//   RETURN_IF_ERROR(reader.Read(bytes));  // the next ones, when some have come
//   for (; decoded < reader.complete(); ++decoded) {
//     RETURN_IF_ERROR(reader.DecodeStrip(received, decoded, values));
//   }
//   RETURN_IF_ERROR(reader.CheckComplete());  // after the last byte
//
// A reader that measures values is for whoever keeps the bytes for later. It
// checks the values, too, while they are in the cache:
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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quantization/strips/layout.h"
#include "quantization/strips/planes.h"

namespace causeway {

// Holds at most the bytes of one strip. One thread may call Read() and
// GoBack(); the const functions may run on several threads, but not meanwhile.
//
// `encoding` is always the encoding as far as it has come, which may have moved
// in memory since the last call.
class EncodingReader {
 public:
  enum class Task { kFindStrips, kMeasureValues };

  // Reads an encoding of `values` values, in strips of `planes` side by side,
  // or entropy coded (quantization/strips/entropy_strip.h).
  // quantization/codec.h has NewEncodingReader(), which knows all formats.
  EncodingReader(const StripPlanes& planes, bool entropy_coded, uint64_t values,
                 Task task);

  // Reads the next bytes. After an error it reads no more.
  //   INVALID_ARGUMENT  a strip says that it is longer than any can be, or
  //                     there are bytes after the last strip.
  absl::Status Read(absl::string_view bytes);

  // Forgets all bytes but `encoding`, of which it has read more: the rest
  // turned out to be damaged on the way.
  void GoBack(absl::string_view encoding);

  const StripPlanes& planes() const { return *planes_; }
  uint64_t values() const { return values_; }
  // Strips of the whole vector, and those that have been read to their ends.
  uint64_t strips() const { return StripCount(values_); }
  uint64_t complete() const { return complete_.size(); }
  // Bytes that have been read.
  uint64_t bytes() const { return EndOf(complete()) + incoming_.read; }

  // INVALID_ARGUMENT if there was an error, or strips are missing.
  absl::Status CheckComplete() const;

  // The bytes of complete strip `strip`.
  absl::string_view Strip(absl::string_view encoding, uint64_t strip) const;

  // The planes of complete strip `strip`. They lie in `encoding` and, if codes
  // are compressed, in `codes`.
  //   INVALID_ARGUMENT  its length or its codes are wrong.
  absl::StatusOr<ConstStripPart> Open(absl::string_view encoding,
                                      uint64_t strip,
                                      std::vector<char>& codes) const;

  // INVALID_ARGUMENT if complete strip `strip` does not decode to finite
  // values.
  absl::Status CheckStrip(absl::string_view encoding, uint64_t strip) const;
  // The same, and decodes it to `values`, whose size is the strip's. On errors
  // they are left as they were.
  absl::Status DecodeStrip(absl::string_view encoding, uint64_t strip,
                           absl::Span<float> values) const;

  // Returns the Euclidean norm of the values. Call it after the last byte, with
  // kMeasureValues.
  // Squares are summed in binary64, of each tile by itself
  // (StripPlanes::SumOfSquares), then of a strip's tiles and of the strips, in
  // order. The norm does not depend on how the bytes came.
  //   INVALID_ARGUMENT  as CheckComplete().
  //   OUT_OF_RANGE      a value is not finite or cannot be had.
  absl::StatusOr<double> Norm() const;

 private:
  struct CompleteStrip {
    // The byte behind it.
    uint64_t end = 0;
    double squares = 0;
  };
  // The strip that is coming in.
  struct IncomingStrip {
    uint64_t read = 0;
    // 0 if the header, which says it, is not complete.
    uint64_t bytes = 0;
    // The whole strip as far as it is there, if it is entropy coded and to be
    // measured; otherwise its scales.
    std::string kept;
    // The beginning of a tile's codes.
    std::string codes;
    // Values that have been measured, and the sum of their squares.
    uint64_t measured = 0;
    double squares = 0;
  };

  uint64_t EndOf(uint64_t strips) const {
    return strips == 0 ? 0 : complete_[strips - 1].end;
  }
  // Takes what belongs to the strip that is coming in; returns how many bytes.
  uint64_t ReadStrip(absl::string_view bytes);
  // Takes what is missing of the header, and the strip's length from it.
  uint64_t ReadHeader(absl::string_view bytes);
  void EndStrip();

  // Measure the values of the strip that is coming in: as far as they are
  // there, tile by tile, or all at once.
  void MeasurePlain(absl::string_view bytes);
  void MeasureTile(ConstStripPart part);
  void MeasureEntropyCoded();
  // Values of the next tile.
  uint64_t TileValues() const;

  absl::StatusOr<ConstStripPart> OpenBytes(absl::string_view bytes,
                                           uint64_t strip,
                                           std::vector<char>& codes) const;

  const StripPlanes* planes_;
  bool entropy_coded_;
  uint64_t values_;
  Task task_;
  std::vector<CompleteStrip> complete_;
  IncomingStrip incoming_;
  // Codes of a strip that was compressed.
  std::vector<char> decompressed_;
  // The error of the strips' lengths.
  absl::Status layout_;
  // The error of the first value that is not finite. After it no strip is
  // checked; this is the last one that was.
  absl::Status finite_;
  uint64_t checked_ = 0;
};

}  // namespace causeway

#endif  // QUANTIZATION_STRIPS_ENCODING_READER_H_
