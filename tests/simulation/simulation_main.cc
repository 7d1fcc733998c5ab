// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/simulation_main.h"

#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <thread>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

ABSL_FLAG(uint64_t, seeds, 1000, "Histories to run, from seed 1 on.");
ABSL_FLAG(uint64_t, seed, 0, "Run the history of this seed only.");
ABSL_FLAG(bool, print_events, false,
          "With --seed: print the events of the history.");
ABSL_FLAG(std::string, json, "", "Write the figures to this file.");
ABSL_FLAG(int, threads, 0, "Histories at a time; 0 means one per CPU.");
ABSL_FLAG(std::string, planted, "",
          "The file of the bugs that the program `planted` beside this one "
          "can have.");
ABSL_FLAG(uint64_t, planted_seeds, 4000,
          "Histories in which a planted bug must show.");
ABSL_FLAG(bool, until_violation, false, "Stop at the first violation.");
ABSL_FLAG(bool, shrink, true,
          "Find out what a violation does not need, which may take minutes.");

namespace causeway::simulation {
namespace {

// The number of violations that are looked into.
constexpr size_t kShown = 3;

struct Totals {
  uint64_t histories = 0;
  std::map<std::string, double> figures;
  // The violations by seed.
  std::map<uint64_t, std::string> violations;
};

// Runs the histories of seeds 1 to --seeds.
Totals RunHistories(const Simulation& simulation) {
  std::atomic<uint64_t> next = 1;
  std::atomic<bool> is_over = false;
  absl::Mutex mu;
  Totals totals;
  const auto run_next = [&] {
    const uint64_t seed = next++;
    if (seed > absl::GetFlag(FLAGS_seeds)) return false;
    const RunResult result = simulation.run(seed, /*trace=*/false);
    absl::MutexLock lock(&mu);
    ++totals.histories;
    for (const auto& [name, value] : result.figures) {
      totals.figures[name] += value;
    }
    if (result.violation.empty()) return true;
    totals.violations[seed] = result.violation;
    if (absl::GetFlag(FLAGS_until_violation)) is_over = true;
    return true;
  };
  const int threads = absl::GetFlag(FLAGS_threads);
  std::vector<std::thread> runners(
      threads > 0 ? static_cast<unsigned>(threads)
                  : std::max(1u, std::thread::hardware_concurrency()));
  for (std::thread& runner : runners) {
    runner = std::thread([&] {
      while (!is_over && run_next()) {
      }
    });
  }
  for (std::thread& runner : runners) runner.join();
  return totals;
}

void Explain(const Totals& totals, const Simulation& simulation) {
  size_t shown = 0;
  for (const auto& [seed, violation] : totals.violations) {
    if (++shown > kShown) {
      std::cout << "... and " << totals.violations.size() - kShown << " more\n";
      break;
    }
    std::cout << "VIOLATION in the history of seed " << seed << ": "
              << violation << "\n  replay: --seed " << seed
              << " --print_events "
              << (absl::GetFlag(FLAGS_shrink) ? simulation.shrink(seed) : "")
              << std::endl;
  }
}

// Returns the violation that the program with this bug found, or an empty
// string.
std::string RunPlanted(const std::string& bug) {
  const std::filesystem::path directory =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string command = absl::StrCat(
      "exec '", (directory / "planted").string(), "' --bug ", bug, " --seeds ",
      absl::GetFlag(FLAGS_planted_seeds), " --until_violation --noshrink 2>&1");
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string output;
  char buffer[4096];
  for (size_t bytes; (bytes = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    output.append(buffer, bytes);
  }
  const int status = pclose(pipe);
  const bool aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
  const bool violated = WIFEXITED(status) && WEXITSTATUS(status) == 1;
  for (absl::string_view line : absl::StrSplit(output, '\n')) {
    if ((violated && absl::StartsWith(line, "VIOLATION")) ||
        (aborted && absl::StrContains(line, "Check failed"))) {
      return std::string(line);
    }
  }
  std::cout << output;
  return "";
}

// The planted bugs, and those in the sources of islands.
struct PlantedBugs {
  int total = 0;
  int found = 0;
  int total_island = 0;
  int found_island = 0;
};

// Looks for each bug of a file in the form of mutations.txt (plant.pl).
PlantedBugs FindPlanted(const std::string& path) {
  std::ifstream file(path);
  PlantedBugs bugs;
  for (std::string line; std::getline(file, line);) {
    // Other lines are empty or begin with a mark.
    if (line.empty() || !absl::ascii_islower(line[0])) continue;
    const std::vector<std::string> bug = absl::StrSplit(line, ' ');
    const std::string noticed = RunPlanted(bug[0]);
    std::cout << bug[0] << ": " << (noticed.empty() ? "NOT FOUND" : noticed)
              << std::endl;
    const int found = noticed.empty() ? 0 : 1;
    const int of_island = absl::StartsWith(bug.back(), "worker/") ? 1 : 0;
    ++bugs.total;
    bugs.found += found;
    bugs.total_island += of_island;
    bugs.found_island += of_island * found;
  }
  CHECK_GT(bugs.total, 0) << path << " has no bugs";
  return bugs;
}

}  // namespace

int RunSimulation(const Simulation& simulation) {
  if (const uint64_t seed = absl::GetFlag(FLAGS_seed); seed != 0) {
    const RunResult result =
        simulation.run(seed, absl::GetFlag(FLAGS_print_events));
    std::cout << (result.violation.empty() ? "no violation"
                                           : "VIOLATION: " + result.violation)
              << "\n";
    return result.violation.empty() ? 0 : 1;
  }

  const Clock now = SteadyWallClock();
  const absl::Time begin = now();
  const Totals totals = RunHistories(simulation);
  const double seconds = absl::ToDoubleSeconds(now() - begin);
  std::cout << absl::StreamFormat("%d histories in %.1f s: ", totals.histories,
                                  seconds);
  for (const auto& [name, sum] : totals.figures) {
    std::cout << absl::StreamFormat("%.0f %s, ", sum, name);
  }
  std::cout << totals.violations.size() << " violations\n";
  Explain(totals, simulation);

  PlantedBugs bugs;
  if (const std::string file = absl::GetFlag(FLAGS_planted); !file.empty()) {
    bugs = FindPlanted(file);
  }
  if (const std::string path = absl::GetFlag(FLAGS_json); !path.empty()) {
    nlohmann::json report = totals.figures;
    report["histories"] = totals.histories;
    report["violations"] = totals.violations.size();
    report["planted_found"] = bugs.found;
    report["planted_total"] = bugs.total;
    report["planted_found_island"] = bugs.found_island;
    report["planted_total_island"] = bugs.total_island;
    report["seconds"] = seconds;
    std::ofstream file(path);
    file << report.dump(2) << "\n";
    if (!file.flush()) {
      std::cerr << "cannot write " << path << "\n";
      return 1;
    }
  }
  return totals.violations.empty() && bugs.found == bugs.total ? 0 : 1;
}

}  // namespace causeway::simulation
