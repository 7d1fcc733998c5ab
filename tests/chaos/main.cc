// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// causeway-chaos: runs islands and a coordinator under a seeded schedule of
// faults, and again without faults, and checks that nothing was lost or counted
// twice.
//
// Exit codes: 0 all invariants hold; 1 they do not, or failure; 2 usage; 77
// this system does not permit network namespaces.
//
// The report, in JSON:
//   goodput             merged tokens per second, relative to the run without
//                       faults
//   participation       contributions by rounds and islands, dead ones included
//   lost                steps of living islands that were not merged, and
//                       commits that were announced and are gone
//   double_counted      steps that were merged more than once
//   died                steps that died with their process before they were
//                       merged
//   faults              how many, and by kind in faults_by_kind
//   restart_seconds     from the kill of the coordinator to the next commit:
//                       mean; all in restart_seconds_each
//   kill_seconds        the same from the kill of an island
//   guest_seconds       from the start of one more island to the first commit
//                       it is part of: mean
//   guest_pause_steps   how many inner steps longer another island waited:
//                       the most
#include <stdlib.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/os/daemon.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "common/testing/temporary_directory.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"
#include "tests/chaos/schedule.h"
#include "tests/chaos/trial.h"
#include "tests/wan/network_namespace.h"

ABSL_FLAG(double, minutes, 10, "Duration of the run with faults.");
ABSL_FLAG(double, baseline_minutes, 0,
          "Duration of the run without faults; 0 takes a fifth of --minutes, "
          "at most 2.");
ABSL_FLAG(double, fault_seconds, 15, "Seconds from one fault to the next.");
ABSL_FLAG(int, islands, 4, "1 to 6 islands, beside one that comes and goes.");
ABSL_FLAG(double, step_seconds, 0.1, "Simulated time of an inner step.");
ABSL_FLAG(uint64_t, seed, 1, "Seed of the schedule of faults.");
ABSL_FLAG(std::string, json, "", "Where to write the report.");
ABSL_FLAG(std::string, programs, "",
          "The directory that has server/causeway-coordinator and "
          "worker/causeway-worker.");
ABSL_FLAG(std::string, data, "/usr/share/common-licenses/GPL-3",
          "Text to train on.");
ABSL_FLAG(std::string, directory, "",
          "Keep states and logs in this directory, which must not exist. "
          "Without it they are removed.");

namespace causeway {
namespace {

constexpr char kProgram[] = "causeway-chaos";

std::vector<double> Seconds(const std::vector<absl::Duration>& durations) {
  std::vector<double> seconds;
  for (const absl::Duration duration : durations) {
    seconds.push_back(absl::ToDoubleSeconds(duration));
  }
  return seconds;
}

// Returns null if there are no values.
nlohmann::json Mean(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

nlohmann::json Report(const std::vector<Fault>& faults,
                      const ChaosResult& undisturbed,
                      const ChaosResult& disturbed) {
  std::map<std::string, int> by_kind;
  for (const Fault& fault : faults) {
    ++by_kind[std::string(FaultKindName(fault.kind))];
  }
  const Accounts& accounts = disturbed.accounts;
  const std::vector<double> pauses = disturbed.guest_pauses;
  return {
      {"goodput", disturbed.merged_tokens_per_second /
                      undisturbed.merged_tokens_per_second},
      {"tokens_per_second", disturbed.merged_tokens_per_second},
      {"tokens_per_second_without_faults",
       undisturbed.merged_tokens_per_second},
      {"participation", disturbed.participation},
      {"participation_without_faults", undisturbed.participation},
      {"lost", accounts.lost_steps + accounts.lost_commits},
      {"double_counted", accounts.double_counted_steps},
      {"died", accounts.died_steps},
      {"rounds", disturbed.rounds},
      {"faults", faults.size()},
      {"faults_by_kind", by_kind},
      {"fault_seconds", absl::GetFlag(FLAGS_fault_seconds)},
      {"minutes", absl::GetFlag(FLAGS_minutes)},
      {"islands", absl::GetFlag(FLAGS_islands)},
      {"seed", absl::GetFlag(FLAGS_seed)},
      {"restart_seconds", Mean(Seconds(disturbed.restarts))},
      {"restart_seconds_each", Seconds(disturbed.restarts)},
      {"kill_seconds", Mean(Seconds(disturbed.commits_after_kill))},
      {"guest_seconds", Mean(Seconds(disturbed.guests_merged))},
      {"guest_pause_steps",
       pauses.empty()
           ? nlohmann::json(nullptr)
           : nlohmann::json(*std::max_element(pauses.begin(), pauses.end()))},
      {"findings", accounts.findings},
  };
}

absl::StatusOr<ChaosResult> RunOne(const std::string& directory,
                                   absl::Duration duration,
                                   std::vector<Fault> faults) {
  RETURN_IF_ERROR(CreateDirectory(directory));
  return RunChaos(
      {.programs = absl::GetFlag(FLAGS_programs),
       .data = absl::GetFlag(FLAGS_data),
       .directory = directory,
       .islands = absl::GetFlag(FLAGS_islands),
       .step_time = absl::Seconds(absl::GetFlag(FLAGS_step_seconds)),
       .duration = duration,
       .faults = std::move(faults),
       .seed = absl::GetFlag(FLAGS_seed),
       .now = SteadyWallClock()});
}

absl::Status RunIn(const std::string& directory) {
  const absl::Duration duration = absl::Minutes(absl::GetFlag(FLAGS_minutes));
  absl::Duration baseline =
      absl::Minutes(absl::GetFlag(FLAGS_baseline_minutes));
  if (baseline == absl::ZeroDuration()) {
    baseline = std::min(duration / 5, absl::Minutes(2));
  }
  const std::vector<Fault> faults = MakeSchedule(
      {.duration = duration,
       .interval = absl::Seconds(absl::GetFlag(FLAGS_fault_seconds)),
       .islands = absl::GetFlag(FLAGS_islands),
       .seed = absl::GetFlag(FLAGS_seed)});
  ASSIGN_OR_RETURN(const ChaosResult undisturbed,
                   RunOne(absl::StrCat(directory, "/without"), baseline, {}));
  ASSIGN_OR_RETURN(const ChaosResult disturbed,
                   RunOne(absl::StrCat(directory, "/with"), duration, faults));
  const nlohmann::json report = Report(faults, undisturbed, disturbed);
  const std::string text = absl::StrCat(report.dump(2), "\n");
  std::cout << text;
  if (!absl::GetFlag(FLAGS_json).empty()) {
    RETURN_IF_ERROR(WriteFileAtomically(absl::GetFlag(FLAGS_json),
                                        {absl::string_view(text)}));
  }
  if (!disturbed.accounts.findings.empty()) {
    return absl::InternalError(absl::StrCat(
        "an invariant is broken: ", disturbed.accounts.findings.front(),
        "; states and logs are in ", directory));
  }
  return absl::OkStatus();
}

absl::Status Run() {
  // This process enters the coordinators' namespace before it has other
  // threads, so that none of them stays outside.
  ASSIGN_OR_RETURN(const NetworkNamespace coordinators,
                   NetworkNamespace::Create());
  ASSIGN_OR_RETURN(const NetworkNamespace::Scope inside, coordinators.Enter());
  ASSIGN_OR_RETURN(TemporaryDirectory directory,
                   TemporaryDirectory::MakeUnless(
                       absl::GetFlag(FLAGS_directory), "causeway-chaos"));
  const absl::Status status = RunIn(directory.path());
  if (!status.ok()) directory.Keep();
  return status;
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  causeway::StartDaemon(
      argc, argv,
      "Runs a coordinator and islands under a schedule of faults.\n\n"
      "  causeway-chaos --programs DIR [--minutes N] [--json FILE]\n\n"
      "Needs root, outside of most containers. Exits with 0 if all invariants "
      "hold, with 77 where network namespaces are not permitted. The run "
      "without faults comes first.",
      "tests/chaos/main.cc");
  const int islands = absl::GetFlag(FLAGS_islands);
  if (absl::GetFlag(FLAGS_programs).empty() || islands < 1 || islands > 6 ||
      !(absl::GetFlag(FLAGS_minutes) > 0) ||
      !(absl::GetFlag(FLAGS_fault_seconds) >= 1) ||
      !(absl::GetFlag(FLAGS_step_seconds) > 0)) {
    return causeway::UsageError(
        causeway::kProgram,
        "--programs is needed; --islands is 1 to 6, --fault_seconds at least "
        "1, --minutes and --step_seconds above 0");
  }
  return causeway::RunIfPermitted(causeway::kProgram, causeway::Run);
}
