// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// causeway-wan-lab: runs a scenario (tests/wan/scenario.proto) and writes its
// measurements (tests/wan/report.h).
//
// Exit codes: 0 all runs were made; 1 failure; 2 usage; 77 this system does not
// permit network namespaces.
#include <stdlib.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/os/daemon.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "common/testing/temporary_directory.h"
#include "glog/logging.h"
#include "tests/wan/network_namespace.h"
#include "tests/wan/report.h"
#include "tests/wan/scenario.h"
#include "tests/wan/trial.h"

ABSL_FLAG(std::string, scenario, "", "The scenario, a text-format protobuf.");
ABSL_FLAG(std::string, json, "",
          "Where to write the report, anew after each run. If the file exists, "
          "the runs that it contains are not repeated.");
ABSL_FLAG(uint32_t, repeats, 0, "Repeats; 0 leaves them to the scenario.");
ABSL_FLAG(std::string, only, "",
          "Make only runs whose \"SETTING; NETWORK\" contains this.");
ABSL_FLAG(std::string, programs, "",
          "The directory that has server/causeway-coordinator, "
          "worker/causeway-worker and cli/causeway.");
ABSL_FLAG(std::string, worker, "",
          "The program that is an island, with causeway-worker's flags and "
          "progress lines. Empty: worker/causeway-worker of --programs.");
ABSL_FLAG(std::string, data, "/usr/share/common-licenses/GPL-3",
          "Comma-separated files to train on.");
ABSL_FLAG(std::string, directory, "",
          "Keep states and logs of all runs in this directory, which must not "
          "exist. Without it they are removed.");

namespace causeway {
namespace {

constexpr char kProgram[] = "causeway-wan-lab";

std::string Worker() {
  const std::string worker = absl::GetFlag(FLAGS_worker);
  if (!worker.empty()) return worker;
  return absl::StrCat(absl::GetFlag(FLAGS_programs), "/worker/causeway-worker");
}

class Lab {
 public:
  Lab(const wan::Scenario& scenario, std::string directory, Report report)
      : scenario_(scenario),
        directory_(std::move(directory)),
        report_(std::move(report)) {}

  absl::Status Run() {
    for (uint64_t repeat = 0; repeat < scenario_.repeats(); ++repeat) {
      for (const wan::Network& network : scenario_.networks()) {
        for (const wan::Setting& setting : scenario_.settings()) {
          if (!IsWanted(setting, network) ||
              report_.Has(setting.name(), network.name(), repeat)) {
            continue;
          }
          RETURN_IF_ERROR(NeedBaseline(repeat));
          ASSIGN_OR_RETURN(const TrialResult result,
                           RunOne(scenario_, setting, network, repeat));
          report_.Add(setting.name(), network.name(), repeat, result);
          RETURN_IF_ERROR(WriteReport());
        }
      }
    }
    PrintReport(report_.ToJson(), std::cout);
    return absl::OkStatus();
  }

 private:
  static bool IsWanted(const wan::Setting& setting,
                       const wan::Network& network) {
    return absl::StrContains(absl::StrCat(setting.name(), "; ", network.name()),
                             absl::GetFlag(FLAGS_only));
  }

  absl::Status NeedBaseline(uint64_t repeat) {
    if (!scenario_.baseline() || report_.HasBaseline(repeat)) {
      return absl::OkStatus();
    }
    wan::Scenario undisturbed = scenario_;
    undisturbed.clear_events();
    ASSIGN_OR_RETURN(const TrialResult result,
                     RunOne(undisturbed, BaselineSetting(scenario_),
                            BaselineNetwork(), repeat));
    report_.AddBaseline(repeat, result);
    return absl::OkStatus();
  }

  absl::StatusOr<TrialResult> RunOne(const wan::Scenario& scenario,
                                     const wan::Setting& setting,
                                     const wan::Network& network,
                                     uint64_t repeat) {
    LOG(INFO) << "run " << trials_ + 1 << ": setting \"" << setting.name()
              << "\" on network \"" << network.name() << "\", repeat "
              << repeat + 1 << " of " << scenario.repeats();
    TrialOptions options = {
        .scenario = scenario,
        .setting = setting,
        .network = network,
        .repeat = repeat,
        .programs = absl::GetFlag(FLAGS_programs),
        .worker = Worker(),
        .data = absl::GetFlag(FLAGS_data),
        .directory = absl::StrCat(directory_, "/run-", ++trials_),
        .now = SteadyWallClock()};
    RETURN_IF_ERROR(CreateDirectory(options.directory));
    return RunTrial(options);
  }

  absl::Status WriteReport() const {
    const std::string path = absl::GetFlag(FLAGS_json);
    if (path.empty()) return absl::OkStatus();
    const std::string text = absl::StrCat(report_.ToJson().dump(2), "\n");
    return WriteFileAtomically(path, {absl::string_view(text)});
  }

  const wan::Scenario& scenario_;
  const std::string directory_;
  int trials_ = 0;
  Report report_;
};

// Returns the report that --json already holds, if the file exists.
absl::StatusOr<Report> EarlierReport(const std::string& scenario) {
  const std::string path = absl::GetFlag(FLAGS_json);
  if (path.empty() || !std::filesystem::exists(path)) return Report(scenario);
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return Report::Parse(scenario, text);
}

absl::Status Run() {
  ASSIGN_OR_RETURN(wan::Scenario scenario,
                   LoadScenario(absl::GetFlag(FLAGS_scenario)));
  if (const uint32_t repeats = absl::GetFlag(FLAGS_repeats); repeats > 0) {
    scenario.set_repeats(repeats);
  }
  ASSIGN_OR_RETURN(Report report, EarlierReport(scenario.name()));
  // This process enters the coordinators' namespace before it has other
  // threads, so that none of them stays outside.
  ASSIGN_OR_RETURN(const NetworkNamespace coordinators,
                   NetworkNamespace::Create());
  ASSIGN_OR_RETURN(const NetworkNamespace::Scope inside, coordinators.Enter());
  ASSIGN_OR_RETURN(const TemporaryDirectory directory,
                   TemporaryDirectory::MakeUnless(
                       absl::GetFlag(FLAGS_directory), "causeway-wan"));
  return Lab(scenario, directory.path(), std::move(report)).Run();
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  causeway::StartDaemon(
      argc, argv,
      "Runs a coordinator and islands on emulated long links.\n\n"
      "  causeway-wan-lab --scenario FILE --programs DIR [--json FILE]\n\n"
      "Needs root, outside of most containers. Exits with 0 if all runs were "
      "made, with 77 where network namespaces are not permitted.",
      "tests/wan/main.cc");
  if (absl::GetFlag(FLAGS_scenario).empty() ||
      absl::GetFlag(FLAGS_programs).empty()) {
    return causeway::UsageError(causeway::kProgram,
                                "--scenario and --programs are needed");
  }
  return causeway::RunIfPermitted(causeway::kProgram, causeway::Run);
}
