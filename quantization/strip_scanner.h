// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decodes an encoding, strip by strip, while its bytes come in.
//
//   StripScanner scanner(spec, size);
//   uint64_t decoded = 0;
//   // whenever the first received.size() bytes are there:
//   ASSIGN_OR_RETURN(const uint64_t complete, scanner.Scan(received));
//   for (; decoded < complete; ++decoded) {
//     RETURN_IF_ERROR(scanner.DecodeStrip(received, decoded, values));
//   }
//   // after the last byte:
//   RETURN_IF_ERROR(scanner.CheckComplete());
#ifndef QUANTIZATION_STRIP_SCANNER_H_
#define QUANTIZATION_STRIP_SCANNER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quantization/codec.h"
#include "quantization/strip_index.h"

namespace causeway {

// Holds no bytes: each call gets the encoding as far as it is there,
// `received`, which may have moved in memory since. One thread may call Scan();
// the const functions may run on several threads, but not during Scan().
class StripScanner {
 public:
  // `values` in the encoding; `spec` must pass CheckCodecSpec.
  StripScanner(const CodecSpec& spec, uint64_t values);

  // Of the whole vector.
  uint64_t strips() const { return index_.strips(); }

  // Looks at what has come since the last call and returns how many strips are
  // complete. `received` begins with the bytes that the last call got.
  //   INVALID_ARGUMENT  a strip says that it is longer than any can be, or
  //                     there are bytes after the last strip.
  absl::StatusOr<uint64_t> Scan(absl::string_view received) {
    return index_.Scan(received);
  }

  // INVALID_ARGUMENT if Scan() has not seen the end of the last strip.
  absl::Status CheckComplete() const { return index_.CheckComplete(); }

  // The bytes of complete strip `strip`.
  absl::string_view Strip(absl::string_view received, uint64_t strip) const {
    return index_.Strip(received, strip);
  }

  // Decodes complete strip `strip`, whose first value is value strip *
  // kStripValues of the vector. `values` has ValuesOfStrip(strip, size) values
  // and is left as it was on errors.
  //   INVALID_ARGUMENT  the strip does not decode to finite values.
  absl::Status DecodeStrip(absl::string_view received, uint64_t strip,
                           absl::Span<float> values) const;
  // Says what DecodeStrip would, for strips that are decoded elsewhere.
  absl::Status CheckStrip(absl::string_view received, uint64_t strip) const;

 private:
  absl::Status About(uint64_t strip, const absl::Status& status) const;

  const CodecSpec spec_;
  const uint64_t values_;
  StripIndex index_;
};

}  // namespace causeway

#endif  // QUANTIZATION_STRIP_SCANNER_H_
