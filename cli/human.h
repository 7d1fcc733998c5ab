// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Formats quantities for people: three significant digits and a unit.
#ifndef CLI_HUMAN_H_
#define CLI_HUMAN_H_

#include <string>

#include "absl/time/time.h"

namespace causeway {

// Returns "999", "1.23k", "45.6M", "7.89G", "1.2T": powers of 1000, and whole
// numbers below that.
std::string HumanCount(double count);

// Returns "512 B", "1.50 KiB", "23.4 MiB": powers of 1024.
std::string HumanBytes(double bytes);

// Returns "0.25 s", "59 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"; "-" if
// infinite.
std::string HumanDuration(absl::Duration duration);

}  // namespace causeway

#endif  // CLI_HUMAN_H_
