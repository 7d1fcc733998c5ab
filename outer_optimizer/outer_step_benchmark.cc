// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares the outer step with the speed of memory: outer_step_speed.h.
//
//   bazel run //outer_optimizer:outer_step_benchmark
#include <cstdio>

#include "outer_optimizer/testing/outer_step_speed.h"

int main() {
  std::printf("contributions threads  step GB/s  memcpy GB/s  ratio\n");
  for (const int threads : {1, 2}) {
    for (const int contributions : {2, 8, 32}) {
      const causeway::OuterStepSpeed speed =
          causeway::MeasureOuterStep(contributions, threads, 15);
      std::printf("%13d %7d %10.1f %12.1f %6.2f\n", contributions, threads,
                  speed.step_bytes_per_second / 1e9,
                  speed.memcpy_bytes_per_second / 1e9, speed.ratio());
    }
  }
  return 0;
}
