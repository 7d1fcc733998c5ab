// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The simulation of elections: runs many histories (tests/simulation/elections/
// election_history.h), each from a seed of its own, or one of them with its
// trace. Then runs the programs of --planted, each of which is this one with
// one bug, and counts those that find theirs.
//
// Exit codes: 0 all is well; 1 a violation, or a planted bug was not found.
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/os/daemon.h"
#include "nlohmann/json.hpp"
#include "tests/simulation/elections/election_history.h"
#include "tests/simulation/elections/scenario.h"
#include "tests/simulation/planted_programs.h"

ABSL_FLAG(uint64_t, seeds, 1000, "Histories to run, from seed 1 on.");
ABSL_FLAG(uint64_t, seed, 0, "Run the history of this seed only.");
ABSL_FLAG(bool, print_events, false,
          "With --seed: print the events of the history.");
ABSL_FLAG(uint32_t, without, 0,
          "Faults that are left out: the sum of their bits, in the order of "
          "ElectionFault.");
ABSL_FLAG(std::string, json, "", "Write the figures to this file.");
ABSL_FLAG(int, threads, 0, "Histories at a time; 0 means one per CPU.");
ABSL_FLAG(std::vector<std::string>, planted, {},
          "Programs with planted bugs, in this program's directory.");
ABSL_FLAG(uint64_t, planted_seeds, 2000,
          "Histories in which a planted bug must show.");
ABSL_FLAG(bool, until_violation, false, "Stop at the first violation.");

namespace causeway::simulation {
namespace {

// The number of violations that are looked into.
constexpr size_t kShown = 3;

// Prints how a violation is replayed, without the faults that it does not need.
void Explain(uint64_t seed, const std::string& violation) {
  uint32_t without = absl::GetFlag(FLAGS_without);
  constexpr auto kFaults = static_cast<uint32_t>(ElectionFault::kCount);
  for (uint32_t bit = 1; bit < 1u << kFaults; bit <<= 1) {
    const bool is_needed =
        RunElectionHistory(seed, without | bit, /*trace=*/false)
            .violation.empty();
    if (!is_needed) without |= bit;
  }
  std::cout << absl::StreamFormat(
      "VIOLATION in the history of seed %d: %s\n  replay: --seed %d "
      "--print_events --without %d\n",
      seed, violation, seed, without);
}

int Main() {
  const uint32_t without = absl::GetFlag(FLAGS_without);
  if (const uint64_t seed = absl::GetFlag(FLAGS_seed); seed != 0) {
    const ElectionResult result =
        RunElectionHistory(seed, without, absl::GetFlag(FLAGS_print_events));
    std::cout << (result.violation.empty() ? "no violation"
                                           : "VIOLATION: " + result.violation)
              << "\n";
    return result.violation.empty() ? 0 : 1;
  }

  const Clock now = SteadyWallClock();
  const absl::Time begin = now();
  absl::Mutex mu;
  ElectionResult totals;
  uint64_t histories = 0;
  std::map<uint64_t, std::string> violations;
  RunSeeds(absl::GetFlag(FLAGS_seeds), absl::GetFlag(FLAGS_threads),
           [&](uint64_t seed) {
             const ElectionResult result =
                 RunElectionHistory(seed, without, /*trace=*/false);
             absl::MutexLock lock(&mu);
             ++histories;
             totals.events += result.events;
             totals.faults += result.faults;
             totals.published += result.published;
             totals.epochs += result.epochs;
             totals.virtual_time += result.virtual_time;
             if (result.violation.empty()) return true;
             violations[seed] = result.violation;
             return !absl::GetFlag(FLAGS_until_violation);
           });
  const double seconds = absl::ToDoubleSeconds(now() - begin);
  const double virtual_hours = absl::ToDoubleHours(totals.virtual_time);
  std::cout << absl::StreamFormat(
      "%d histories in %.1f s: %d events, %d published versions, %d leaders, "
      "%d faults, %.0f hours of virtual time; %d violations\n",
      histories, seconds, totals.events, totals.published, totals.epochs,
      totals.faults, virtual_hours, violations.size());
  size_t shown = 0;
  for (const auto& [seed, violation] : violations) {
    if (++shown > kShown) break;
    Explain(seed, violation);
  }

  const std::vector<std::string> planted = absl::GetFlag(FLAGS_planted);
  const uint64_t found =
      CountFound(planted, absl::GetFlag(FLAGS_planted_seeds));
  if (const std::string path = absl::GetFlag(FLAGS_json); !path.empty()) {
    std::ofstream file(path);
    file << nlohmann::json{{"histories", histories},
                           {"violations", violations.size()},
                           {"planted_found", found},
                           {"planted_total", planted.size()},
                           {"seconds", seconds},
                           {"events", totals.events},
                           {"published", totals.published},
                           {"leaders", totals.epochs},
                           {"faults", totals.faults},
                           {"virtual_hours", virtual_hours}}
                .dump(2)
         << "\n";
    if (!file.flush()) {
      std::cerr << "cannot write " << path << "\n";
      return 1;
    }
  }
  return violations.empty() && found == planted.size() ? 0 : 1;
}

}  // namespace
}  // namespace causeway::simulation

int main(int argc, char** argv) {
  causeway::StartDaemon(argc, argv, "Runs the simulation of elections.",
                        "tests/simulation/elections/main.cc");
  return causeway::simulation::Main();
}
