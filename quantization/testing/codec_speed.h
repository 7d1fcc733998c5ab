// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures the speed of the codecs relative to that of memory, for benchmarks:
// on one thread, with 256 MiB of Gaussian values whose pages were touched
// before.
#ifndef QUANTIZATION_TESTING_CODEC_SPEED_H_
#define QUANTIZATION_TESTING_CODEC_SPEED_H_

#include <cstdint>

#include "quantization/codec.h"

namespace causeway {

// The times of the codec and of the reference that it is compared with. They
// are measured in turns, and the shortest time of each counts, since a shared
// machine only ever adds to them.
struct CodecSpeed {
  uint64_t values = 0;
  uint64_t encoded_bytes = 0;
  double seconds = 0;
  double reference_seconds = 0;
  // The codec's speed relative to the reference's; the functions define it.
  double ratio = 0;
};

// Measures encoding against a read-only sweep (the largest magnitude) over the
// same values. ratio = time of the sweep / time of the encode: 1 is as fast as
// reading alone.
CodecSpeed MeasureEncode(const CodecSpec& spec, const EncodeOptions& options,
                         int repetitions);

// Measures the weighted sum of one encoding against memcpy of the values. ratio
// = bytes moved per second (encoding read, sum written) / bytes moved per
// second by memcpy (read and written).
CodecSpeed MeasureSum(const CodecSpec& spec, int repetitions);

}  // namespace causeway

#endif  // QUANTIZATION_TESTING_CODEC_SPEED_H_
