// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_command.h"

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "cli/plan/plan_report.h"
#include "cli/plan/plan_settings.h"
#include "cli/plan/run_comparison.h"
#include "cli/plan/run_plan.h"
#include "cli/plan/settings_search.h"
#include "common/foreign/file.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "common/transport/credentials.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

constexpr char kDetails[] =
    "The planner simulates the islands' training and their exchanges with the "
    "coordinator. To exchange a fragment, an island uploads it; when the "
    "coordinator has it from all islands, it takes an outer step, and the "
    "island downloads the update. The two ways take one round trip in all. An "
    "island's exchanges queue for its link, islands share the coordinator's "
    "link fairly, and outer steps queue, too. After a pause TCP begins with a "
    "small window. An island that sent a fragment trains on for tau + "
    "max_overlap_steps steps and then waits for the update.\nNot simulated: "
    "packet loss, encoding, islands that come and go, and the effects of H, "
    "tau and formats on the loss.";

struct PlanFlags {
  PlanSettings settings;
  double want = 0;
  std::string compare;
  ClientTlsFiles tls;
  std::string json;
};

absl::Status WriteJson(const std::string& path, const nlohmann::json& json) {
  if (path.empty()) return absl::OkStatus();
  return WriteFileAtomically(path, {json.dump(2), "\n"});
}

absl::Status RunCompare(const PlanFlags& flags,
                        const PlanEnvironment& environment, std::ostream& out) {
  StatusSnapshot status;
  std::optional<absl::Time> asked_at;
  const absl::StatusOr<std::string> file = ReadForeignFile(flags.compare);
  if (file.ok()) {
    ASSIGN_OR_RETURN(status, ParseStatusJson(*file));
  } else if (absl::IsNotFound(file.status())) {
    ASSIGN_OR_RETURN(status, environment.fetch({.coordinator = flags.compare,
                                                .tls = flags.tls}));
    asked_at = environment.now();
  } else {
    return file.status();
  }
  ASSIGN_OR_RETURN(const MeasuredRun measured, Measure(status, asked_at));
  ASSIGN_OR_RETURN(
      RunAssumptions assumptions,
      AssumptionsOf(status, measured, flags.settings.initial_parameters));
  RETURN_IF_ERROR(ApplySettings(flags.settings, assumptions));
  ASSIGN_OR_RETURN(const RunPrediction prediction, PredictRun(assumptions));
  PrintComparison(assumptions, prediction, measured, out);
  if (flags.settings.up_mbit.empty()) {
    out << "Links are taken to carry what their transfers reached; --up_mbit, "
           "--down_mbit and\n--rtt_ms say better.\n";
  }
  return WriteJson(flags.json,
                   ComparisonJson(assumptions, prediction, measured));
}

absl::Status RunPlan(const PlanFlags& flags, std::ostream& out) {
  ASSIGN_OR_RETURN(const RunAssumptions assumptions,
                   MakeAssumptions(flags.settings));
  if (flags.want > 0) {
    ASSIGN_OR_RETURN(const FoundSettings found,
                     FindSettings(assumptions, flags.want));
    PrintSettings(flags.want, found, out);
    return WriteJson(flags.json, SettingsJson(flags.want, found));
  }
  ASSIGN_OR_RETURN(const RunPrediction prediction, PredictRun(assumptions));
  PrintPrediction(assumptions, prediction, out);
  return WriteJson(flags.json, PredictionJson(assumptions, prediction));
}

}  // namespace

Command PlanCommand(PlanEnvironment environment) {
  const auto flags = std::make_shared<PlanFlags>();
  Command command{
      .name = "plan",
      .summary = "Predicts a run's utilization, traffic and memory.",
      .details = kDetails};
  AddSettingsFlags(command.flags, flags->settings);
  command.flags.Add(
      "want", "SHARE",
      "Lists the settings of H, P, tau and format with which islands spend "
      "this share of their time training, for instance 0.99; 0 lists none.",
      &flags->want);
  command.flags.Add(
      "compare", "RUN",
      "Compares the prediction with a run: the address of its coordinator, or "
      "a file with the output of `causeway status --json --all`.",
      &flags->compare);
  AddTlsFlags(flags->tls, command.flags);
  command.flags.Add("json", "FILE",
                    "Also writes the results to this file, in bits per second, "
                    "bytes and seconds.",
                    &flags->json);
  command.run = [=](const Invocation& call) -> absl::Status {
    if (!flags->compare.empty()) {
      return RunCompare(*flags, environment, call.out);
    }
    return RunPlan(*flags, call.out);
  };
  return command;
}

}  // namespace causeway
