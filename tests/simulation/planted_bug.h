// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// Says which bug a process has, for sources in which tests/simulation/plant.pl
// has planted bugs. Only their program has the flag --bug.
#ifndef TESTS_SIMULATION_PLANTED_BUG_H_
#define TESTS_SIMULATION_PLANTED_BUG_H_

#include "absl/strings/string_view.h"

namespace causeway::simulation {

// Returns whether this process has the bug with this name.
bool IsPlanted(absl::string_view bug);

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_PLANTED_BUG_H_
