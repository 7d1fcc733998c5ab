// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_CLOCK_H_
#define COMMON_CLOCK_H_

#include <functional>

#include "absl/time/time.h"

namespace causeway {

using Clock = std::function<absl::Time()>;

// The wall clock when it is made, and from then on what a steady clock adds:
// good for timestamps, and a correction of the system's time (which may jump
// by hours) ends no lease. Thread-safe.
Clock SteadyWallClock();

}  // namespace causeway

#endif  // COMMON_CLOCK_H_
