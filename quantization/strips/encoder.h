// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Encodes a vector piece by piece. quantization/codec.h has NewEncoder(), which
// knows all formats.
#ifndef QUANTIZATION_STRIPS_ENCODER_H_
#define QUANTIZATION_STRIPS_ENCODER_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "quantization/strips/planes.h"

namespace causeway {

// Encodes one vector, each value once, into a buffer of MaxEncodedBytes. Pieces
// may come in any order, and strips from several threads as long as all pieces
// of a strip come from one; the bytes are always the same.
class Encoder {
 public:
  // Encodes a vector of `values` values as the planes of `planes` side by side
  // or as entropy-coded strips (quantization/strips/entropy_strip.h). `buffer`
  // outlives the encoder.
  Encoder(const StripPlanes& planes, bool entropy_coded,
          const EncodeOptions& options, uint64_t values,
          absl::Span<char> buffer);

  // Encodes values [begin, begin + values.size()). `begin` is a multiple of
  // PieceAlignment() of quantization/codec.h, and so is the end unless it is
  // the vector's. If `decoded` is not empty, it has the size of `values` and
  // receives the values that a decoder will return; it may be the same memory
  // as `values`. Never fails: NaN and infinities are encoded as well as the
  // format can.
  void Encode(uint64_t begin, absl::Span<const float> values,
              absl::Span<float> decoded);

  // Returns how many bytes at the front of the buffer are final, so that they
  // can be sent while others are encoded: the bytes of all strips before the
  // first one that lacks values. The number only grows. Any thread may call
  // this at any time, and sees these bytes.
  uint64_t ready() const { return ready_; }

  // Returns how many bytes of the buffer the encoding takes. Call it after all
  // pieces.
  uint64_t Finish();

 private:
  struct FinishedStrip {
    const char* place = nullptr;
    uint64_t bytes = 0;
  };

  // Returns the place of the planes of the values from `value` on, in an
  // encoding without entropy coding.
  StripPart PartAt(uint64_t value) const;
  // Returns where to write strip `strip`: its final place if all earlier strips
  // are placed, otherwise where it would begin if nothing were compressed,
  // which is never before its final place or within another strip.
  char* PlaceOf(uint64_t strip) {
    absl::MutexLock lock(&mutex_);
    return buffer_.data() +
           (strip == placed_ ? ready_.load() : strip * strip_bytes_);
  }
  // Records a finished strip, and moves all strips that can be moved to their
  // final places.
  void Finished(uint64_t strip, const char* place, uint64_t bytes);

  const StripPlanes& planes_;
  const bool entropy_coded_;
  const EncodeOptions options_;
  const uint64_t values_;
  const absl::Span<char> buffer_;
  // The bytes of a whole strip that is not compressed.
  const uint64_t strip_bytes_;
  // The number of values that each strip still lacks; only the thread that
  // encodes the strip uses it. A lock for each piece would wait for the
  // thread's writes past the caches, which costs the outer step a tenth of its
  // speed.
  std::vector<uint32_t> missing_;

  absl::Mutex mutex_;
  std::vector<FinishedStrip> finished_ ABSL_GUARDED_BY(mutex_);
  // The number of strips in their final places.
  uint64_t placed_ ABSL_GUARDED_BY(mutex_) = 0;
  // The bytes of these strips; written under the lock.
  std::atomic<uint64_t> ready_ = 0;
};

}  // namespace causeway

#endif  // QUANTIZATION_STRIPS_ENCODER_H_
