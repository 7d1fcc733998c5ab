// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_command.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "cli/plan/plan_report.h"
#include "cli/plan/plan_settings.h"
#include "cli/plan/run_plan.h"
#include "cli/plan/settings_search.h"
#include "common/os/file.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

constexpr char kDetails[] =
    "The planner simulates the islands' training and their exchanges with the "
    "coordinator. To exchange a fragment, an island uploads it; when the "
    "coordinator has it from all islands, it takes an outer step, and the "
    "island downloads the update. Both directions together take one round "
    "trip. An island's exchanges queue for its link, islands share the "
    "coordinator's link fairly, and outer steps queue, too. After a pause TCP "
    "begins with a small window. An island that sent a fragment trains on for "
    "tau + max_overlap_steps steps and then waits for the update.\nNot "
    "simulated: packet loss, encoding, islands that come and go, and the "
    "effects of H, tau and formats on the loss.";

struct PlanFlags {
  PlanSettings settings;
  double want = 0;
  std::string json;
};

absl::Status WriteJson(const std::string& path, const nlohmann::json& json) {
  if (path.empty()) return absl::OkStatus();
  return WriteFileAtomically(path, {json.dump(2), "\n"});
}

absl::Status RunPlan(const PlanFlags& flags, std::ostream& out) {
  ASSIGN_OR_RETURN(const RunAssumptions assumptions,
                   MakeAssumptions(flags.settings));
  // A configuration that was loaded is valid, so that flags are wrong if this
  // cannot be predicted.
  if (flags.want != 0) {
    ASSIGN_OR_RETURN(const FoundSettings found,
                     AsUsageError(FindSettings(assumptions, flags.want)));
    PrintSettings(flags.want, found, out);
    return WriteJson(flags.json, SettingsJson(flags.want, found));
  }
  ASSIGN_OR_RETURN(const RunPrediction prediction,
                   AsUsageError(PredictRun(assumptions)));
  PrintPrediction(assumptions, prediction, out);
  return WriteJson(flags.json, PredictionJson(assumptions, prediction));
}

}  // namespace

Command PlanCommand() {
  const auto flags = std::make_shared<PlanFlags>();
  Command command{
      .name = "plan",
      .summary = "Predicts a run's utilization, traffic and memory.",
      .details = kDetails};
  AddSettingsFlags(command.flags, flags->settings);
  command.flags.Add(
      "want", "SHARE",
      "Lists the settings of H, P, tau and format with which islands spend "
      "this share of their time training, such as 0.99; 0 lists none.",
      &flags->want);
  command.flags.Add("json", "FILE",
                    "Also writes the results to this file, in bits per second, "
                    "bytes and seconds.",
                    &flags->json);
  command.run = [=](const Invocation& call) {
    return RunPlan(*flags, call.out);
  };
  return command;
}

}  // namespace causeway
