// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The simulation of elections (tests/simulation/elections/election_history.h).
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/os/daemon.h"
#include "tests/simulation/elections/election_history.h"
#include "tests/simulation/elections/scenario.h"
#include "tests/simulation/simulation_main.h"

ABSL_FLAG(uint32_t, without, 0,
          "Faults that are left out: the sum of their bits, in the order of "
          "ElectionFault.");

namespace causeway::simulation {
namespace {

RunResult Run(uint64_t seed, bool trace) {
  const ElectionResult history =
      RunElectionHistory(seed, absl::GetFlag(FLAGS_without), trace);
  return {.violation = history.violation,
          .figures = {
              {"events", history.events},
              {"published", history.published},
              {"leaders", history.epochs},
              {"faults", history.faults},
              {"virtual_hours", absl::ToDoubleHours(history.virtual_time)}}};
}

// Leaves out the faults that the violation does not need.
std::string Shrunk(uint64_t seed) {
  uint32_t without = absl::GetFlag(FLAGS_without);
  constexpr auto kFaults = static_cast<uint32_t>(ElectionFault::kCount);
  for (uint32_t bit = 1; bit < 1u << kFaults; bit <<= 1) {
    const bool is_needed =
        RunElectionHistory(seed, without | bit, /*trace=*/false)
            .violation.empty();
    if (!is_needed) without |= bit;
  }
  return absl::StrCat("--without ", without);
}

}  // namespace
}  // namespace causeway::simulation

int main(int argc, char** argv) {
  causeway::StartDaemon(argc, argv, "Runs the simulation of elections.",
                        "main.cc");
  return causeway::simulation::RunSimulation(
      {.run = causeway::simulation::Run,
       .shrink = causeway::simulation::Shrunk});
}
