// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Capped, jittered exponential back-off between retries.
#ifndef COMMON_BACKOFF_H_
#define COMMON_BACKOFF_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace causeway {

class Backoff {
 public:
  struct Options {
    absl::Duration first = absl::Milliseconds(200);
    absl::Duration longest = absl::Seconds(5);
    double factor = 2;
  };

  // Processes with different seeds spread their retries.
  Backoff(Options options, uint64_t seed) : options_(options), random_(seed) {}

  // Returns how long to pause before the next try: uniform between half of the
  // current step and the whole of it.
  absl::Duration Next() {
    const absl::Duration step = std::min(
        options_.longest, options_.first * std::pow(options_.factor, tries_));
    if (step < options_.longest) ++tries_;
    return step * std::uniform_real_distribution<double>(0.5, 1)(random_);
  }

  // Starts again from the first step. Call it after a success.
  void Reset() { tries_ = 0; }

 private:
  const Options options_;
  std::mt19937_64 random_;
  int tries_ = 0;
};

}  // namespace causeway

#endif  // COMMON_BACKOFF_H_
