// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_CLOCK_H_
#define COMMON_CLOCK_H_

#include <functional>

#include "absl/time/time.h"

namespace causeway {

using Clock = std::function<absl::Time()>;

// Returns a clock that reads the wall clock once, now, and then adds a steady
// clock's time. So it gives timestamps, but a corrected system time, perhaps by
// hours, ends no lease. Thread-safe.
Clock SteadyWallClock();

// Returns the wall clock, which may jump. Certificates begin and end by it.
// Thread-safe.
Clock WallClock();

}  // namespace causeway

#endif  // COMMON_CLOCK_H_
