// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The speed of the outer step compared with that of memory, for benchmarks.
#ifndef OUTER_OPTIMIZER_TESTING_OUTER_STEP_SPEED_H_
#define OUTER_OPTIMIZER_TESTING_OUTER_STEP_SPEED_H_

namespace causeway {

struct OuterStepSpeed {
  // Bytes moved per second. Counts each contribution, theta, momentum and
  // residual as read once; theta, momentum, residual and update as written
  // once.
  double step_bytes_per_second = 0;
  // Bytes read and written per second by memcpy, on as many threads.
  double memcpy_bytes_per_second = 0;

  double ratio() const {
    return step_bytes_per_second / memcpy_bytes_per_second;
  }
};

// Measures Nesterov on 16 Mi values, far beyond the caches, with contributions
// and update in E3M0, after touching all memory. Step and memcpy (of 64 MiB)
// alternate `repetitions` times; the fastest of each counts.
OuterStepSpeed MeasureOuterStep(int contributions, int threads,
                                int repetitions);

}  // namespace causeway

#endif  // OUTER_OPTIMIZER_TESTING_OUTER_STEP_SPEED_H_
