// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Time for benchmarks.
#ifndef COMMON_TESTING_STOPWATCH_H_
#define COMMON_TESTING_STOPWATCH_H_

#include <chrono>  // NOLINT: for timing in a benchmark.

namespace causeway {

// Returns the seconds since a moment that stays the same within a process.
inline double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace causeway

#endif  // COMMON_TESTING_STOPWATCH_H_
