// SPDX-FileCopyrightText: The Causeway authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/human.h"
#include "nlohmann/json.hpp"

namespace causeway {
namespace {

using nlohmann::json;

std::string Megabits(double bits_per_second) {
  if (bits_per_second == kUnlimited) return "unlimited";
  const double megabits = bits_per_second / 1e6;
  return megabits < 100 ? absl::StrFormat("%.3g", megabits)
                        : absl::StrFormat("%.0f", megabits);
}

std::string Seconds(double seconds) {
  return HumanDuration(absl::Seconds(seconds));
}

// Returns the format's name; for ECQ with its rate.
std::string FormatName(const v1::SynchronizationConfig& sync,
                       v1::Format format) {
  const std::string name = v1::Format_Name(format);
  return format == v1::ECQ && sync.ecq_bits() > 0
             ? absl::StrFormat("%s %.3g", name, sync.ecq_bits())
             : name;
}

std::string Formats(const v1::SynchronizationConfig& sync) {
  const std::string up = FormatName(sync, sync.uplink_format());
  const std::string down = FormatName(sync, sync.downlink_format());
  return up == down ? absl::StrCat(up, " both ways")
                    : absl::StrCat(up, " up, ", down, " down");
}

// Returns "0.1 s", or "0.1 to 0.4 s" if the times differ.
std::string StepTimes(absl::Span<const SimulatedIsland> islands) {
  const auto [least, most] = std::minmax_element(
      islands.begin(), islands.end(),
      [](const SimulatedIsland& a, const SimulatedIsland& b) {
        return a.step_seconds < b.step_seconds;
      });
  if (least->step_seconds == most->step_seconds) {
    return absl::StrFormat("%.3g s", least->step_seconds);
  }
  return absl::StrFormat("%.3g to %.3g s", least->step_seconds,
                         most->step_seconds);
}

void AddTrafficRow(absl::string_view name, absl::string_view utilization,
                   const LinkRates& link, const TrafficBothWays& traffic,
                   Table& table) {
  table.AddRow({std::string(name), std::string(utilization), Megabits(link.up),
                Megabits(traffic.up.mean), Megabits(traffic.up.peak),
                Megabits(link.down), Megabits(traffic.down.mean),
                Megabits(traffic.down.peak)});
}

bool Alike(const SimulatedIsland& a, const SimulatedIsland& b) {
  return a.step_seconds == b.step_seconds && a.link.up == b.link.up &&
         a.link.down == b.link.down &&
         a.round_trip_seconds == b.round_trip_seconds;
}

void PrintTraffic(const RunAssumptions& assumptions,
                  const RunPrediction& prediction, std::ostream& out) {
  Table table({"MBIT/S", ">UTILIZATION", ">UPLINK", ">MEAN", ">PEAK",
               ">DOWNLINK", ">MEAN", ">PEAK"});
  const std::vector<SimulatedIsland>& islands = assumptions.islands;
  const bool alike = std::all_of(
      islands.begin(), islands.end(),
      [&](const auto& island) { return Alike(island, islands[0]); });
  for (size_t i = 0; i < islands.size(); ++i) {
    const std::string name =
        !alike ? absl::StrCat("island ", i + 1)
        : islands.size() > 1
            ? absl::StrCat("each of ", islands.size(), " islands")
            : "the island";
    const SimulatedRun::Island& result = prediction.simulated.islands[i];
    AddTrafficRow(name, HumanPercent(result.utilization), islands[i].link,
                  result.traffic, table);
    if (alike) break;
  }
  AddTrafficRow("coordinator", "", assumptions.coordinator,
                prediction.simulated.coordinator, table);
  table.Print(out);
}

json RateJson(double rate) {
  return rate == kUnlimited ? json(nullptr) : json(rate);
}

json TrafficJson(const TrafficBothWays& traffic) {
  return {{"up_mean", traffic.up.mean},
          {"up_peak", traffic.up.peak},
          {"down_mean", traffic.down.mean},
          {"down_peak", traffic.down.peak}};
}

json LinkJson(const LinkRates& link, const TrafficBothWays& traffic) {
  json result = TrafficJson(traffic);
  result["up_rate"] = RateJson(link.up);
  result["down_rate"] = RateJson(link.down);
  return result;
}

json SynchronizationJson(const v1::SynchronizationConfig& sync) {
  json result = {{"inner_steps_per_round", sync.inner_steps_per_round()},
                 {"fragments", sync.fragments()},
                 {"overlap_steps", sync.overlap_steps()},
                 {"max_overlap_steps", sync.max_overlap_steps()},
                 {"uplink_format", v1::Format_Name(sync.uplink_format())},
                 {"downlink_format", v1::Format_Name(sync.downlink_format())}};
  if (sync.ecq_bits() > 0) result["ecq_bits"] = sync.ecq_bits();
  return result;
}

json RoundJson(const PeriodTimes& round) {
  return {{"training_seconds", round.training},
          {"uplink_seconds", round.uplink},
          {"downlink_seconds", round.downlink},
          {"coordinator_in_seconds", round.coordinator_in},
          {"coordinator_out_seconds", round.coordinator_out},
          {"merge_seconds", round.merge}};
}

json CostJson(const RunPrediction& prediction) {
  return {{"compute_utilization", prediction.simulated.utilization},
          {"round", RoundJson(prediction.simulated.busy)},
          {"up_bytes_per_round", prediction.up_bytes_per_round},
          {"down_bytes_per_round", prediction.down_bytes_per_round},
          {"record_bytes_per_round", prediction.record_bytes_per_round},
          {"snapshot_bytes_per_round", prediction.snapshot_bytes_per_round},
          {"data_parallel_ratio", prediction.data_parallel_ratio},
          {"island_memory_bytes", prediction.island_bytes},
          {"coordinator_memory_bytes", prediction.coordinator_bytes},
          {"coordinator_most_memory_bytes", prediction.coordinator_most_bytes},
          {"coordinator_disk_bytes", prediction.coordinator_disk_bytes}};
}

}  // namespace

void PrintPrediction(const RunAssumptions& assumptions,
                     const RunPrediction& prediction, std::ostream& out) {
  const v1::SynchronizationConfig& sync = assumptions.config.synchronization();
  const uint32_t waits_after = sync.overlap_steps() + sync.max_overlap_steps();
  out << absl::StrFormat("model        %s parameters, a step every %s\n",
                         HumanCount(assumptions.layout.size),
                         StepTimes(assumptions.islands));
  out << absl::StrFormat(
      "exchange     H %u, P %u, tau %u, %s; training waits after %u %s\n",
      sync.inner_steps_per_round(), sync.fragments(), sync.overlap_steps(),
      Formats(sync), waits_after, waits_after == 1 ? "step" : "steps");
  if (sync.uplink_bits_floor() > 0 && sync.uplink_format() == v1::ECQ) {
    out << absl::StrFormat("uplink bits  %s of %.3g, as uplinks need\n",
                           absl::StrJoin(prediction.uplink_bits, ", "),
                           assumptions.uplink_bits > 0 ? assumptions.uplink_bits
                                                       : sync.ecq_bits());
  }
  const PeriodTimes& round = prediction.simulated.busy;
  out << absl::StrFormat(
      "a round      %s of training; %s up, %s down for each island\n",
      Seconds(round.training), HumanBytes(prediction.up_bytes_per_round),
      HumanBytes(prediction.down_bytes_per_round));
  out << absl::StrFormat(
      "busy for     uplinks %s, downlinks %s, coordinator in %s, out %s, outer "
      "steps %s\n",
      Seconds(round.uplink), Seconds(round.downlink),
      Seconds(round.coordinator_in), Seconds(round.coordinator_out),
      Seconds(round.merge));
  out << absl::StrFormat(
      "traffic      %.4g times less than data parallel in 16 bits\n",
      prediction.data_parallel_ratio);
  out << absl::StrFormat("utilization  %s of the time is spent training\n\n",
                         HumanPercent(prediction.simulated.utilization));
  PrintTraffic(assumptions, prediction, out);
  out << absl::StrFormat(
      "\nmemory       island %s and activations, coordinator %s, at most %s; "
      "disk at most %s\n",
      HumanBytes(prediction.island_bytes),
      HumanBytes(prediction.coordinator_bytes),
      HumanBytes(prediction.coordinator_most_bytes),
      HumanBytes(prediction.coordinator_disk_bytes));
  // A round takes all islands the same time, but the fast ones train less.
  const double rounds_per_second =
      prediction.simulated.islands[0].utilization /
      (sync.inner_steps_per_round() * assumptions.islands[0].step_seconds);
  const double log = prediction.record_bytes_per_round * rounds_per_second;
  constexpr double kSecondsPerDay = 24 * 60 * 60;
  out << absl::StrFormat(
      "log          %s a round: %s a day to the disk, %.4g Mbit/s to each "
      "follower\n",
      HumanBytes(prediction.record_bytes_per_round),
      HumanBytes(log * kSecondsPerDay), log * 8 / 1e6);
  out << absl::StrFormat("snapshots    %s a round: %s a day to the disk\n",
                         HumanBytes(prediction.snapshot_bytes_per_round),
                         HumanBytes(prediction.snapshot_bytes_per_round *
                                    rounds_per_second * kSecondsPerDay));
}

json PredictionJson(const RunAssumptions& assumptions,
                    const RunPrediction& prediction) {
  json result = CostJson(prediction);
  result["parameters"] = assumptions.layout.size;
  result["synchronization"] =
      SynchronizationJson(assumptions.config.synchronization());
  result["coordinator"] =
      LinkJson(assumptions.coordinator, prediction.simulated.coordinator);
  for (size_t i = 0; i < assumptions.islands.size(); ++i) {
    const SimulatedIsland& island = assumptions.islands[i];
    const SimulatedRun::Island& simulated = prediction.simulated.islands[i];
    json entry = LinkJson(island.link, simulated.traffic);
    entry["step_seconds"] = island.step_seconds;
    entry["uplink_bits"] = prediction.uplink_bits[i];
    entry["round_trip_seconds"] = island.round_trip_seconds;
    entry["compute_utilization"] = simulated.utilization;
    result["islands"].push_back(entry);
  }
  return result;
}

void PrintSettings(double utilization, const FoundSettings& found,
                   std::ostream& out) {
  if (found.reaching.empty()) {
    out << absl::StrFormat(
        "Nothing that was tried reaches %s; this comes closest:\n\n",
        HumanPercent(utilization));
  } else {
    out << absl::StrFormat(
        "Settings that reach %s; each has a smaller H, a smaller tau or more "
        "bits\nthan any other:\n\n",
        HumanPercent(utilization));
  }
  Table table({">H", ">P", ">TAU", "FORMAT", ">UTILIZATION", ">ISLAND UP",
               ">PEAK", ">COORDINATOR IN", ">PEAK", ">ISLAND", ">COORDINATOR"});
  for (const Settings& option : found.reaching.empty()
                                    ? absl::MakeConstSpan(&found.closest, 1)
                                    : found.reaching) {
    const v1::SynchronizationConfig& sync = option.synchronization;
    const SimulatedRun& simulated = option.prediction.simulated;
    const LinkTraffic& up = simulated.islands[0].traffic.up;
    table.AddRow({absl::StrCat(sync.inner_steps_per_round()),
                  absl::StrCat(sync.fragments()),
                  absl::StrCat(sync.overlap_steps()),
                  FormatName(sync, sync.uplink_format()),
                  HumanPercent(simulated.utilization), Megabits(up.mean),
                  Megabits(up.peak), Megabits(simulated.coordinator.up.mean),
                  Megabits(simulated.coordinator.up.peak),
                  HumanBytes(option.prediction.island_bytes),
                  HumanBytes(option.prediction.coordinator_bytes)});
  }
  table.Print(out);
  out << "\nTraffic in Mbit/s, of the first island; as much comes down. The "
         "last columns are\nmemory.\n";
}

json SettingsJson(double utilization, const FoundSettings& found) {
  const auto entry = [](const Settings& settings) {
    const SimulatedRun& simulated = settings.prediction.simulated;
    json result = CostJson(settings.prediction);
    result["synchronization"] = SynchronizationJson(settings.synchronization);
    result["island"] = TrafficJson(simulated.islands[0].traffic);
    result["coordinator"] = TrafficJson(simulated.coordinator);
    return result;
  };
  json reaching = json::array();
  for (const Settings& settings : found.reaching) {
    reaching.push_back(entry(settings));
  }
  return {{"wanted_utilization", utilization},
          {"settings", reaching},
          {"closest", entry(found.closest)}};
}

}  // namespace causeway
