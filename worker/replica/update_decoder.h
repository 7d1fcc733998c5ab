// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Decodes consecutive values of an update, strip by strip as they arrive.
//
//   UpdateDecoder decoder(spec, size, 0, size);   // all values
//   // Whenever more has come:
//   RETURN_IF_ERROR(decoder.Advance(received, sink));
//   RETURN_IF_ERROR(decoder.CheckComplete());
#ifndef WORKER_REPLICA_UPDATE_DECODER_H_
#define WORKER_REPLICA_UPDATE_DECODER_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/os/huge_pages.h"
#include "quantization/codec.h"
#include "quantization/strips/encoding_reader.h"

namespace causeway {

// Not thread-safe.
class UpdateDecoder {
 public:
  // Takes decoded values while they are in the cache, and may overwrite them.
  // `begin` counts from the first wanted value; the calls follow each other
  // without gaps.
  using Sink =
      absl::FunctionRef<void(uint64_t begin, absl::Span<float> change)>;

  // Decodes values [begin, begin + count), at least one, of an update of `size`
  // values. `spec` must pass CheckCodecSpec.
  UpdateDecoder(const CodecSpec& spec, uint64_t size, uint64_t begin,
                uint64_t count);

  // Decodes the new strips in `received`: the encoding so far, from the strip
  // with value `begin` to the strip with the last value. After an error the
  // decoder must not be used.
  //   INVALID_ARGUMENT  See EncodingReader.
  absl::Status Advance(absl::string_view received, Sink sink);

  // Returns INVALID_ARGUMENT if some bytes are missing.
  absl::Status CheckComplete() const { return reader_.CheckComplete(); }

 private:
  const uint64_t begin_;
  const uint64_t end_;
  // The strips with any of the values cover [cover_begin_, cover_end_).
  const uint64_t cover_begin_;
  const uint64_t cover_end_;
  EncodingReader reader_;
  uint64_t decoded_strips_ = 0;
  LargeVector<float> strip_;
};

}  // namespace causeway

#endif  // WORKER_REPLICA_UPDATE_DECODER_H_
