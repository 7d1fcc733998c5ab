// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "common/human_units.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"

namespace causeway {
namespace {

// Returns `value` in the largest unit that leaves it at least 1. In the first
// unit it is a whole number.
std::string InUnits(double value, double base,
                    absl::Span<const char* const> units) {
  size_t unit = 0;
  // 999.5 would be printed as 1000 of its unit.
  while (unit + 1 < units.size() && std::abs(value) >= base - 0.5) {
    value /= base;
    ++unit;
  }
  if (unit == 0) return absl::StrFormat("%.0f%s", value, units[0]);
  const int digits =
      std::abs(value) < 9.995 ? 2 : (std::abs(value) < 99.95 ? 1 : 0);
  return absl::StrFormat("%.*f%s", digits, value, units[unit]);
}

}  // namespace

std::string HumanCount(double count) {
  return InUnits(count, 1000, {"", "k", "M", "G", "T"});
}

std::string HumanBytes(double bytes) {
  return InUnits(bytes, 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}

}  // namespace causeway
