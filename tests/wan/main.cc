// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
//
// causeway-wan-lab: runs a scenario (tests/wan/scenario.proto) and writes what
// it measured (tests/wan/report.h).
//
// Exit codes: 0 all runs were made; 1 failure; 2 usage; 77 this system does not
// permit network namespaces.
#include <stdlib.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/daemon.h"
#include "common/file.h"
#include "common/status_macros.h"
#include "glog/logging.h"
#include "tests/wan/network_namespace.h"
#include "tests/wan/report.h"
#include "tests/wan/scenario.h"
#include "tests/wan/trial.h"

ABSL_FLAG(std::string, scenario, "", "The scenario, a text-format protobuf.");
ABSL_FLAG(std::string, json, "",
          "Where to write the report. Written anew after each run.");
ABSL_FLAG(std::string, programs, "",
          "The directory that has server/causeway-coordinator, "
          "worker/causeway-worker and cli/causeway.");
ABSL_FLAG(std::string, data, "/usr/share/common-licenses/GPL-3",
          "Comma-separated files to train on.");
ABSL_FLAG(std::string, directory, "",
          "Keep states and logs of all runs in this directory, which must not "
          "exist. Without it they are removed.");

namespace causeway {
namespace {

constexpr char kProgram[] = "causeway-wan-lab";
constexpr int kSkipped = 77;

class Lab {
 public:
  Lab(const wan::Scenario& scenario, std::string directory)
      : scenario_(scenario), directory_(std::move(directory)) {}

  absl::Status Run() {
    for (uint64_t repeat = 0; repeat < scenario_.repeats(); ++repeat) {
      if (scenario_.baseline()) {
        wan::Scenario undisturbed = scenario_;
        undisturbed.clear_events();
        ASSIGN_OR_RETURN(TrialResult result,
                         RunOne(undisturbed, BaselineSetting(scenario_),
                                BaselineNetwork(), repeat));
        baselines_.push_back(std::move(result));
      }
      for (const wan::Network& network : scenario_.networks()) {
        for (const wan::Setting& setting : scenario_.settings()) {
          ASSIGN_OR_RETURN(TrialResult result,
                           RunOne(scenario_, setting, network, repeat));
          records_.push_back(
              {setting.name(), network.name(), repeat, std::move(result)});
          RETURN_IF_ERROR(WriteReport());
        }
      }
    }
    PrintReport(MakeReport(scenario_.name(), records_, baselines_), std::cout);
    return absl::OkStatus();
  }

 private:
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
        .data = absl::GetFlag(FLAGS_data),
        .directory = absl::StrCat(directory_, "/run-", ++trials_),
        .now = SteadyWallClock()};
    RETURN_IF_ERROR(CreateDirectory(options.directory));
    return RunTrial(options);
  }

  absl::Status WriteReport() const {
    const std::string path = absl::GetFlag(FLAGS_json);
    if (path.empty()) return absl::OkStatus();
    const std::string text = absl::StrCat(
        MakeReport(scenario_.name(), records_, baselines_).dump(2), "\n");
    return WriteFileAtomically(path, {absl::string_view(text)});
  }

  const wan::Scenario& scenario_;
  const std::string directory_;
  int trials_ = 0;
  std::vector<TrialRecord> records_;
  // By repeat.
  std::vector<TrialResult> baselines_;
};

absl::StatusOr<std::string> MakeDirectory() {
  const std::string wanted = absl::GetFlag(FLAGS_directory);
  if (!wanted.empty()) {
    RETURN_IF_ERROR(CreateDirectory(wanted));
    return wanted;
  }
  std::string path =
      (std::filesystem::temp_directory_path() / "causeway-wan-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) {
    return ErrnoStatus(errno, "make directory", path);
  }
  return path;
}

absl::Status Run() {
  ASSIGN_OR_RETURN(const wan::Scenario scenario,
                   LoadScenario(absl::GetFlag(FLAGS_scenario)));
  // This process goes where the coordinators will be, before it has other
  // threads, so that none of them is left outside.
  ASSIGN_OR_RETURN(const NetworkNamespace coordinators,
                   NetworkNamespace::Create());
  ASSIGN_OR_RETURN(const NetworkNamespace::Scope inside, coordinators.Enter());
  ASSIGN_OR_RETURN(const std::string directory, MakeDirectory());
  const absl::Cleanup remove = [&] {
    std::error_code ignored;
    if (absl::GetFlag(FLAGS_directory).empty()) {
      std::filesystem::remove_all(directory, ignored);
    }
  };
  return Lab(scenario, directory).Run();
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  const std::vector<std::string> rest = causeway::StartDaemon(
      argc, argv,
      "Runs a coordinator and islands on emulated long links.\n\n"
      "  causeway-wan-lab --scenario FILE --programs DIR [--json FILE]",
      "tests/wan/main.cc");
  if (!rest.empty()) {
    return causeway::UsageError(
        causeway::kProgram, absl::StrCat("unknown argument \"", rest[0], "\""));
  }
  if (absl::GetFlag(FLAGS_scenario).empty() ||
      absl::GetFlag(FLAGS_programs).empty()) {
    return causeway::UsageError(causeway::kProgram,
                                "--scenario and --programs are needed");
  }
  const absl::Status permitted = causeway::CheckPermitted();
  if (absl::IsPermissionDenied(permitted)) {
    std::cerr << causeway::kProgram << ": skipped: " << permitted.message()
              << " (this needs root, outside of most containers)\n";
    return causeway::kSkipped;
  }
  return causeway::ExitCode(causeway::kProgram,
                            permitted.ok() ? causeway::Run() : permitted);
}
