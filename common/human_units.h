// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Counts and numbers of bytes for people: three significant digits and a unit.
#ifndef COMMON_HUMAN_UNITS_H_
#define COMMON_HUMAN_UNITS_H_

#include <concepts>
#include <string>

namespace causeway {

// Returns "999", "1.23k", "45.6M", "7.89G", "1.2T": powers of 1000, and whole
// numbers below that.
std::string HumanCount(double count);

// Returns "512 B", "1.50 KiB", "23.4 MiB": powers of 1024.
std::string HumanBytes(double bytes);

// These do the same for whole numbers.
std::string HumanCount(std::integral auto count) {
  return HumanCount(static_cast<double>(count));
}
std::string HumanBytes(std::integral auto bytes) {
  return HumanBytes(static_cast<double>(bytes));
}

}  // namespace causeway

#endif  // COMMON_HUMAN_UNITS_H_
