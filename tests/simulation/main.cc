// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// The deterministic simulation: runs many histories (tests/simulation/
// history.h), each from a seed of its own, or one of them with its trace. Then
// shows that it notices bugs: runs the programs of --planted, each of which is
// this one with one bug, and counts those that find theirs.
//
// Exit codes: 0 all is well; 1 a violation, or a planted bug was not found; 2
// usage.
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/os/daemon.h"
#include "nlohmann/json.hpp"
#include "tests/simulation/history.h"
#include "tests/simulation/planted_programs.h"

ABSL_FLAG(uint64_t, seeds, 1000, "Histories to run, from seed 1 on.");
ABSL_FLAG(uint64_t, seed, 0, "Run the history of this seed only.");
ABSL_FLAG(bool, print_events, false,
          "With --seed: print the events of the history.");
ABSL_FLAG(std::string, json, "", "Write the figures to this file.");
ABSL_FLAG(int, threads, 0, "Histories at a time; 0 means one per CPU.");
ABSL_FLAG(std::vector<std::string>, planted, {},
          "Programs with bugs planted in the coordinator, in this program's "
          "directory.");
ABSL_FLAG(std::vector<std::string>, planted_island, {},
          "Programs with bugs planted in islands.");
ABSL_FLAG(uint64_t, planted_seeds, 4000,
          "Histories in which a planted bug must show.");
ABSL_FLAG(bool, until_violation, false, "Stop at the first violation.");
ABSL_FLAG(uint32_t, islands, 5, "The most islands of a history.");
ABSL_FLAG(uint32_t, fragments, 3, "The most fragments of a history.");
ABSL_FLAG(uint64_t, rounds, 12, "The most rounds of a history.");
ABSL_FLAG(std::vector<std::string>, without, {},
          "Kinds of faults that are left out, as --print_events names them.");

namespace causeway::simulation {
namespace {

constexpr char kProgram[] = "simulation";
// The number of violations that are looked into.
constexpr size_t kShown = 3;

struct Totals {
  uint64_t histories = 0;
  uint64_t events = 0;
  uint64_t commits = 0;
  uint64_t faults = 0;
  absl::Duration virtual_time;
  // The violations by seed.
  std::map<uint64_t, std::string> violations;
};

// Runs the histories of seeds 1 to `seeds`; with `stop_early`, only until one
// has failed.
Totals RunHistories(uint64_t seeds, const Limits& limits, bool stop_early) {
  absl::Mutex mu;
  Totals totals;
  RunSeeds(seeds, absl::GetFlag(FLAGS_threads), [&](uint64_t seed) {
    const HistoryResult result = RunHistory(seed, limits, /*trace=*/false);
    absl::MutexLock lock(&mu);
    ++totals.histories;
    totals.events += result.events;
    totals.commits += result.commits;
    totals.faults += result.faults;
    totals.virtual_time += result.virtual_time;
    if (result.violation.empty()) return true;
    totals.violations[seed] = result.violation;
    return !stop_early;
  });
  return totals;
}

void Explain(const Totals& totals, const Limits& limits) {
  size_t shown = 0;
  for (const auto& [seed, violation] : totals.violations) {
    if (++shown > kShown) {
      std::cout << "... and " << totals.violations.size() - kShown << " more\n";
      break;
    }
    std::cout << "VIOLATION in the history of seed " << seed << ": "
              << violation << "\n  replay: --seed " << seed
              << " --print_events " << FlagsOf(Shrink(seed, limits)) << "\n";
  }
}

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
  if (const uint64_t seed = absl::GetFlag(FLAGS_seed); seed != 0) {
    const HistoryResult result =
        RunHistory(seed, limits, absl::GetFlag(FLAGS_print_events));
    std::cout << (result.violation.empty() ? "no violation"
                                           : "VIOLATION: " + result.violation)
              << "\n";
    return result.violation.empty() ? 0 : 1;
  }

  const Clock now = SteadyWallClock();
  const absl::Time begin = now();
  const Totals totals = RunHistories(absl::GetFlag(FLAGS_seeds), limits,
                                     absl::GetFlag(FLAGS_until_violation));
  const double seconds = absl::ToDoubleSeconds(now() - begin);
  std::cout << absl::StreamFormat(
      "%d histories in %.1f s: %d events, %d commits, %d faults, %.0f hours "
      "of virtual time; %d violations\n",
      totals.histories, seconds, totals.events, totals.commits, totals.faults,
      absl::ToDoubleHours(totals.virtual_time), totals.violations.size());
  Explain(totals, limits);

  const std::vector<std::string> planted = absl::GetFlag(FLAGS_planted);
  const std::vector<std::string> planted_island =
      absl::GetFlag(FLAGS_planted_island);
  const uint64_t planted_seeds = absl::GetFlag(FLAGS_planted_seeds);
  const uint64_t found = CountFound(planted, planted_seeds);
  const uint64_t found_island = CountFound(planted_island, planted_seeds);
  if (const std::string path = absl::GetFlag(FLAGS_json); !path.empty()) {
    std::ofstream file(path);
    file << nlohmann::json{{"histories", totals.histories},
                           {"violations", totals.violations.size()},
                           {"planted_found", found + found_island},
                           {"planted_total",
                            planted.size() + planted_island.size()},
                           {"planted_found_island", found_island},
                           {"planted_total_island", planted_island.size()},
                           {"seconds", seconds},
                           {"events", totals.events},
                           {"commits", totals.commits},
                           {"faults", totals.faults},
                           {"virtual_hours",
                            absl::ToDoubleHours(totals.virtual_time)}}
                .dump(2)
         << "\n";
    if (!file.flush()) {
      std::cerr << kProgram << ": cannot write " << path << "\n";
      return 1;
    }
  }
  return totals.violations.empty() && found == planted.size() &&
                 found_island == planted_island.size()
             ? 0
             : 1;
}

}  // namespace
}  // namespace causeway::simulation

int main(int argc, char** argv) {
  causeway::StartDaemon(argc, argv, "Runs the deterministic simulation.",
                        "tests/simulation/main.cc");
  return causeway::simulation::Main();
}
