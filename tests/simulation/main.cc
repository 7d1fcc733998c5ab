// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The deterministic simulation of a run (tests/simulation/history.h).
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/os/daemon.h"
#include "tests/simulation/history.h"
#include "tests/simulation/simulation_main.h"

ABSL_FLAG(uint32_t, islands, 5, "The most islands of a history.");
ABSL_FLAG(uint32_t, fragments, 3, "The most fragments of a history.");
ABSL_FLAG(uint64_t, rounds, 12, "The most rounds of a history.");
ABSL_FLAG(std::vector<std::string>, without, {},
          "Kinds of faults that are left out, as --print_events names them.");

namespace causeway::simulation {
namespace {

constexpr char kProgram[] = "simulation";

int Main() {
  Limits limits{.max_islands = absl::GetFlag(FLAGS_islands),
                .max_fragments = absl::GetFlag(FLAGS_fragments),
                .max_rounds = absl::GetFlag(FLAGS_rounds)};
  for (const std::string& name : absl::GetFlag(FLAGS_without)) {
    uint32_t fault = 0;
    while (fault < kFaults && FaultName(static_cast<Fault>(fault)) != name) {
      ++fault;
    }
    if (fault == kFaults) {
      return UsageError(kProgram, absl::StrCat("unknown fault ", name));
    }
    limits.without |= 1u << fault;
  }
  if (limits.max_islands == 0 || limits.max_fragments == 0 ||
      limits.max_rounds == 0) {
    return UsageError(kProgram,
                      "--islands, --fragments and --rounds must be above 0");
  }
  return RunSimulation(
      {.run =
           [&](uint64_t seed, bool trace) {
             const HistoryResult history = RunHistory(seed, limits, trace);
             return RunResult{
                 .violation = history.violation,
                 .figures = {{"events", history.events},
                             {"commits", history.commits},
                             {"faults", history.faults},
                             {"virtual_hours",
                              absl::ToDoubleHours(history.virtual_time)}}};
           },
       .shrink = [&](uint64_t seed) { return FlagsOf(Shrink(seed, limits)); }});
}

}  // namespace
}  // namespace causeway::simulation

int main(int argc, char** argv) {
  causeway::StartDaemon(argc, argv, "Runs the deterministic simulation.",
                        "main.cc");
  return causeway::simulation::Main();
}
