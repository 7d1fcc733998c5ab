// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// causeway-load: runs many islands, and many joiners at once, against one
// coordinator on loopback, and measures what they cost it.
//
// Exit codes: 0 done; 1 failure; 2 usage.
//
// The report, in JSON. Memory does not include mapped files; it is in bytes.
//   rounds              of --islands islands
//     islands, count, parameters
//     rounds_per_second       from the first step to the end of the last round
//     cpu_seconds, islands_cpu_seconds   the processor time of the coordinator,
//                             and of all islands, per round: means
//     join_seconds, join_cpu_seconds   until all had joined
//     idle_bytes              before the first island
//     joined_bytes            with all of them there, before the first round
//     peak_bytes              the most, in any round
//     peak_bytes_early, peak_bytes_late   the most in the first and the second
//                             half of the rounds: a leak would show
//     staging_bytes           the most memory for uploads and their codes
//     each                    of every round: seconds, cpu_seconds,
//                             islands_cpu_seconds, peak_bytes
//   joiners             the same for joiners, --joiners together
//     parameters, limit_bytes_per_second
//     alone, together         joiners, seconds, cpu_seconds, bytes that were
//                             downloaded, before_bytes and peak_bytes of memory
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/os/daemon.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "common/testing/temporary_directory.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"
#include "tests/load/trial.h"

ABSL_FLAG(int, islands, 256, "Islands; 0 leaves the rounds out.");
ABSL_FLAG(int, rounds, 50, "Rounds of all islands.");
ABSL_FLAG(int, layers, 2, "Blocks of the model that islands train.");
ABSL_FLAG(int, hidden_size, 32, "Width of the model that islands train.");
ABSL_FLAG(int, joiners, 16, "Islands that join at once; 0 leaves them out.");
ABSL_FLAG(int, joined_layers, 8, "Blocks of the model that joiners download.");
ABSL_FLAG(int, joined_hidden_size, 512,
          "Width of the model that joiners download.");
ABSL_FLAG(double, limit, 0,
          "10^6 bytes per second that each joiner asks for, 0.0175 or more; "
          "0: no limit.");
ABSL_FLAG(std::string, json, "", "Where to write the report.");
ABSL_FLAG(std::string, programs, "",
          "The directory that has server/causeway-coordinator.");

namespace causeway {
namespace {

constexpr char kProgram[] = "causeway-load";

uint64_t MostBytes(const std::vector<RoundLoad>& rounds, size_t begin,
                   size_t end) {
  uint64_t most = 0;
  for (size_t i = begin; i < end; ++i) {
    most = std::max(most, rounds[i].peak_bytes);
  }
  return most;
}

nlohmann::json Report(const LoadResult& result) {
  const std::vector<RoundLoad>& rounds = result.rounds;
  double seconds = 0;
  double cpu = 0;
  double islands_cpu = 0;
  nlohmann::json each = nlohmann::json::array();
  for (const RoundLoad& round : rounds) {
    seconds += round.seconds;
    cpu += round.cpu_seconds;
    islands_cpu += round.islands_cpu_seconds;
    each.push_back({{"seconds", round.seconds},
                    {"cpu_seconds", round.cpu_seconds},
                    {"islands_cpu_seconds", round.islands_cpu_seconds},
                    {"peak_bytes", round.peak_bytes}});
  }
  const auto count = static_cast<double>(rounds.size());
  return {
      {"islands", absl::GetFlag(FLAGS_islands)},
      {"count", rounds.size()},
      {"parameters", result.parameters},
      {"rounds_per_second", count / seconds},
      {"cpu_seconds", cpu / count},
      {"islands_cpu_seconds", islands_cpu / count},
      {"join_seconds", result.join_seconds},
      {"join_cpu_seconds", result.join_cpu_seconds},
      {"idle_bytes", result.idle_bytes},
      {"joined_bytes", result.joined_bytes},
      {"peak_bytes", MostBytes(rounds, 0, rounds.size())},
      {"peak_bytes_early", MostBytes(rounds, 0, rounds.size() / 2)},
      {"peak_bytes_late", MostBytes(rounds, rounds.size() / 2, rounds.size())},
      {"staging_bytes", result.staging_bytes},
      {"each", each}};
}

nlohmann::json Report(const JoinersLoad& load) {
  return {{"joiners", load.joiners},           {"seconds", load.seconds},
          {"cpu_seconds", load.cpu_seconds},   {"bytes", load.bytes},
          {"before_bytes", load.before_bytes}, {"peak_bytes", load.peak_bytes}};
}

absl::StatusOr<nlohmann::json> RunAll(const std::string& directory) {
  nlohmann::json report;
  if (absl::GetFlag(FLAGS_islands) > 0) {
    const std::string path = absl::StrCat(directory, "/rounds");
    RETURN_IF_ERROR(CreateDirectory(path));
    ASSIGN_OR_RETURN(
        const LoadResult rounds,
        RunRounds({.programs = absl::GetFlag(FLAGS_programs),
                   .directory = path,
                   .islands = absl::GetFlag(FLAGS_islands),
                   .rounds = absl::GetFlag(FLAGS_rounds),
                   .layers = absl::GetFlag(FLAGS_layers),
                   .hidden_size = absl::GetFlag(FLAGS_hidden_size)}));
    report["rounds"] = Report(rounds);
  }
  if (absl::GetFlag(FLAGS_joiners) > 0) {
    const std::string path = absl::StrCat(directory, "/joiners");
    RETURN_IF_ERROR(CreateDirectory(path));
    const double limit = absl::GetFlag(FLAGS_limit) * 1e6;
    ASSIGN_OR_RETURN(
        const JoinersResult joiners,
        RunJoiners({.programs = absl::GetFlag(FLAGS_programs),
                    .directory = path,
                    .joiners = absl::GetFlag(FLAGS_joiners),
                    .limit = limit,
                    .layers = absl::GetFlag(FLAGS_joined_layers),
                    .hidden_size = absl::GetFlag(FLAGS_joined_hidden_size)}));
    report["joiners"] = {{"parameters", joiners.parameters},
                         {"limit_bytes_per_second", limit},
                         {"alone", Report(joiners.alone)},
                         {"together", Report(joiners.together)}};
  }
  return report;
}

absl::Status Run() {
  ASSIGN_OR_RETURN(TemporaryDirectory directory,
                   TemporaryDirectory::Make("causeway-load"));
  const absl::StatusOr<nlohmann::json> report = RunAll(directory.path());
  if (!report.ok()) {
    directory.Keep();
    LOG(ERROR) << "state and logs are in " << directory.path();
    return report.status();
  }
  const std::string text = absl::StrCat(report->dump(2), "\n");
  std::cout << text;
  if (absl::GetFlag(FLAGS_json).empty()) return absl::OkStatus();
  return WriteFileAtomically(absl::GetFlag(FLAGS_json),
                             {absl::string_view(text)});
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  causeway::StartDaemon(
      argc, argv,
      "Loads one coordinator with many islands and joiners.\n\n"
      "  causeway-load --programs DIR [--islands N] [--rounds N] [--json FILE]",
      "tests/load/main.cc");
  const auto within = [](int value, int least, int most) {
    return value >= least && value <= most;
  };
  if (absl::GetFlag(FLAGS_programs).empty() ||
      !within(absl::GetFlag(FLAGS_islands), 0, 2000) ||
      !within(absl::GetFlag(FLAGS_rounds), 1, 1'000'000) ||
      !within(absl::GetFlag(FLAGS_joiners), 0, 1000) ||
      !(absl::GetFlag(FLAGS_limit) >= 0)) {
    return causeway::UsageError(
        causeway::kProgram,
        "--programs is needed; --islands is 0 to 2000, --joiners 0 to 1000, "
        "--rounds at least 1, --limit not below 0");
  }
  // Hundreds of islands would log the same messages.
  FLAGS_minloglevel = google::GLOG_ERROR;
  return causeway::ExitCode(causeway::kProgram, causeway::Run());
}
