// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/comparison_report.h"

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "cli/human.h"
#include "cli/plan/percent.h"
#include "cli/plan/plan_report.h"
#include "cli/table.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

// A quantity that was predicted and measured.
struct ComparedQuantity {
  std::string subject;
  // The names for people and for programs.
  const char* name;
  const char* key;
  std::string (*text)(double);
  double predicted = 0;
  double measured = 0;
};

std::vector<ComparedQuantity> Compare(const RunAssumptions& assumptions,
                                      const RunPrediction& prediction,
                                      const MeasuredRun& measured) {
  const double round_steps =
      assumptions.config.synchronization().inner_steps_per_round();
  std::vector<ComparedQuantity> quantities;
  for (size_t i = 0; i < measured.islands.size(); ++i) {
    const MeasuredIsland& island = measured.islands[i];
    const auto add = [&](const char* name, const char* key,
                         std::string (*text)(double), double predicted,
                         double value) {
      quantities.push_back({island.name, name, key, text, predicted, value});
    };
    add("utilization", "compute_utilization", Percent,
        prediction.simulated.islands[i].utilization, island.utilization());
    add("sent per step", "up_bytes_per_step", HumanBytes,
        prediction.up_bytes_per_round / round_steps,
        island.up_bytes / island.steps);
    add("received per step", "down_bytes_per_step", HumanBytes,
        prediction.down_bytes_per_round / round_steps,
        island.down_bytes / island.steps);
    add("memory", "memory_bytes", HumanBytes, prediction.island_bytes,
        island.memory_bytes);
  }
  quantities.push_back({"coordinator", "memory", "memory_bytes", HumanBytes,
                        prediction.coordinator_bytes,
                        measured.coordinator_bytes});
  return quantities;
}

}  // namespace

void PrintComparison(const RunAssumptions& assumptions,
                     const RunPrediction& prediction,
                     const MeasuredRun& measured, std::ostream& out) {
  Table table({{"OF"},
               {"QUANTITY"},
               {"PREDICTED", Table::kRight},
               {"MEASURED", Table::kRight},
               {"RATIO", Table::kRight}});
  for (const ComparedQuantity& quantity :
       Compare(assumptions, prediction, measured)) {
    table.AddRow(
        {quantity.subject, quantity.name, quantity.text(quantity.predicted),
         quantity.text(quantity.measured),
         absl::StrFormat("%.3f", quantity.measured / quantity.predicted)});
  }
  table.Print(out);
  out << "\nStep times and outer steps are as measured. Predicted memory is "
         "without\nactivations and the program itself. Measured traffic is up "
         "to the last heartbeat,\nwhich misses the end of what an island that "
         "has left moved, and has parameters\nthat were fetched. A status does "
         "not tell peaks.\n";
}

nlohmann::json ComparisonJson(const RunAssumptions& assumptions,
                              const RunPrediction& prediction,
                              const MeasuredRun& measured) {
  nlohmann::json result = {
      {"prediction", PredictionJson(assumptions, prediction)},
      {"compared", nlohmann::json::object()}};
  for (const ComparedQuantity& quantity :
       Compare(assumptions, prediction, measured)) {
    result["compared"][quantity.subject][quantity.key] = {
        {"predicted", quantity.predicted}, {"measured", quantity.measured}};
  }
  return result;
}

}  // namespace causeway
