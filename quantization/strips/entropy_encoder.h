// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Encodes vectors whose strips are entropy coded
// (quantization/strips/entropy_strip.h). quantization/codec.h creates the
// encoder that a format needs.
#ifndef QUANTIZATION_STRIPS_ENTROPY_ENCODER_H_
#define QUANTIZATION_STRIPS_ENTROPY_ENCODER_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "quantization/encode_options.h"
#include "quantization/encoder.h"
#include "quantization/strips/planes.h"

namespace causeway {

// Writes strips that come in order to their final places. Other strips wait
// where they would be if nothing were compressed.
class EntropyEncoder final : public Encoder {
 public:
  // Encodes `values` values of a vector, from its value `first_value` on.
  // `buffer` has MaxEntropyStripBytes for each strip and outlives the encoder.
  EntropyEncoder(const StripPlanes& planes, const EncodeOptions& options,
                 uint64_t first_value, uint64_t values,
                 absl::Span<char> buffer);

  void Encode(uint64_t begin, absl::Span<const float> values,
              absl::Span<float> decoded) override;
  uint64_t ready() const override { return ready_; }
  uint64_t Finish() override;

 private:
  // A finished strip that waits for one before it.
  struct Waiting {
    const char* place = nullptr;
    uint64_t bytes = 0;
  };

  // Returns where to write strip `strip`: its final place if all strips before
  // it are placed, otherwise where it would begin if nothing were compressed.
  // That is never before the strip's final place, and never within another
  // strip.
  char* PlaceOf(uint64_t strip);
  // Records a finished strip, and moves all strips that can be moved to their
  // final places.
  void Finished(uint64_t strip, const char* place, uint64_t bytes);

  const StripPlanes& planes_;
  const EncodeOptions options_;
  const uint64_t first_value_;
  const uint64_t values_;
  const absl::Span<char> buffer_;

  absl::Mutex mutex_;
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  // The number of strips in their final places.
  uint64_t placed_ ABSL_GUARDED_BY(mutex_) = 0;
  // The bytes of these strips; written under the lock.
  std::atomic<uint64_t> ready_ = 0;
};

}  // namespace causeway

#endif  // QUANTIZATION_STRIPS_ENTROPY_ENCODER_H_
