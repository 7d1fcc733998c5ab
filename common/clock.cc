// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace causeway {

Clock SteadyWallClock() {
  const absl::Time wall = absl::Now();
  const auto begin = std::chrono::steady_clock::now();
  return [wall, begin] {
    return wall + absl::FromChrono(std::chrono::steady_clock::now() - begin);
  };
}

Clock WallClock() {
  return [] { return absl::Now(); };
}

}  // namespace causeway
