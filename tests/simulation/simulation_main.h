// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The common part of the simulations' programs: they run many histories, each
// from a seed of its own, or one of them with its trace. Then they show that
// they notice bugs: the program `planted` in the same directory, which is this
// one with bugs in its sources, runs with each bug of the file --planted.
//
// Exit codes: 0 all is well; 1 a violation, or a planted bug was not found; 2
// usage.
#ifndef TESTS_SIMULATION_SIMULATION_MAIN_H_
#define TESTS_SIMULATION_SIMULATION_MAIN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace causeway::simulation {

// A history that was run.
struct RunResult {
  // The first violation, or an empty string.
  std::string violation;
  // The contents of the history, for the sums over all histories.
  std::vector<std::pair<std::string, double>> figures;
};

struct Simulation {
  // Runs the history of a seed; with `trace`, prints its events. Several
  // threads may call it at once.
  std::function<RunResult(uint64_t seed, bool trace)> run;
  // Returns flags with which the history of a seed still has a violation, but
  // as little else as possible.
  std::function<std::string(uint64_t seed)> shrink;
};

// Does what the flags say, and returns the exit code. The files that define
// flags have names that end with "main.cc".
int RunSimulation(const Simulation& simulation);

}  // namespace causeway::simulation

#endif  // TESTS_SIMULATION_SIMULATION_MAIN_H_
