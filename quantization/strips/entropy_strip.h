// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The bytes of one entropy-coded strip: its header
// (quantization/strips/layout.h), its scale plane, and its code plane,
// compressed (quantization/entropy/entropy_coder.h) if that makes it smaller.
//
// Thread-safe.
#ifndef QUANTIZATION_STRIPS_ENTROPY_STRIP_H_
#define QUANTIZATION_STRIPS_ENTROPY_STRIP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quantization/strips/layout.h"
#include "quantization/strips/planes.h"

namespace causeway {

// Returns the most bytes of a strip of `values` values.
inline uint64_t MaxEntropyStripBytes(const StripPlanes& planes,
                                     uint64_t values) {
  return StripHeader::kBytes + planes.Bytes(values);
}

// Writes a whole strip to `place`, which has room for MaxEntropyStripBytes.
// Returns the strip's bytes. `codes` is scratch memory. `decoded` is as for
// Encoder::Encode().
uint64_t EncodeEntropyStrip(const StripPlanes& planes,
                            const EncodeOptions& options,
                            absl::Span<const float> values,
                            absl::Span<float> decoded, std::vector<char>& codes,
                            char* place);

// The planes of a strip whose codes may be compressed.
struct EntropyStrip {
  // Its `codes` are null if they are compressed.
  ConstStripPart part;
  absl::string_view compressed;
};

// Finds the planes of a strip of `values` values whose bytes are `strip`.
//   INVALID_ARGUMENT  the strip's length is wrong.
absl::StatusOr<EntropyStrip> FindPlanes(const StripPlanes& planes,
                                        uint64_t values,
                                        absl::string_view strip);

// Decompresses the codes of `strip` to `codes`, which has planes.CodeBytes of
// its values, and points `strip` to them.
//   INVALID_ARGUMENT  they are wrong.
absl::Status Decompress(const StripPlanes& planes, absl::Span<char> codes,
                        EntropyStrip& strip);

}  // namespace causeway

#endif  // QUANTIZATION_STRIPS_ENTROPY_STRIP_H_
