// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_CLOCK_H_
#define COMMON_CLOCK_H_

#include <functional>

#include "absl/time/time.h"

namespace causeway {

using Clock = std::function<absl::Time()>;

// Returns a clock that reads the wall clock once, now, and adds what a steady
// clock counts from then on. It serves for timestamps, and no lease ends
// because somebody corrects the system's time, which may jump by hours.
// Thread-safe.
Clock SteadyWallClock();

}  // namespace causeway

#endif  // COMMON_CLOCK_H_
