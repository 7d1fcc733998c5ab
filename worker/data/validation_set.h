// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The held-out windows, in a fixed order: no two share a target, and none
// shares a token with a training window (split.h).
//
//   const ValidationSet validation(&dataset, /*max_windows=*/256);
//   for (int64_t i = 0; i < validation.size(); i += rows) {
//     validation.Fill(i, tokens, targets);
//   }
//
// Immutable, thread-safe.
#ifndef WORKER_DATA_VALIDATION_SET_H_
#define WORKER_DATA_VALIDATION_SET_H_

#include <cstdint>

#include "absl/types/span.h"
#include "worker/data/dataset.h"

namespace causeway {

class ValidationSet {
 public:
  // Takes at most `max_windows` windows, spread evenly over all of them; 0
  // means no limit. `dataset` must outlive the object.
  ValidationSet(const Dataset* dataset, int64_t max_windows);

  // Returns the number of windows; 0 only if the run holds nothing out.
  int64_t size() const { return size_; }

  // Returns the index in the corpus of the first token of window `index`.
  int64_t WindowBegin(int64_t index) const;

  // Writes windows first, first + 1, ... (as many as the spans hold, all of
  // them below size()): rows of sequence_length tokens, and the token that
  // follows each.
  void Fill(int64_t first, absl::Span<int32_t> tokens,
            absl::Span<int32_t> targets) const;

 private:
  const Dataset* dataset_;
  int64_t size_;
};

}  // namespace causeway

#endif  // WORKER_DATA_VALIDATION_SET_H_
