// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Where the strips of an encoding lie (quantization/strip_layout.h), as far as
// its bytes are there.
#ifndef QUANTIZATION_STRIP_INDEX_H_
#define QUANTIZATION_STRIP_INDEX_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "quantization/strip_layout.h"

namespace causeway {

// Holds no bytes: each call gets the encoding as far as it is there,
// `received`, which may have moved in memory since. One thread may call Scan();
// the const functions may run on several threads, but not during Scan().
class StripIndex {
 public:
  // Of a vector of `values` values. `most_bytes` is what a whole strip takes at
  // most, `most_bytes_of_last` the last one; exactly, unless strips are
  // `entropy_coded` and begin with a header that tells.
  StripIndex(uint64_t values, bool entropy_coded, uint64_t most_bytes,
             uint64_t most_bytes_of_last);

  // Of the whole vector.
  uint64_t strips() const { return StripCount(values_); }

  // Looks at what has come since the last call and returns how many strips are
  // complete. `received` begins with the bytes that the last call got.
  //   INVALID_ARGUMENT  a strip says that it is longer than any can be, or
  //                     there are bytes after the last strip.
  absl::StatusOr<uint64_t> Scan(absl::string_view received);

  // INVALID_ARGUMENT if Scan() has not seen the end of the last strip.
  absl::Status CheckComplete() const { return CheckComplete(ends_.size()); }
  // INVALID_ARGUMENT if `complete` strips are not all.
  absl::Status CheckComplete(uint64_t complete) const;

  // How many bytes strip `strip` has, whose first bytes are `rest`; more than
  // rest.size() if it is not complete.
  //   INVALID_ARGUMENT  it says that it is longer than any can be.
  absl::StatusOr<uint64_t> StripBytes(uint64_t strip,
                                      absl::string_view rest) const;

  // The bytes of complete strip `strip`.
  absl::string_view Strip(absl::string_view received, uint64_t strip) const;

 private:
  uint64_t values_;
  bool entropy_coded_;
  uint64_t most_bytes_;
  uint64_t most_bytes_of_last_;
  // Where the complete strips end.
  std::vector<uint64_t> ends_;
};

}  // namespace causeway

#endif  // QUANTIZATION_STRIP_INDEX_H_
