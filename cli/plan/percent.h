// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_PLAN_PERCENT_H_
#define CLI_PLAN_PERCENT_H_

#include <cmath>
#include <string>

#include "absl/strings/str_format.h"

namespace causeway {

// Returns a share of 1 as a percentage, rounded down, so that 99.99 % never
// looks like 100 %.
inline std::string Percent(double share) {
  const double percent = std::floor(share * 10000 + 1e-6) / 100;
  return absl::StrFormat("%.2f %%", percent);
}

}  // namespace causeway

#endif  // CLI_PLAN_PERCENT_H_
