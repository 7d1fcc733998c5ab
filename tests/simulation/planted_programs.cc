// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/planted_programs.h"

#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace causeway::simulation {
namespace {

// Returns the violation that the program with a planted bug found, or an empty
// string.
std::string RunPlanted(const std::string& program, uint64_t seeds) {
  const std::filesystem::path directory =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::string command =
      absl::StrCat("exec '", (directory / program).string(), "' --seeds ",
                   seeds, " --until_violation 2>&1");
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

}  // namespace

void RunSeeds(uint64_t seeds, int threads,
              absl::FunctionRef<bool(uint64_t seed)> run) {
  std::atomic<uint64_t> next = 1;
  std::atomic<bool> is_over = false;
  std::vector<std::thread> runners(
      threads > 0 ? static_cast<unsigned>(threads)
                  : std::max(1u, std::thread::hardware_concurrency()));
  for (std::thread& runner : runners) {
    runner = std::thread([&] {
      while (!is_over) {
        const uint64_t seed = next++;
        if (seed > seeds) return;
        if (!run(seed)) is_over = true;
      }
    });
  }
  for (std::thread& runner : runners) runner.join();
}

uint64_t CountFound(const std::vector<std::string>& programs, uint64_t seeds) {
  uint64_t found = 0;
  for (const std::string& program : programs) {
    const std::string noticed = RunPlanted(program, seeds);
    found += !noticed.empty();
    std::cout << program << ": " << (noticed.empty() ? "NOT FOUND" : noticed)
              << std::endl;
  }
  return found;
}

}  // namespace causeway::simulation
