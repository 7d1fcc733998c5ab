// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/run_comparison.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/human.h"
#include "cli/plan/plan_report.h"
#include "common/checkpoint/initial_values.h"
#include "common/config/run_config.h"
#include "common/foreign/file.h"
#include "common/proto_time.h"
#include "common/status_macros.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

absl::Status ReadMessage(const nlohmann::json& json,
                         google::protobuf::Message* message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = google::protobuf::util::JsonStringToMessage(
      json.dump(), message, options);
  if (status.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(message->GetDescriptor()->name(),
                   " in the status: ", std::string(status.message())));
}

absl::Time NewestCommit(const v1::ListFragmentsResponse& fragments) {
  absl::Time newest = absl::InfinitePast();
  for (const v1::FragmentStatus& fragment : fragments.fragments()) {
    newest = std::max(newest, ToTime(fragment.committed_at()));
  }
  return newest;
}

// Returns when the last of the islands that the run waits for joined.
absl::Time StartOfRun(const StatusSnapshot& status) {
  std::vector<absl::Time> joined;
  for (const v1::IslandStatus& island : status.islands.islands()) {
    joined.push_back(ToTime(island.joined_at()));
  }
  std::sort(joined.begin(), joined.end());
  const size_t needed =
      std::max<size_t>(1, status.run.config().membership().min_islands());
  return joined.size() < needed ? absl::InfiniteFuture() : joined[needed - 1];
}

// Returns bits per second.
double RateOf(const v1::LinkUse& use) {
  return use.bytes_per_second() > 0 ? 8 * use.bytes_per_second() : kUnlimited;
}

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
    add("utilization", "compute_utilization", HumanPercent,
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

absl::StatusOr<StatusSnapshot> ParseStatusJson(absl::string_view text) {
  const absl::StatusOr<nlohmann::json> json = ParseForeignJson(text);
  if (!json.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the status cannot be read: ", json.status().message()));
  }
  for (const char* part : {"run", "islands", "fragments"}) {
    if (!json->contains(part)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the status has no \"", part,
          "\"; `causeway status --json --all` writes one that has"));
    }
  }
  StatusSnapshot status;
  RETURN_IF_ERROR(ReadMessage((*json)["run"], &status.run));
  RETURN_IF_ERROR(
      ReadMessage({{"islands", (*json)["islands"]}}, &status.islands));
  RETURN_IF_ERROR(
      ReadMessage({{"fragments", (*json)["fragments"]}}, &status.fragments));
  return status;
}

absl::StatusOr<MeasuredRun> Measure(const StatusSnapshot& status,
                                    std::optional<absl::Time> now) {
  const v1::RunConfig& config = status.run.config();
  const double step_tokens = static_cast<double>(TokensPerStep(config));
  const absl::Time newest_commit = NewestCommit(status.fragments);
  const absl::Time start = StartOfRun(status);
  MeasuredRun run;
  run.coordinator_bytes = static_cast<double>(status.run.memory_bytes());
  if (status.run.outer_step_seconds() > 0) {
    run.merge_rate = static_cast<double>(status.run.parameters()) /
                     status.fragments.fragments_size() /
                     status.run.outer_step_seconds();
  }
  for (const v1::IslandStatus& island : status.islands.islands()) {
    const v1::IslandProgress& progress = island.progress();
    const absl::Time end =
        now.has_value() && island.state() == v1::IslandStatus::LIVE
            ? *now - absl::Seconds(island.heartbeat_age_seconds())
            : newest_commit;
    const MeasuredIsland measured{
        .name = island.island_id(),
        .seconds = absl::ToDoubleSeconds(
            end - std::max(start, ToTime(island.joined_at()))),
        .wait_seconds = progress.wait_seconds(),
        .steps = static_cast<double>(progress.tokens()) / step_tokens,
        .up_bytes = static_cast<double>(progress.bytes_up()),
        .down_bytes = static_cast<double>(progress.bytes_down()),
        .memory_bytes = static_cast<double>(progress.memory_bytes()),
        .link = {.up = RateOf(progress.uplink()),
                 .down = RateOf(progress.downlink())},
        .round_trip_seconds = progress.round_trip_seconds()};
    if (measured.steps > 0 && measured.seconds > measured.wait_seconds) {
      run.islands.push_back(measured);
    }
  }
  if (run.islands.empty()) {
    return absl::FailedPreconditionError(
        "no island of the run has trained yet, or the status was taken "
        "without those that have left (--all)");
  }
  return run;
}

absl::StatusOr<RunAssumptions> AssumptionsOf(const StatusSnapshot& status,
                                             const MeasuredRun& measured,
                                             const std::string& checkpoint) {
  RunAssumptions assumptions{.config = status.run.config(),
                             .merge_rate = measured.merge_rate};
  ASSIGN_OR_RETURN(assumptions.layout,
                   NewRunLayout(assumptions.config, checkpoint));
  for (const MeasuredIsland& island : measured.islands) {
    assumptions.islands.push_back(
        {.step_seconds = island.step_seconds(),
         .link = island.link,
         .round_trip_seconds = island.round_trip_seconds});
  }
  return assumptions;
}

void PrintComparison(const RunAssumptions& assumptions,
                     const RunPrediction& prediction,
                     const MeasuredRun& measured, std::ostream& out) {
  Table table({"OF", "QUANTITY", ">PREDICTED", ">MEASURED", ">RATIO"});
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
