// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The common part of the simulations' programs: they run many histories, and
// then show that they notice bugs.
#ifndef TESTS_SIMULATION_PLANTED_PROGRAMS_H_
#define TESTS_SIMULATION_PLANTED_PROGRAMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

namespace causeway::simulation {

// Runs the histories of seeds 1 to `seeds`, `threads` at a time; 0 means one
// per CPU. `run` may be called by several threads at once. Once it has returned
// false, no other history is begun.
void RunSeeds(uint64_t seeds, int threads,
              absl::FunctionRef<bool(uint64_t seed)> run);

// Runs programs with planted bugs, of this program's directory, with so many
// histories; prints what each has found, and returns how many found theirs.
uint64_t CountFound(const std::vector<std::string>& programs, uint64_t seeds);

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_PLANTED_PROGRAMS_H_
